"""A bitmap that another system writes too: there is no header, so its parameters come from the caller.

The scripts are the same ones.  What they compare an identity with is missing, so they are given a
description instead (`lua/FORMAT.md`, "Bitmaps of other systems"), and a loss cannot be noticed: a
bitmap that is not there is an empty filter.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, Protocol

from bloomredis import protocol, scripts
from bloomredis.hashing import Encoder
from bloomredis.header import Header
from bloomredis.layouts import Layout
from bloomredis.protocol import Op, Refusal, Wait
from bloomredis.stored import Arguments, Description, Opened, Stored

_DELETE: Final = scripts.load("delete")
_DESCRIPTION: Final = struct.Struct(">6sBBBB6sQQ")
_PROBES: Final = 1  # the code of the classic layout: offsets, in whatever way they were computed


class ForeignLayout(Layout, Encoder, Protocol):
    """What the operations need to know besides about another system's layout."""

    @property
    def capacity(self) -> int:
        """Items that the filter is made for."""

    @property
    def error_rate(self) -> float:
        """The configured false-positive rate at that many items."""

    def key(self, name: str) -> str:
        """Return the key under which the system keeps a filter of that name."""


def description(layout: ForeignLayout, ttl: int, *, refresh_ttl: bool) -> bytes:
    """Return what the scripts are told about a bitmap; `ttl` in milliseconds, 0 for none."""
    return _DESCRIPTION.pack(
        b"bitmap", 1, _PROBES, layout.num_hashes, refresh_ttl, bytes(6), layout.num_bits, ttl
    )


class StoredBitmap(Stored):
    """A bitmap under the key that the other system gives it."""

    def __init__(
        self, name: str, *, layout: ForeignLayout, ttl: int, refresh_ttl: bool, wait: Wait | None
    ) -> None:
        super().__init__(name, layout.key(name).encode(), wait)
        self._layout = layout
        self._identity = description(layout, ttl, refresh_ttl=refresh_ttl)

    def open(self) -> Op[Opened]:
        """Check that the key holds no other type."""
        yield from self.current()
        return self.know(self._identity, self._layout)

    def current(self) -> Op[Description]:
        """Read how long the bitmap is and how long it lives; the rest is what the caller says."""
        size, ttl = yield [("STRLEN", self.key), ("PTTL", self.key)]
        for reply in (size, ttl):
            if isinstance(reply, Exception):
                meaning = protocol.explained(reply)
                raise self.explained(meaning) if isinstance(meaning, Refusal) else meaning
        layout = self._layout
        head = Header(
            layout=layout.name,
            num_hashes=layout.num_hashes,
            num_bits=layout.num_bits,
            capacity=layout.capacity,
            error_rate=layout.error_rate,
            generation=b"",
        )
        return Description(head, size, 0, ttl / 1000 if ttl >= 0 else None)

    def run(
        self,
        script: scripts.Script,
        opened: Opened,
        arguments: Arguments,
        keys: Sequence[bytes] = (),
        *,
        reads: bool = False,
    ) -> Op[Any]:
        """Run a script on the bitmap."""
        wait = None if reads else self.wait
        try:
            return (yield from protocol.call(script, [self.key, *keys], [opened.identity, *arguments], wait))
        except Refusal as refusal:
            if refusal.word == protocol.WRONG_TYPE:
                raise self.explained(refusal) from refusal
            raise

    def clear(self) -> Op[None]:
        """Delete the bitmap, which empties the filter."""
        yield from self.delete([], [])

    def delete(self, arguments: Arguments, keys: Sequence[bytes]) -> Op[bool]:
        """Delete the bitmap; say whether there was one."""
        opened = self.opened or (yield from self.open())
        existed: int = yield from self.run(_DELETE, opened, arguments, keys)
        return existed == 1
