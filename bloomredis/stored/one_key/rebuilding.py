"""A filter in one key that can be rebuilt: its successor replaces it under the same generation.

    byte 12     | stored                    | what a client knows
    ------------|---------------------------|---------------------------------------------------
    even        | the filter                | its header
    odd         | the filter and successor  | both headers: items go to both, the filter answers
    even again  | the former successor      | its header

Receipts, tokens and claims belong to the generation, so they outlast each step.  A script refuses a client
that is a step behind.  The client then opens the filter again; nothing is lost.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, TypeVar, Unpack

from bloomredis.bits.layered import Layered
from bloomredis.errors import (
    BloomError,
    FilterLostError,
    FilterMismatchError,
    FilterNotFoundError,
)
from bloomredis.protocol import forms, replies, scripts
from bloomredis.protocol.calls import call
from bloomredis.protocol.replies import Refusal
from bloomredis.protocol.steps import Op
from bloomredis.stored import header, planning
from bloomredis.stored.header import BEING_REBUILT, GENERATION, IDENTITY_BYTES, REBUILT, TAG_BYTES, Header
from bloomredis.stored.one_key.single import StoredFilter
from bloomredis.stored.state.base import Arguments
from bloomredis.stored.state.handle import Handle

R = TypeVar("R")

_BEGIN: Final = scripts.load_script("begin_rebuild", forms.both_headers)
_END, _ABANDON = (scripts.load_script(verb, forms.integer) for verb in ("end_rebuild", "abandon_rebuild"))
_DESCRIBE: Final = scripts.load_script("describe", forms.state)
_LOST: Final = (replies.MISSING, replies.CHANGED, replies.FOREIGN, replies.WRONG_TYPE)

_MOST_SUCCESSORS: Final = 8

_log = logging.getLogger("bloomredis")


@dataclass(frozen=True, slots=True)
class Rebuild:
    """The headers of a filter that is being rebuilt and of its successor."""

    filter: Header
    successor: Header


def _parsed(data: bytes, head: Header) -> Header:
    """Return the header of a filter's successor; raise `ValueError` for other bytes."""
    successor = header.parse(data)
    if successor.encoding != head.encoding:
        raise ValueError("its items have another encoding")
    return successor


