"""A copy of a filter's bits in this process: what is in it can be told without the server.

Bits are only ever set, so a copy that says "there" is right as long as the filter's generation stands,
however old the copy is; one that says "not there" may be behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bloomredis.arguments import listed
from bloomredis.bits.bitmap import Bits
from bloomredis.bits.encoding import Encoder, Item
from bloomredis.operations import info
from bloomredis.operations.info import FilterInfo
from bloomredis.stored.base import Description

PIECE_BYTES: Final = 128 << 10
"""What is read of a filter in one script: some 0.1 ms."""


class LocalFilter:
    """A read-only copy of a filter, as it was when `snapshot()` read it.

    It takes as much memory as the filter's bits and never asks the server.  A True was right while the
    filter stood; a False may have been overtaken by what others added since.
    """

    def __init__(self, name: str, found: Description, bits: Bits, encoder: Encoder) -> None:
        self.name = name
        self._found = found
        self._bits = bits
        self._encoder = encoder

    @property
    def bits(self) -> bytes:
        """The filter's bits as the server had them, without the header."""
        return bytes(self._bits.bytes)

    def contains(self, item: Item) -> bool:
        """Return whether an item was in the filter."""
        return self._bits.has(self._encoder.encode(item))

    def __contains__(self, item: Item) -> bool:
        return self.contains(item)

    def contains_many(self, items: Iterable[Item]) -> list[bool]:
        """Say of each of the items, in order, whether it was in the filter."""
        answers: list[bool] = self._bits.has_many(self._encoder.encode_all(listed(items))).tolist()
        return answers

    def info(self) -> FilterInfo:
        """Return what the filter was when it was read, and how full."""
        return info.describe(self.name, self._found, self._bits.ones())

    def __repr__(self) -> str:
        return f"<LocalFilter of {self.name!r}: {self._found.size_bytes} bytes>"
