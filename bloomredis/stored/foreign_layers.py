"""Filters of other systems in several layers: a chain that grows, and links that were restored.

An item is in the filter if it is in any layer; only the newest is written.  One script sees all layers:
their keys are its last ones (`lua/include/layers.lua`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, Protocol, runtime_checkable

from bloomredis.protocol import replies, scripts
from bloomredis.protocol.calls import Wait, call, send
from bloomredis.protocol.replies import Refusal
from bloomredis.protocol.steps import Op
from bloomredis.stored.foreign import ForeignLayout, StoredBitmap, description
from bloomredis.stored.handle import Description, Handle

_GROW: Final = scripts.load("grow")
_LAYERS: Final = struct.Struct(">6sBBQ")


@runtime_checkable
class ChainLayout(ForeignLayout, Protocol):
    """A layout whose system begins another bitmap of the same size when one is half full."""

    def link_key(self, name: str, cursor: int) -> str:
        """Return the key of the bitmap with that number."""

    def cursor_key(self) -> str:
        """Return the key of the number of the newest bitmap; there is none before the second."""


@runtime_checkable
class LinkedLayout(ForeignLayout, Protocol):
    """Several layouts of the same items; an item is packed for one after the other."""

    def links(self, name: str) -> list[tuple[str, ForeignLayout]]:
        """Return the keys and the layouts, the newest first."""


def _identity(layers: int, cursor: int | None, descriptions: Sequence[bytes]) -> bytes:
    """Return the identity for the scripts, with one description for all layers or one for each."""
    head = _LAYERS.pack(b"layers", 1, layers - 1, 0 if cursor is None else cursor + 1)
    return head + b"".join(descriptions)


class StoredChain(StoredBitmap):
    """A chain that grows; a script refuses if it has grown beyond the cursor that this object knows."""

    is_one_bitmap = False
    has_layers = True

    def __init__(
        self, name: str, *, layout: ChainLayout, ttl: int, refresh_ttl: bool, wait: Wait | None
    ) -> None:
        super().__init__(name, layout=layout, ttl=ttl, refresh_ttl=refresh_ttl, wait=wait)
        self._chain = layout
        self._cursor_key = layout.cursor_key().encode()
        self._cursor = 0

    @property
    def layers(self) -> list[tuple[bytes, ForeignLayout]]:
        """The bitmaps that are known, the newest first."""
        return [
            (self._chain.link_key(self.name, number).encode(), self._layout)
            for number in range(self._cursor, -1, -1)
        ]

    @property
    def other_keys(self) -> tuple[bytes, ...]:
        """The key of the number of the newest bitmap."""
        return (self._cursor_key,)

    def assume(self) -> Handle:
        """Remember the known bitmaps without asking for them."""
        newest, *older = (key for key, _ in self.layers)
        return self.remember(
            _identity(self._cursor + 1, self._cursor, [self._identity]),
            self._layout,
            (newest, self._cursor_key, *older),
            layers=self._cursor + 1,
        )

    def current(self) -> Op[list[Description]]:
        """Read the cursor, then describe each bitmap."""
        self._follow_to(int((yield from send(("GET", self._cursor_key))) or 0))
        return (yield from super().current())

    def clear(self) -> Op[None]:
        """Delete the bitmaps and begin with the first."""
        yield from self.delete([], [])

    def _follow(self, refusal: Refusal, handle: Handle) -> Op[None]:  # noqa: ARG002 - nothing was lost
        """Follow a chain that has grown."""
        self._follow_to(int(refusal.detail))
        return
        yield  # a generator, as the other recoveries are

    def _grow(self, refusal: Refusal, handle: Handle) -> Op[None]:  # noqa: ARG002 - it is full
        # Safe to send again: a chain that has grown since has another cursor.
        cursor = yield from call(
            _GROW, [self._cursor_key, self.layers[0][0]], [self._cursor, self._identity], self.wait
        )
        self._follow_to(cursor)

    def _follow_to(self, cursor: int) -> None:
        self._cursor = cursor
        self.assume()

    RECOVERY = StoredBitmap.RECOVERY | {replies.STALE: _follow, replies.FULL: _grow}


class StoredLinks(StoredBitmap):
    """Restored links of different sizes, which are only read."""

    is_one_bitmap = False
    has_layers = True

    def __init__(self, name: str, *, layout: LinkedLayout, wait: Wait | None) -> None:
        super().__init__(name, layout=layout, ttl=0, refresh_ttl=False, wait=wait)
        self._links = [(key.encode(), link) for key, link in layout.links(name)]
        self.key = self._links[0][0]
        self.only_read = f"{name!r} was restored from {layout.name} and is only read"

    @property
    def layers(self) -> list[tuple[bytes, ForeignLayout]]:
        """All links, the newest first."""
        return self._links

    def assume(self) -> Handle:
        """Remember the known bitmaps without asking for them."""
        described = [description(link, 0, refresh_ttl=False) for _, link in self._links]
        keys = [key for key, _ in self._links]
        return self.remember(_identity(len(described), None, described), self._layout, keys)
