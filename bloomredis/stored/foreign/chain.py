"""Filters of other systems in several layers: growing chains and restored links.

The filter contains an item if any layer does; only the newest layer is written.  One script accesses all
layers; their keys are its last keys (`lua/include/layers.lua`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NoReturn, Protocol

from bloomredis.errors import FilterFullError, FilterMismatchError
from bloomredis.protocol import forms, replies, scripts
from bloomredis.protocol.calls import Wait, send_command
from bloomredis.protocol.replies import Refusal
from bloomredis.protocol.steps import Op
from bloomredis.stored.foreign.bitmap import ForeignLayout, StoredBitmap, description
from bloomredis.stored.state.base import Arguments, Stored
from bloomredis.stored.state.handle import Description, Handle

MOST_BITMAPS: Final = 1024
"""The most bitmaps of a chain, since a script tests an item in all of them."""

_DELETE: Final = scripts.load_script("delete", forms.integer)
_LAYERS: Final = struct.Struct(">6sBBQ")


class ChainLayout(ForeignLayout, Protocol):
    """A layout whose system begins another bitmap of the same size when the newest is half full."""

    def link_key(self, name: str, cursor: int) -> str:
        """Return the key of the bitmap with this number."""

    def cursor_key(self) -> str:
        """Return the key of the cursor: the number of the newest bitmap, missing until the second begins."""


class LinkedLayout(ForeignLayout, Protocol):
    """Several layouts of the same items; an item is packed for each layout in turn."""

    def links(self, name: str) -> list[tuple[str, ForeignLayout]]:
        """Return the keys and the layouts, the newest first."""


def _identity(others: int, cursor: int | None, descriptions: Sequence[bytes]) -> bytes:
    """Return the identity for the scripts, with one description for all layers or one for each layer."""
    head = _LAYERS.pack(b"layers", 1, others, 0 if cursor is None else cursor + 1)
    return head + b"".join(descriptions)


class StoredChain(StoredBitmap):
    """A growing chain; a script refuses if its cursor is not the one that this object knows."""

    is_one_bitmap = False
    store = ("bitmaps", "layers")
    has_layers = True

    def __init__(self, name: str, *, layout: ChainLayout, ttl: int, wait: Wait | None) -> None:
        super().__init__(name, layout=layout, ttl=ttl, wait=wait)
        self._chain = layout
        self._cursor_key = layout.cursor_key().encode()
        self._cursor = 0

    def _key_of(self, number: int) -> bytes:
        return self._chain.link_key(self.name, number).encode()

    @property
    def layers(self) -> list[tuple[bytes, ForeignLayout]]:
        """The known bitmaps, the newest first."""
        return [(self._key_of(number), self._layout) for number in range(self._cursor, -1, -1)]

    def open(self) -> Op[Handle]:
        """Read the cursor, and check that no key holds another type."""
        yield from self.current()
        return self.assume()

    def assume(self) -> Handle:
        """Remember the known bitmaps without I/O."""
        newest, *older = (key for key, _ in self.layers)
        keys = (newest, self._cursor_key, self._key_of(self._cursor + 1), *older)
        identity = _identity(0, self._cursor, [self._identity])
        return self.use(self.new_handle(identity, self._layout, keys, layers=self._cursor + 1))

    def current(self) -> Op[list[Description]]:
        """Read the cursor, then describe each bitmap."""
        try:
            cursor = (yield from send_command(("GET", self._cursor_key), forms.text_or_nil)) or b"0"
        except Refusal as refusal:
            raise self._no_cursor(refusal) from refusal
        if not cursor.isdigit():
            raise self._no_cursor(repr(cursor))
        self._follow_to(int(cursor))
        return (yield from super().current())

    def clear(self) -> Op[None]:
        """Delete all bitmaps and the cursor, so that the chain begins with the first bitmap again."""
        yield from self.delete([], [])

    def delete(self, arguments: Arguments, keys: Sequence[bytes]) -> Op[bool]:
        """Delete all bitmaps and the cursor in one step; return True if any existed."""
        existed = yield from self.attempt(
            lambda handle: self.run(_DELETE, handle, arguments, keys, again=bool(keys))
        )
        self._follow_to(0)
        return existed == 1

    def expire(self, ttl: int) -> Op[None]:
        """Let all keys expire in `ttl` ms, in one step; later bitmaps expire with them."""
        yield from self.current()
        yield from self.make_expiring(ttl)
        yield from Stored.expire(self, ttl)

    def _follow(self, refusal: Refusal, handle: Handle) -> None:
        """Accept the cursor of a chain that has grown or was cleared."""
        self._follow_to(int(refusal.detail))

    def _follow_to(self, cursor: int) -> None:
        if not 0 <= cursor < MOST_BITMAPS:
            raise FilterMismatchError(
                f"the chain {self.name!r} has {cursor + 1} bitmaps, too many to test in one call: at most "
                f"{MOST_BITMAPS} are possible",
                advice="begin another chain with a larger capacity",
            )
        self._cursor = cursor
        self.assume()

    def _recover_full(self, refusal: Refusal, handle: Handle) -> NoReturn:
        raise FilterFullError(
            f"the chain {self.name!r} has {MOST_BITMAPS} bitmaps, and the last is half full",
            advice="begin another chain with a larger capacity",
        )

    def _recover_cursor(self, refusal: Refusal, handle: Handle) -> NoReturn:
        raise self._no_cursor(refusal)

    def _no_cursor(self, found: object) -> FilterMismatchError:
        return FilterMismatchError(
            f"{self._cursor_key.decode()!r} must hold the number of a bitmap of {self.name!r}, not {found}",
            advice="delete the key to begin with the first bitmap, or use another name",
        )

    RECOVERY = StoredBitmap.RECOVERY | {
        replies.STALE: _follow,
        replies.FULL: _recover_full,
        replies.FOREIGN: _recover_cursor,
    }


class StoredLinks(StoredBitmap):
    """Restored links of different sizes, which are read-only."""

    is_one_bitmap = False
    store = ("bitmaps", "layers")
    has_layers = True

    def __init__(self, name: str, *, layout: LinkedLayout, wait: Wait | None) -> None:
        super().__init__(name, layout=layout, ttl=0, wait=wait)
        self._links = [(key.encode(), link) for key, link in layout.links(name)]
        self.key = self._links[0][0]
        self.only_read = f"{name!r} was restored from {layout.name} and is read-only"

    @property
    def layers(self) -> list[tuple[bytes, ForeignLayout]]:
        """All links, the newest first."""
        return self._links

    def assume(self) -> Handle:
        """Remember the known bitmaps without I/O."""
        described = [description(link, 0, renews=False) for _, link in self._links]
        keys = [key for key, _ in self._links]
        return self.use(self.new_handle(_identity(len(described) - 1, None, described), self._layout, keys))
