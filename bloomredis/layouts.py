"""Where an item's bits lie in a filter.

A layout is the seam between hashing and the scripts: it turns items into the packed argument that
`add.lua` and `contains.lua` read.  Its parameters are what the header records.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Final, Protocol

import numpy as np
from mmh3 import hash_bytes

from bloomredis import blocked, hashing, sizing
from bloomredis.blocked import Blocked, BlockedLayers
from bloomredis.hashing import Item
from bloomredis.header import BLOCK_BITS, COUNTING, FILTER, MAX_HASHES, Header
from bloomredis.probes import AT_ONCE, Probes, Scattered


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

    def hashed(self, items: Sequence[str | bytes]) -> Probes:
        """Return the bits of many, hashed at once."""


@cache
def _packer(numbers: int) -> struct.Struct:
    return struct.Struct(f"<{numbers}I")


@dataclass(frozen=True)
class Classic:
    """Bloom's own layout: `num_hashes` bits anywhere among `num_bits`.  The least memory."""

    num_bits: int
    num_hashes: int

    name = "classic"

    @property
    def item_bytes(self) -> int:
        """Four bytes a probe."""
        return 4 * self.num_hashes

    @property
    def cost(self) -> float:
        """What setting an item costs a server, in probes."""
        return self.num_hashes

    @property
    def blocks_per_item(self) -> int:
        """None: its bits lie anywhere."""
        return 0

    def offsets(self, item: Item) -> list[int]:
        """Return the item's bits in probe order, repeats kept, each below `num_bits`."""
        return self.probes(hashing.encode(item))

    def probes(self, item: bytes) -> list[int]:
        """Return the same for an item that has been encoded."""
        return hashing.probes(hash_bytes(item), self.num_bits, self.num_hashes)

    def hashed(self, items: Sequence[str | bytes]) -> Scattered:
        """Return the bits of many, hashed at once."""
        return Scattered(hashing.probe_rows(hashing.digests(items), self.num_bits, self.num_hashes))

    def pack_one(self, item: bytes) -> bytes:
        """Return one item's offsets as little-endian u32."""
        return _packer(self.num_hashes).pack(
            *hashing.probes(hash_bytes(item), self.num_bits, self.num_hashes)
        )

    def pack(self, items: Sequence[str | bytes]) -> bytes:
        """Return the offsets of all items as little-endian u32, item after item."""
        return b"".join(
            self.hashed(items[start : start + AT_ONCE]).packed() for start in range(0, len(items), AT_ONCE)
        )


@dataclass(frozen=True)
class Stacked:
    """The layouts of several layers, the newest first: an item is packed for one after the other."""

    layers: tuple[Classic | Blocked, ...]

    @cached_property
    def item_bytes(self) -> int:
        """Length of one item's packed bytes."""
        return sum(layer.item_bytes for layer in self.layers)

    @cached_property
    def cost(self) -> float:
        """What setting an item costs a server, in probes: testing a layer costs what setting one does."""
        return sum(layer.cost for layer in self.layers)

    @cached_property
    def _in_blocks(self) -> BlockedLayers | None:
        """The layers, if all are in blocks."""
        blocks = [layer for layer in self.layers if isinstance(layer, Blocked)]
        return BlockedLayers(blocks) if len(blocks) == len(self.layers) else None

    def pack_one(self, item: bytes) -> bytes:
        """Return what the scripts are sent for one item."""
        if self._in_blocks:
            return self._in_blocks.pack_one(item)
        return b"".join([layer.pack_one(item) for layer in self.layers])

    def pack(self, items: Sequence[str | bytes]) -> bytes:
        """Return what the scripts are sent for many items, item after item."""
        return b"".join(
            self._packed(items[start : start + _PACKED_TOGETHER])
            for start in range(0, len(items), _PACKED_TOGETHER)
        )

    def _packed(self, items: Sequence[str | bytes]) -> bytes:
        if self._in_blocks:
            return self._in_blocks.pack(items)
        columns = [
            np.frombuffer(layer.pack(items), dtype=np.uint8).reshape(len(items), layer.item_bytes)
            for layer in self.layers
        ]
        return np.concatenate(columns, axis=1).tobytes()


_PACKED_TOGETHER: Final = 1024
"""Items that are packed at once for several layers, half a kilobyte each and more."""


class Counting(Classic):
    """The same with a counter in the place of each bit."""

    @property
    def cost(self) -> float:
        """What raising an item's counters costs a server, in probes."""
        return _COUNTER_COST * self.num_hashes


_COUNTER_COST: Final = 2.0  # BITFIELD against SETBIT, on every server measured (1.3 to 2.1)

NAMES: Final = (Classic.name, Blocked.name)
DEFAULT: Final = Blocked.name


def plan(name: str, capacity: int, error_rate: float) -> Classic | Blocked:
    """Return the layout of a new filter; `ValueError` if one key cannot hold it."""
    check_name(name)
    if name == Blocked.name:
        return blocked.plan(capacity, error_rate)
    bits = sizing.num_bits(capacity, error_rate)
    return Classic(num_bits=bits, num_hashes=sizing.num_hashes(bits, capacity))


def new_header(name: str, capacity: int, error_rate: float, kind: int = FILTER) -> Header:
    """Return the header of a new filter without its generation; `ValueError` if one key cannot hold it."""
    planned = plan_counting(capacity, error_rate) if kind == COUNTING else plan(name, capacity, error_rate)
    if planned.num_hashes > MAX_HASHES:
        raise ValueError(
            f"error_rate {error_rate} needs {planned.num_hashes} hashes an item; "
            f"at most {MAX_HASHES} are possible: allow a higher error_rate"
        )
    return Header(
        layout=planned.name,
        num_hashes=planned.num_hashes,
        num_bits=planned.num_bits,
        capacity=capacity,
        error_rate=error_rate,
        generation=bytes(8),
        blocks_per_item=planned.blocks_per_item,
        kind=kind,
    )


def plan_counting(capacity: int, error_rate: float) -> Counting:
    """Return the layout of a new filter that counts; `ValueError` if one key cannot hold it."""
    counters = sizing.num_counters(capacity, error_rate)
    return Counting(num_bits=counters, num_hashes=sizing.num_hashes(counters, capacity))


def stored(header: Header) -> Classic | Blocked:
    """Return the layout that a stored filter was made with."""
    check_name(header.layout)
    if header.kind == COUNTING:
        return Counting(num_bits=header.num_bits, num_hashes=header.num_hashes)
    if header.layout == Blocked.name:
        return Blocked(header.num_bits, header.num_hashes, header.blocks_per_item)
    return Classic(num_bits=header.num_bits, num_hashes=header.num_hashes)


def expected_error_rate(head: Header, items: int) -> float:
    """Return the false-positive rate to expect of a filter when so many items are in."""
    if head.blocks_per_item:
        blocks, bits = head.num_bits // BLOCK_BITS, head.num_hashes // head.blocks_per_item
        return blocked.expected_error_rate(items, blocks, head.blocks_per_item, bits)
    return sizing.expected_error_rate(
        sizing.expected_fill_ratio(items, head.num_bits, head.num_hashes), head.num_hashes
    )


def check_name(name: str) -> None:
    """Raise `ValueError` for a name that is no layout."""
    if name not in NAMES:
        raise ValueError(f"layout must be None, {' or '.join(map(repr, NAMES))}, not {name!r}")
