"""A copy of a filter's bits in this process: what is in it can be told without the server.

Bits are only ever set, so a copy that says "there" is right as long as the filter's generation stands,
however old the copy is; one that says "not there" may be behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bloomredis import info
from bloomredis.arguments import listed
from bloomredis.hashing import Encoder, Item
from bloomredis.info import FilterInfo
from bloomredis.layouts import Layout
from bloomredis.probes import AT_ONCE
from bloomredis.stored import Description

_MASKS: Final = tuple(0x80 >> bit for bit in range(8))
PIECE_BYTES: Final = 128 << 10
"""What is read of a filter in one script: some 0.1 ms."""


class Bits:
    """The bits of a filter, without its header, tested as `layout` says."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.bytes = bytearray((layout.num_bits + 7) // 8)
        self.array = np.frombuffer(self.bytes, dtype=np.uint8)

    def __getstate__(self) -> tuple[Layout, bytearray]:
        return self.layout, self.bytes

    def __setstate__(self, state: tuple[Layout, bytearray]) -> None:
        self.layout, self.bytes = state
        self.array = np.frombuffer(self.bytes, dtype=np.uint8)

    def unite(self, first: int, piece: bytes) -> None:
        """Or a piece of the filter into this copy, from byte `first` on."""
        self.array[first : first + len(piece)] |= np.frombuffer(piece, dtype=np.uint8)

    def has(self, encoded: bytes) -> bool:
        """Return whether all bits of an item are set."""
        data = self.bytes
        for offset in self.layout.probes(encoded):  # noqa: SIM110 - half as long as all() of a generator
            if not data[offset >> 3] & _MASKS[offset & 7]:
                return False
        return True

    def has_many(self, encoded: Sequence[str | bytes]) -> NDArray[np.bool_]:
        """Return of each item whether all its bits are set."""
        there = np.ones(len(encoded), dtype=np.bool_)
        for start in range(0, len(encoded), AT_ONCE):
            places = self.layout.hashed(encoded[start : start + AT_ONCE]).places()
            there[start + places.missing(self.array)] = False
        return there

    def add(self, encoded: bytes) -> None:
        """Set the bits of an item that is in the filter."""
        for offset in self.layout.probes(encoded):
            self.bytes[offset >> 3] |= _MASKS[offset & 7]

    def add_many(self, encoded: Sequence[str | bytes]) -> None:
        """Set the bits of items that are in the filter."""
        self.layout.hashed(encoded).places().set(self.array)

    def ones(self) -> int:
        """Return how many bits are set."""
        return int.from_bytes(self.bytes, "big").bit_count()


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
