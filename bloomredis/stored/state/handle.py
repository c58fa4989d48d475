"""Handles: what this object knows of a verified filter."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar, cast

from bloomredis.bits.layered import Layered
from bloomredis.bits.layout import Layout, Packing
from bloomredis.protocol.calls import Frame, tail_of
from bloomredis.protocol.forks import renewed_after_fork
from bloomredis.protocol.scripts import Script
from bloomredis.protocol.steps import Command, Part
from bloomredis.stored.header import Header

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Description:
    """A filter as the server described it; `ttl` in seconds, None if it does not expire."""

    key: bytes
    header: Header
    size_bytes: int
    first_byte: int  # of the bits
    ttl: float | None
    has_bits: bool = True  # that can be read


def ttl_seconds(ttl: int) -> float | None:
    """Convert a PTTL reply to seconds; None if the key does not expire."""
    return ttl / 1000 if ttl >= 0 else None


class UnderWay:
    """Work of this process on a filter that is not done yet; none in a forked child, or in a copy."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin with nothing."""
        self.emptied_by = 0  # so many calls
        self.told_by = 0  # the thread that runs `on_lost`, which may use the filter
        self.looked = 0.0  # when it last began to look at the record of a sharded filter
        renewed_after_fork(self)

    def __reduce__(self) -> tuple[object, ...]:
        return UnderWay, ()

    @contextmanager
    def emptying(self) -> Iterator[None]:
        """Clear or delete it; that calls of this object find another generation meanwhile is no loss."""
        self.emptied_by += 1
        try:
            yield
        finally:
            self.emptied_by = max(0, self.emptied_by - 1)  # it may be a child by now


class LayoutChanged(Exception):  # noqa: N818 - it never reaches a caller
    """The stored filter changed; nothing was executed.  Acquire, re-pack and retry."""


WHOLE: Final = 0
"""Version of a script that knows filters of one layer."""
IN_BLOCKS: Final = 1
"""The short version, for the blocked layout."""
LAYERED: Final = 2
"""The version that knows several layers, and a filter that is being rebuilt with its successor."""


@dataclass(frozen=True, slots=True, eq=False)
class Handle:
    """A verified filter: what every call to it needs."""

    identity: bytes
    layout: Packing
    items: int  # that one script call takes at most
    key: bytes
    extra: tuple[bytes, ...] = ()  # keys that every script is given behind its own
    generation: bytes = b""  # empty for a bitmap of another system
    check: int = 0  # of the generation, for the names of calls
    version: int = WHOLE  # of the scripts
    is_being_rebuilt: bool = False  # the layout is that of the filter, then that of its successor
    losses: Iterator[int] = field(default_factory=itertools.count, repr=False)  # that were noticed
    _frames: dict[tuple[str, int, int], Frame] = field(default_factory=dict, repr=False)

    @property
    def bitmap(self) -> Layout:
        """The layout, of a filter in one bitmap; while it is being rebuilt without that of its successor."""
        layout: object = self.layout
        return cast("Layout", cast("Layered", layout).layers[0] if self.is_being_rebuilt else layout)

    def tail(self, keys: Sequence[bytes], arguments: Sequence[Part]) -> Command:
        """Return what stands behind the name of a script: how many keys, all keys, identity, arguments.

        :param keys: those besides the filter's own.
        """
        return tail_of((self.key, *keys, *self.extra), (self.identity, *arguments))

    def frame(self, script: Script[R], keys: int, arguments: int) -> Frame:
        """Return the frame of the calls of a script with so many keys and arguments, as for `tail`."""
        frame = self._frames.get((script.sha, keys, arguments))
        if frame is None:
            command = ("EVALSHA", script.sha, *self.tail([b""] * keys, [b""] * arguments))
            frame = self._frames[script.sha, keys, arguments] = Frame(command, keys, arguments)
        return frame

    def __reduce__(self) -> tuple[object, ...]:
        fields = (self.identity, self.layout, self.items, self.key, self.extra, self.generation, self.check)
        return Handle, (*fields, self.version, self.is_being_rebuilt)
