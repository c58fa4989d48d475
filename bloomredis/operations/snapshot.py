"""A copy of a filter's bits in this process, which answers without the server.

Bits are only ever set, so a True is right as long as the filter's generation stands, however old the copy
is; a False may be out of date.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, Generic

from bloomredis.arguments import listed
from bloomredis.bits.bitmap import Bits
from bloomredis.bits.encoding import Encoder
from bloomredis.operations import info
from bloomredis.operations.info import FilterInfo
from bloomredis.operations.options import I
from bloomredis.protocol import scripts
from bloomredis.protocol.steps import Op
from bloomredis.stored.base import Stored
from bloomredis.stored.handle import Description, LayoutChanged

READ: Final = scripts.load("read")
PIECE_BYTES: Final = 128 << 10
"""Bytes of a filter that one script reads: some 0.1 ms."""


class LocalFilter(Generic[I]):
    """A read-only copy of a filter, as it was when `snapshot()` read it.

    It takes as much memory as the filter's bits and never asks the server.  A True was right while the
    filter stood; a False may be out of date.
    """

    def __init__(self, name: str, found: Description, bits: Bits, encoder: Encoder) -> None:
        self.name = name
        self._found = found
        self._bits = bits
        self._encoder: Any = encoder  # of the items that the filter has

    @property
    def bits(self) -> bytes:
        """The filter's bits as the server had them, without the header."""
        return bytes(self._bits.bytes)

    def contains(self, item: I) -> bool:
        """Return whether an item was in the filter."""
        return self._bits.has(self._encoder.encode(item))

    def __contains__(self, item: I) -> bool:
        return self.contains(item)

    def contains_many(self, items: Iterable[I]) -> list[bool]:
        """Return for each item, in order, whether it was in the filter."""
        answers: list[bool] = self._bits.has_many(self._encoder.encode_all(listed(items))).tolist()
        return answers

    def info(self) -> FilterInfo:
        """Return the filter's parameters and how full it was when it was read."""
        return info.describe(self.name, self._found, self._bits.ones())

    def __repr__(self) -> str:
        return f"<LocalFilter of {self.name!r}: {self._found.size_bytes} bytes>"


def snapshot(stored: Stored, encoder: Encoder) -> Op[LocalFilter[Any]]:
    """Copy a filter into this process.

    Reading costs the server some 1 ms a megabyte, in pieces of 0.1 ms; items added meanwhile may be in.
    """
    if not stored.is_one_bitmap:
        raise TypeError(
            f"{stored.name!r} is several bitmaps, or none that can be read, so there is no copy of it"
        )
    while True:
        (found,) = yield from stored.current()
        handle = yield from stored.acquire()
        bits = Bits(handle.bitmap)
        with suppress(LayoutChanged):
            for first in range(0, len(bits.bytes), PIECE_BYTES):
                bits.unite(first, (yield from stored.run(READ, handle, (first, PIECE_BYTES), reads=True)))
            return LocalFilter(stored.name, found, bits, encoder)
