"""Where an item's bits lie in the blocked layout, and how large such a filter is.

The filter is B blocks of 256 bits, divided into g regions.  An item picks one block in each region and
k' different bits in each block (`lua/FORMAT.md` says how its hash picks them).  A script then reads and
writes g short strings where the classic layout takes a command for each bit; the price is memory,
since some blocks get more items than others (Putze, Sanders & Singler, "Cache-, hash- and
space-efficient Bloom filters", 2007).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np
from mmh3 import hash_bytes
from numpy.typing import NDArray

from bloomredis.bits import encoding, hashing
from bloomredis.bits.batch import AT_ONCE, BatchBits, BitAddresses, byte_masks
from bloomredis.bits.encoding import Item
from bloomredis.bits.limits import BLOCK_BITS

_MULTIPLIER: Final = 0x45D9F3B
_WORDS: Final = struct.Struct("<4I")
_BLOCK: Final = struct.Struct("<I")
_PACKED: Final = 36  # bytes: a block's number, and a mask of its bits
_BITS: Final = tuple(1 << (BLOCK_BITS - 1 - position) for position in range(BLOCK_BITS))
_ALL: Final = (0, 1 << 32)
"""A region in which the number of a block is the word that picks it."""
_MASKS: Final = np.frombuffer(b"".join(bit.to_bytes(32, "big") for bit in _BITS), dtype="<u8").reshape(-1, 4)


@dataclass(frozen=True)
class Blocked:
    """`num_hashes` bits in `blocks_per_item` blocks of 256.  The fastest, for up to 1.16 times the memory."""

    num_bits: int
    num_hashes: int
    blocks_per_item: int

    name = "blocked"

    @property
    def item_bytes(self) -> int:
        """Four bytes for a block's number and 32 for the mask of its bits."""
        return _PACKED * self.blocks_per_item

    @property
    def cost(self) -> float:
        """What setting an item costs a server, in probes of the classic layout."""
        return 3.0 * self.blocks_per_item

    @cached_property
    def bits_per_block(self) -> int:
        """Bits that an item sets in each of its blocks."""
        return self.num_hashes // self.blocks_per_item

    @cached_property
    def regions(self) -> tuple[tuple[int, int], ...]:
        """Each region's first block and number of blocks."""
        return _regions(self.num_bits // BLOCK_BITS, self.blocks_per_item)

    def offsets(self, item: Item) -> list[int]:
        """Return the item's bits in probe order, none twice, each below `num_bits`."""
        return self.probes(encoding.encode(item))

    def probes(self, item: bytes) -> list[int]:
        """Return the same for an item that has been encoded."""
        return [
            block * BLOCK_BITS + position
            for block, positions in _picks(hash_bytes(item), self.regions, self.bits_per_block)
            for position in positions
        ]

    def hashed(self, items: Sequence[str | bytes]) -> BlockBits:
        """Return the bits of many, hashed at once."""
        words, positions = _all_draws(items, self.blocks_per_item, self.bits_per_block)
        blocks = np.empty((self.blocks_per_item, len(items)), dtype=np.uint32)
        for i, (first, size) in enumerate(self.regions):
            blocks[i] = words[i] * np.uint64(size) >> np.uint64(32)
            blocks[i] += np.uint32(first)
        return BlockBits(blocks, positions)

    def pack_one(self, item: bytes) -> bytes:
        """Return one item's blocks: the number as little-endian u32, then the mask."""
        return b"".join(
            [
                _BLOCK.pack(block) + sum(map(_BITS.__getitem__, positions)).to_bytes(32, "big")
                for block, positions in _picks(hash_bytes(item), self.regions, self.bits_per_block)
            ]
        )

    def pack(self, items: Sequence[str | bytes]) -> bytes:
        """Return the blocks of all items, item after item."""
        return b"".join(
            self.hashed(items[start : start + AT_ONCE]).packed() for start in range(0, len(items), AT_ONCE)
        )


@dataclass(frozen=True, slots=True)
class BlockBits(BatchBits):
    """Bits of the blocked layout: one row a block, and in it one row for each position of a bit."""

    blocks: NDArray[np.uint32]
    positions: NDArray[np.uint8]

    def take(self, items: NDArray[np.intp]) -> BlockBits:
        """Return the bits of some of the items, by their places in the batch."""
        return BlockBits(self.blocks.take(items, axis=1), self.positions.take(items, axis=2))

    def rows(self) -> Sequence[NDArray[Any]]:
        """Return the blocks and the positions."""
        return [*self.blocks, *chain(*self.positions)]

    def places(self) -> BitAddresses:
        """Return where the bits lie."""
        first = self.blocks.astype(np.intp) * (BLOCK_BITS // 8)
        at = first[:, None] + (self.positions >> np.uint8(3))
        regions, bits, items = at.shape
        rows = regions * bits, items
        return BitAddresses(at.reshape(rows), byte_masks(self.positions).reshape(rows))

    def packed(self) -> bytes:
        """Return of each item its blocks: the number as little-endian u32, then the mask."""
        regions, items = self.blocks.shape
        packed = np.empty((items, regions, _PACKED // 4), dtype="<u4")
        packed[:, :, 0] = self.blocks.T
        for i, positions in enumerate(self.positions):
            masks = _MASKS.take(positions[0], axis=0)
            for row in positions[1:]:
                masks |= _MASKS.take(row, axis=0)
            packed[:, i, 1:] = masks.view("<u4")
        return packed.tobytes()


def _picks(hashed: bytes, regions: Sequence[tuple[int, int]], bits: int) -> list[tuple[int, Sequence[int]]]:
    """Return the block that a digest picks in each region, and the different positions in it."""
    picks = []
    for i, (first, size) in enumerate(regions):
        if i:
            hashed = _WORDS.pack(*_mixed(*_WORDS.unpack(hashed)))
        block = first + (_BLOCK.unpack_from(hashed)[0] * size >> 32)
        positions: Sequence[int] = hashed[4 : 4 + bits]
        picks.append((block, positions if len(set(positions)) == bits else _moved(positions)))
    return picks


def _all_draws(
    items: Sequence[str | bytes], regions: int, bits: int
) -> tuple[list[NDArray[np.uint32]], NDArray[np.uint8]]:
    """Return of many items, hashed at once, the words that pick their blocks and the positions in them."""
    words = np.frombuffer(hashing.digests(items), dtype="<u4").reshape(-1, 4)
    picking = []
    positions = np.empty((regions, bits, len(words)), dtype=np.uint8)
    for i, drawn in enumerate(positions):
        if i:
            words = _all_mixed(words)
        picking.append(words[:, 0])
        drawn[:] = words.view(np.uint8)[:, 4 : 4 + bits].T
        _move_all(drawn)
    return picking, positions


def _regions(blocks: int, regions: int) -> tuple[tuple[int, int], ...]:
    starts = [i * blocks // regions for i in range(regions + 1)]
    return tuple((start, end - start) for start, end in pairwise(starts))


def _moved(positions: Sequence[int]) -> list[int]:
    """Return positions, each that is taken moved on to the next free one."""
    moved: list[int] = []
    for drawn in positions:
        position = drawn
        while position in moved:
            position = (position + 1) % BLOCK_BITS
        moved.append(position)
    return moved


def _move_all(positions: NDArray[np.uint8]) -> None:
    """Do so for many items, in place: one column an item."""
    later, earlier = _pairs(len(positions))
    items, columns = np.arange(positions.shape[1]), positions
    while True:
        clashes = columns.take(later, axis=0) == columns.take(earlier, axis=0)
        left = clashes.any(axis=0).nonzero()[0]
        if not left.size:
            return
        items = items[left]
        # Of an item's positions the first that is taken moves: those before it have found their places.
        positions[later[clashes[:, left].argmax(axis=0)], items] += np.uint8(1)  # 255 wraps around to 0
        columns = positions.take(items, axis=1)


@lru_cache
def _pairs(positions: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return all pairs of so many positions, the later one of each first, and in its order."""
    return np.tril_indices(positions, -1)


def _mixed(a: int, b: int, c: int, d: int) -> tuple[int, int, int, int]:
    """Return the words for the next block: each scrambled, and the first put last."""
    a = (a ^ a >> 16) * _MULTIPLIER & 0xFFFFFFFF
    b = (b ^ b >> 16) * _MULTIPLIER & 0xFFFFFFFF
    c = (c ^ c >> 16) * _MULTIPLIER & 0xFFFFFFFF
    d = (d ^ d >> 16) * _MULTIPLIER & 0xFFFFFFFF
    return b ^ b >> 16, c ^ c >> 16, d ^ d >> 16, a ^ a >> 16


def _all_mixed(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return `_mixed` of many: one row an item."""
    product = (words ^ words >> np.uint32(16)) * np.uint32(_MULTIPLIER)
    product ^= product >> np.uint32(16)
    return np.roll(product, -1, axis=1)
