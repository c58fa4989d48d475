"""The seam between hashing and the scripts: what every layout of bits can do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bloomredis.bits.batch import BatchBits
from bloomredis.bits.encoding import Item


class Packing(Protocol):
    """What the scripts' calls need to know about a layout."""

    @property
    def item_bytes(self) -> int:
        """Length of one item's packed bytes."""

    @property
    def cost(self) -> float:
        """What setting an item costs a server, in probes."""

    def pack_one(self, item: bytes) -> bytes:
        """Return what the scripts are sent for one item, by the way that is fastest for one."""

    def pack(self, items: Sequence[str | bytes]) -> bytes:
        """Return what the scripts are sent for many items, by the way that is fastest for many."""


class Layout(Packing, Protocol):
    """What the operations need to know besides about the layout of a single bitmap."""

    @property
    def name(self) -> str:
        """The name that the header and `FilterInfo` give."""

    @property
    def num_bits(self) -> int:
        """Size of the filter in bits."""

    @property
    def num_hashes(self) -> int:
        """Bits that one item sets."""

    def offsets(self, item: Item) -> list[int]:
        """Return the item's bits in probe order, repeats kept, each below `num_bits`."""

    def probes(self, item: bytes) -> list[int]:
        """Return the same for an item that has been encoded."""

    def hashed(self, items: Sequence[str | bytes]) -> BatchBits:
        """Return the bits of many, hashed at once."""
