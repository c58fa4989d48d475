"""The interface of layouts, between hashing and the scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bloomredis.bits.batch import BatchBits
from bloomredis.bits.encoding import Item


class Packing(Protocol):
    """Packing of items for script calls."""

    @property
    def item_bytes(self) -> int:
        """The length of one item's packed bytes; 0 if items differ in length."""

    @property
    def cost(self) -> float:
        """The server time of setting an item, in probes of the classic layout."""

    def pack_one(self, item: bytes) -> bytes:
        """Return one encoded item packed for the scripts; the fastest way for one item."""

    def pack(self, items: Sequence[str | bytes]) -> bytes:
        """Return encoded items packed for the scripts, item after item; the fastest way for many items."""


class Layout(Packing, Protocol):
    """The layout of a single bitmap: its size, and the bits of each item."""

    @property
    def name(self) -> str:
        """The layout's name in the header and in `FilterInfo`."""

    @property
    def num_bits(self) -> int:
        """The size of the filter in bits."""

    @property
    def num_hashes(self) -> int:
        """The number of bits that one item sets."""

    def offsets(self, item: Item) -> list[int]:
        """Return the offsets of the item's bits in probe order, with repeats, each below `num_bits`."""

    def probes(self, item: bytes, /) -> list[int]:
        """Return the offsets of an encoded item."""

    def hashed(self, items: Sequence[str | bytes]) -> BatchBits:
        """Return the bits of a batch of encoded items."""
