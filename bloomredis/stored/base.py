"""Whether the filter on the server is the one that this object knows.

Three states: not opened yet, opened, and lost.  Every script call carries the identity that this object
knows (`header`), so a filter that is gone or another one is noticed by the very call that meets it.
A loss lasts until the caller has taken notice, or is dealt with as `on_lost` says.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, cast

from bloomredis.arguments import OnLost
from bloomredis.bits.layout import Layout, Packing
from bloomredis.errors import (
    FilterLostError,
    FilterMismatchError,
    FilterNotFoundError,
    OutcomeUnknownError,
)
from bloomredis.protocol import calls, replies, scripts
from bloomredis.protocol.calls import Wait
from bloomredis.protocol.replies import Refusal
from bloomredis.protocol.steps import Op
from bloomredis.stored.header import Header

Arguments = Sequence[bytes | int | str]

PROBES_A_CALL: Final = 3000
"""Probes that one script makes at most: 2 ms on the slowest server measured (0.67 us each, Redis 7.0)."""

_RESERVE, _DESCRIBE, _CLEAR, _DELETE, _EXPIRE = map(
    scripts.load, ("reserve", "describe", "clear", "delete", "expire")
)
LOSSES: Final = {
    replies.MISSING: "{!r} has vanished (expired, evicted, flushed or deleted)",
    replies.CHANGED: "{!r} was cleared or replaced",
    replies.FOREIGN: "{!r} was overwritten with something that is no filter",
    replies.WRONG_TYPE: "{!r} was overwritten with a key of another type",
}
_log = logging.getLogger("bloomredis")


@dataclass(frozen=True, slots=True)
class Description:
    """A filter as the server described it; `ttl` in seconds, None for ever."""

    key: bytes
    header: Header
    size_bytes: int
    first_byte: int  # of the bits
    ttl: float | None


def ttl_seconds(ttl: int) -> float | None:
    """Return the seconds that a reply of PTTL stands for, None for ever."""
    return ttl / 1000 if ttl >= 0 else None


class LayoutChanged(Exception):  # noqa: N818 - it never reaches a caller
    """Nothing was done: what is stored has other bits than the items were packed for; pack them anew."""


@dataclass(frozen=True, slots=True)
class Handle:
    """What every call needs of a filter that has been checked."""

    identity: bytes
    layout: Packing
    items: int  # that one script call takes at most
    key: bytes
    extra: tuple[bytes, ...] = ()  # keys that every script is given behind its own
    generation: bytes = b""  # which no other filter has

    @property
    def bitmap(self) -> Layout:
        """The layout, which is that of a filter in one bitmap."""
        return cast("Layout", self.layout)


class Stored(ABC):
    """What is under one key, and what this object knows of it."""

    is_one_bitmap: ClassVar[bool] = True
    """Whether all bits of an item lie in one string, so that a copy or a segment of it says what is in."""

    has_layers: ClassVar[bool] = False
    """Whether the scripts have to know several layers."""
    notices_loss: ClassVar[bool] = True
    """Whether a script refuses if what is stored is missing, so that an answer is never a replica's guess."""

    def __init__(self, name: str, key: bytes, wait: Wait | None) -> None:
        self.name = name
        self.key = key
        self.wait = wait
        self.only_read: str | None = None  # what to tell a caller who would write
        self.handle: Handle | None = None

    def remember(
        self,
        identity: bytes,
        layout: Packing,
        keys: Sequence[bytes] = (),
        *,
        generation: bytes = b"",
        layers: int = 1,
    ) -> Handle:
        """Take this for what is stored, from now on.

        :param keys: the filter's key and those that every script is given behind its own.
        :param layers: how many there are in this layout.
        """
        key, *extra = keys or (self.key,)
        items = max(1, int(PROBES_A_CALL // (layout.cost * layers)))
        self.handle = Handle(identity, layout, items, key, tuple(extra), generation)
        return self.handle

    def reset(self) -> None:
        """Know nothing: the next call opens whatever is there."""
        self.handle = None

    @abstractmethod
    def open(self) -> Op[Handle]:
        """Make sure that the filter is there and the right one; know it from now on."""

    @abstractmethod
    def current(self) -> Op[list[Description]]:
        """Read what is stored, if it is still the filter that this object knows: each layer, newest first."""

    def script(self, script: scripts.Script) -> scripts.Script:
        """Return a script as this kind of storage needs it."""
        return scripts.load(script.verb, layered=True) if self.has_layers else script

    def run(
        self,
        script: scripts.Script,
        handle: Handle,
        arguments: Arguments,
        keys: Sequence[bytes] = (),
        *,
        reads: bool = False,
        again: bool = True,
    ) -> Op[Any]:
        """Run a script on the filter that this object knows; one that only reads waits for no replica.

        :param again: it may be sent again where it is not known whether it was executed.
        :raises Outdated: the filter has another layout by now than `opened`.
        """
        if self.only_read and not reads:
            raise TypeError(self.only_read)
        wait = None if reads else self.wait
        script = self.script(script)
        while True:
            every = [handle.key, *keys, *handle.extra]
            try:
                values = [handle.identity, *arguments]
                anywhere = reads and self.notices_loss
                return (yield from calls.call(script, every, values, wait, reads=anywhere, again=again))
            except Refusal as refusal:
                met = refusal
            now = yield from self._recover(met, handle)
            if now.layout != handle.layout:
                raise LayoutChanged
            handle = now

    @abstractmethod
    def _recover(self, refusal: Refusal, handle: Handle) -> Op[Handle]:
        """Deal with a script's refusal, and return what is known now; or raise what the caller is told."""

    @abstractmethod
    def clear(self) -> Op[None]:
        """Empty the filter, whatever its generation; create a missing one."""

    @abstractmethod
    def delete(self, arguments: Arguments, keys: Sequence[bytes]) -> Op[bool]:
        """Delete the filter, whatever its generation; say whether there was one."""

    def expire(self, ttl: int) -> Op[None]:
        """Let everything that is stored expire in `ttl` ms."""
        while True:
            handle = self.handle or (yield from self.open())
            try:
                yield from self.run(_EXPIRE, handle, [ttl])
            except LayoutChanged:
                continue
            return

    def explained(self, refusal: Refusal) -> FilterNotFoundError | FilterMismatchError:
        """Return what a caller is told who has not used the filter before."""
        if refusal.word == replies.MISSING:
            return FilterNotFoundError(
                f"there is no filter {self.name!r}; give capacity and error_rate to create it"
            )
        return FilterMismatchError(f"{self.name!r} holds no Bloom filter ({refusal}); use another name")


class Versioned(Stored):
    """What is noticed when it is gone or another one."""

    def __init__(self, name: str, *, ttl: int, on_lost: OnLost, wait: Wait | None) -> None:
        super().__init__(name, name.encode(), wait)
        self._ttl = ttl
        self._on_lost = on_lost
        self._lost: str | None = None

    def reset(self) -> None:
        """Know nothing: the next call opens whatever is there, and a loss is taken notice of."""
        self.handle = self._lost = None

    def _call(
        self,
        script: scripts.Script,
        arguments: Arguments,
        wait: Wait | None = None,
        keys: Sequence[bytes] = (),
    ) -> Op[Any]:
        try:
            return (yield from calls.call(script, keys or [self.key], arguments, wait))
        except Refusal as refusal:
            raise self.explained(refusal) from refusal
        except replies.NoReply as unanswered:
            # Either call may be made again without a doubt: the client's own error says it best.
            raise unanswered.__cause__ or OutcomeUnknownError(str(unanswered)) from None

    @property
    @abstractmethod
    def called(self) -> str:
        """The class that it belongs to."""

    def _lose(self, what: str, handle: Handle) -> Op[Handle]:  # noqa: ARG002 - a shard is lost but once
        """Raise `FilterLostError`, or go on with what is there now in the place of `opened`."""
        self._tell(what)
        return (yield from self.open())

    def _tell(self, what: str, *, damaged: bool = False) -> None:
        """Raise `FilterLostError`, or say that it was lost in the way that `on_lost` says.

        :param damaged: what is there now is of no use.
        """
        message = f"{what} since this object first used it; what was added before is forgotten"
        self.handle = None
        if self._on_lost == "raise":
            way_out = "Call" if damaged else "Call reserve() to go on with what is there now, or"
            self._lost = f"{message}. {way_out} clear() to start empty"
            raise FilterLostError(self._lost)
        if callable(self._on_lost):
            self._on_lost(FilterLostError(message))
        _log.warning("%s; going on with what is there now, or a new one", message)

    def compare(self, found: dict[str, object], wanted: dict[str, object]) -> None:
        """Raise `FilterMismatchError` for the first parameter that is not as wanted."""
        for field, value in wanted.items():
            if found[field] != value:
                raise FilterMismatchError(
                    f"{self.name!r} holds {field} {found[field]!r}, not {value!r}; open it with "
                    f"{self.called}.open(), which takes what is stored, or use another name"
                )