class StoredRebuildable(StoredFilter):
    """A filter that can be rebuilt, by this object or by others."""

    def __init__(
        self,
        name: str,
        *,
        new: Header | None,
        layout: str | None,
        **options: Unpack[planning.StorageOptions],
    ) -> None:
        super().__init__(name, new=new, layout=layout, **options)
        self.successor_key = self.auxiliary + b"successor"
        self._possible_successors = b""  # tags of the successors that this object may have created

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_possible_successors": b""}  # a copy of the object has begun no rebuild

    # -- opening

    def _find(self) -> Op[Header | Rebuild]:  # type: ignore[override]  # goes to `_accept` alone
        while True:
            head = yield from super()._find()
            found = yield from self._completed(head)
            if found is not None:
                return found

    def _completed(self, head: Header) -> Op[Header | Rebuild | None]:
        """Return a header, together with that of its successor if it has one; None to read it again."""
        if not head.is_being_rebuilt:
            return head
        successor = yield from self._find_successor(head)
        if successor is not None:
            return Rebuild(head, successor)
        # The successor expired after its creator died, or has just replaced the filter.
        yield from self._abandon(head, b"")
        return None

    def _find_successor(self, head: Header) -> Op[Header | None]:
        """Return the header of the successor; None if it has vanished.  Delete a truncated successor."""
        data, size = yield from self._read_successor(head)
        if not data:
            return None
        try:
            successor = _parsed(data, head)
        except ValueError as error:
            raise FilterMismatchError(
                f"{self.name!r} is being rebuilt, and its successor is damaged or was created by a later "
                f"release: {error}; clear() or delete() ends the rebuild"
            ) from None
        if size == successor.size_bytes:
            return successor
        yield from self._abandon(head, data)
        return None

    def _read_successor(self, head: Header) -> Op[tuple[bytes, int]]:
        """Return the bytes of the successor's header, whoever created it, and the length of its string."""
        try:
            data, size, _ = yield from self._call(_DESCRIBE, [], keys=[self.successor_key])
        except (FilterNotFoundError, FilterMismatchError):
            return b"", 0
        return (data, size) if data[GENERATION] == head.generation else (b"", 0)

    def _accept(self, head: Header | Rebuild) -> Handle:
        if not isinstance(head, Rebuild):
            return super()._accept(head)
        # Remember both in one step: no other thread may see a handle without the successor.
        self._learn(head.filter)
        return self.remember(
            head.filter.identity + head.successor.identity,
            Layered((planning.stored(head.filter), planning.stored(head.successor))),
            (self.key, self.successor_key),
            generation=head.filter.generation,
            is_being_rebuilt=True,
        )

    def _check_parameters(self, found: Header) -> None:
        """Compare the layout alone after a rebuild, which changes capacity and error rate on purpose."""
        is_known = self._found is not None and self._found.generation == found.generation
        was_rebuilt = found.flags & (BEING_REBUILT | REBUILT)
        if not (was_rebuilt or is_known):  # parameters accepted during a rebuild remain accepted
            super()._check_parameters(found)
            return
        if self._layout is not None:
            self.compare({"layout": found.layout}, {"layout": self._layout})
        if self._found is None and self._new is not None:
            _log.info(
                "%r was rebuilt: capacity and error_rate are %s and %s, as stored",
                *(self.name, found.capacity, found.error_rate),
            )

    # -- following

    def _follow(self, handle: Handle) -> Op[bool]:
        """Follow the filter of a handle through a rebuild; return False if it was lost.  Create nothing."""
        known = header.identified(handle.identity)
        while True:
            try:
                head = (yield from self.describe()).header
            except (FilterNotFoundError, FilterMismatchError):
                return False
            # A filter older than the known one was restored from a copy.
            if head.generation != known.generation or head.created_at < known.created_at:
                return False
            found = yield from self._completed(head)
            if found is not None:
                if self.handle is handle:
                    self._accept(found)
                return True

    def _recover_change(self, refusal: Refusal, handle: Handle) -> Op[None]:
        follows = yield from self._follow(handle)
        if not follows and self.handle is handle:  # another call may have handled the loss meanwhile
            yield from self._recover_loss(refusal, handle)

    RECOVERY = StoredFilter.RECOVERY | {replies.CHANGED: _recover_change}

    # -- rebuilding

    def begin_rebuild(
        self, capacity: int | None, error_rate: float | None, timeout: int, *, take_over: bool
    ) -> Op[Rebuild]:
        """Create a successor that expires in `timeout` ms; a parameter that is None stays as it is.

        The new successor replaces one that an earlier rebuild of this object left behind.
        """
        self.check_writable()
        tag, left = os.urandom(TAG_BYTES), self._possible_successors[-_MOST_SUCCESSORS * TAG_BYTES :]
        reply = None
        while reply is None:
            (found,) = yield from self.current()
            new = self._planned(found.header, capacity, error_rate, tag)
            self._possible_successors = left + tag
            reply = yield from self._run(
                _BEGIN, [found.header.identity, new.pack(), timeout, int(take_over), left]
            )
        yield from self._keep_up()
        return Rebuild(*map(header.parse, reply))

    @staticmethod
    def _planned(old: Header, capacity: int | None, error_rate: float | None, tag: bytes) -> Header:
        """Return the header of a successor."""
        rate = old.error_rate if error_rate is None else error_rate
        new = planning.new_header(old.capacity if capacity is None else capacity, rate, old.layout)
        return replace(new, generation=old.generation, flags=REBUILT, tag=tag, encoding=old.encoding)

    def successor(self, begun: Rebuild) -> StoredFilter:
        """Return the successor as an open filter by itself."""
        name = self.successor_key.decode()
        made = StoredFilter(name, new=None, layout=None, ttl=0, on_lost="raise", wait=self.wait)
        made._accept(begun.successor)  # noqa: SLF001 - a method of this class's base
        return made

    def end_rebuild(self, begun: Rebuild) -> Op[None]:
        """Replace the filter with its successor.

        :raises FilterLostError: the filter or its successor was cleared, deleted or lost meanwhile.
        """
        identities = [begun.filter.identity, begun.successor.identity]
        try:
            yield from call(_END, [self.key, self.successor_key], identities, self.wait)
        except Refusal as refusal:
            if refusal.word in _LOST:
                what = self.loss(refusal.word)
            elif refusal.word == replies.DAMAGED:
                what = f"the successor of {self.name!r} has vanished (expired or evicted) or was replaced"
            else:
                raise
            yield from self.abandon_rebuild(begun)
            raise FilterLostError(f"{what} while it was being rebuilt; rebuild it again") from None
        self._possible_successors = b""
        yield from self._keep_up()

    def _keep_up(self) -> Op[None]:
        """Update the handle, so that later calls of this object are not refused first."""
        if self.handle is not None:
            with suppress(BloomError):
                yield from self._follow(self.handle)

    def abandon_rebuild(self, begun: Rebuild) -> Op[None]:
        """End the rebuild without replacing the filter; delete the successor."""
        yield from self._abandon(begun.filter, begun.successor.pack())
        self._possible_successors = b""
        yield from self._keep_up()

    def _replaced(self, found: Header) -> Op[None]:
        if found.is_being_rebuilt:
            data, _ = yield from self._read_successor(found)
            if data:
                yield from self._abandon(found, data)
                self._possible_successors = b""

    def _abandon(self, head: Header, successor: bytes) -> Op[None]:
        """End a rebuild and delete the successor with this header; b"" for a successor that has vanished."""
        identities = head.identity, successor[:IDENTITY_BYTES]
        yield from self._run(_ABANDON, [*identities, os.urandom(TAG_BYTES)])

    def _run(self, script: scripts.Script[R], arguments: Arguments) -> Op[R | None]:
        return self._as_known(script, [self.key, self.successor_key], arguments)

    def explained(self, refusal: Refusal) -> BloomError:
        """Return the public error for a caller who has not used the filter before."""
        if refusal.word == replies.REBUILDING:
            return FilterMismatchError(
                f"{self.name!r} is being rebuilt already; wait for the end, or, if that process has died, "
                "rebuild it with take_over=True"
            )
        return super().explained(refusal)
