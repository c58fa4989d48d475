"""The blocked layout: the bits of an item lie in a few blocks of 256 or 128 bits.

The filter has B blocks of b bits, divided into g regions.  An item has one block in each region and k'
distinct bits in each block (`block_hashing`).  So a script reads and writes g short strings, while the
classic layout takes a command for each bit.  The cost is memory, since some blocks get more items than others
(Putze, Sanders & Singler, "Cache-, hash- and space-efficient Bloom filters", 2007).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mmh3 import hash_bytes

from bloomredis.bits import block_hashing, encoding
from bloomredis.bits.arrays import NDArray, np
from bloomredis.bits.batch import BlockBits
from bloomredis.bits.block_hashing import (
    BLOCK_NUMBER,
    ENTRIES,
    NUMBER_BYTES,
    bit_values,
    mask_of,
    masks,
    moved_mask,
    packed,
    picks,
)
from bloomredis.bits.encoding import Item
from bloomredis.bits.hashing import HASHED_AT_ONCE, Digests
from bloomredis.bits.limits import BLOCK_BITS
from bloomredis.derived import derived

FEWEST_OF_NUMPY: Final = 14
"""The smallest batch that numpy packs faster than a loop, because of the overhead of numpy's calls."""


@dataclass(frozen=True)
class Blocked:
    """`num_hashes` bits in `blocks_per_item` blocks: fastest, for up to 1.16 times the memory."""

    num_bits: int
    num_hashes: int
    blocks_per_item: int
    block_bits: int = BLOCK_BITS

    name = "blocked"

    def __reduce__(self) -> tuple[Any, ...]:  # without the derived properties
        return Blocked, (self.num_bits, self.num_hashes, self.blocks_per_item, self.block_bits)

    @derived
    def item_bytes(self) -> int:
        """The length of one item's packed bytes: the number and mask of each of its blocks."""
        return (NUMBER_BYTES + self.block_bytes) * self.blocks_per_item

    @derived
    def block_bytes(self) -> int:
        """The size of a block in bytes."""
        return self.block_bits // 8

    @property
    def cost(self) -> float:
        """The server time of setting an item, in probes of the classic layout."""
        return 3.0 * self.blocks_per_item

    @derived
    def bits_per_block(self) -> int:
        """The number of bits that an item sets in each of its blocks."""
        return self.num_hashes // self.blocks_per_item

    @derived
    def num_blocks(self) -> int:
        """The number of blocks of the whole filter."""
        return self.num_bits // self.block_bits

    @derived
    def regions(self) -> tuple[tuple[int, int], ...]:
        """Each region's first block and number of blocks."""
        return block_hashing.regions_of(self.num_blocks, self.blocks_per_item)

    def offsets(self, item: Item) -> list[int]:
        """Return the offsets of the item's bits in probe order, all distinct, each below `num_bits`."""
        return self.probes(encoding.encode(item))

    def probes(self, item: bytes) -> list[int]:
        """Return the offsets of an encoded item."""
        return [
            block * self.block_bits + position
            for block, positions in picks(
                hash_bytes(item), self.regions, self.bits_per_block, self.block_bits
            )
            for position in positions
        ]

    def masks(self, item: bytes) -> list[tuple[int, int]]:
        """Return the number of each of an encoded item's blocks, with the mask of the item's bits in it."""
        digest = hash_bytes(item)
        several, _, end, num_blocks, _, _ = self._of_one
        if several:
            return masks(digest, self.regions, self.bits_per_block, self.block_bits)
        block = BLOCK_NUMBER.unpack_from(digest)[0] * num_blocks >> 32
        return [(block, mask_of(digest[4:end], self.block_bits))]

    def hashed(self, items: Sequence[str | bytes]) -> BlockBits:
        """Return the bits of a batch of encoded items."""
        words, positions, _ = block_hashing.picks_of_batch(
            items, self.blocks_per_item, self.bits_per_block, self.block_bits
        )
        blocks = np.empty((self.blocks_per_item, len(items)), dtype=np.uint32)
        for i, (first, size) in enumerate(self.regions):
            blocks[i] = block_hashing.blocks_of(words[i], first, size)
        return BlockBits(blocks, positions, self.block_bits)

    def pack_one(self, item: bytes) -> bytes:
        """Return one encoded item's blocks: each its number as little-endian u32, then the mask."""
        digest, mask = hash_bytes(item), 0
        several, values, end, num_blocks, size, pack = self._of_one
        if several:
            found = masks(digest, self.regions, self.bits_per_block, self.block_bits)
            return b"".join([pack(block, mask.to_bytes(size)) for block, mask in found])
        # The same for one block, the usual case, written out because every add and test runs it.
        for drawn in digest[4:end]:
            mask |= values[drawn]
        if mask.bit_count() != end - 4:
            mask = moved_mask(digest[4:end], self.block_bits)
        return pack(BLOCK_NUMBER.unpack_from(digest)[0] * num_blocks >> 32, mask.to_bytes(size))

    @derived
    def _of_one(self) -> tuple[bool, Sequence[int], int, int, int, Callable[[int, bytes], bytes]]:
        """The values that `pack_one` and `masks` need, in one attribute since each lookup takes time."""
        values, pack = bit_values(self.block_bits), ENTRIES[self.block_bits].pack
        several, end = self.blocks_per_item > 1, 4 + self.bits_per_block
        return several, values, end, self.num_blocks, self.block_bytes, pack

    def numbers_in(self, packed: bytes) -> bytes:
        """Return the numbers of packed blocks, as little-endian u32."""
        return self._entries(packed)[:, 0].tobytes()

    def present_in(self, packed: bytes, blocks: bytes) -> list[bool] | None:
        """Return whether all bits of packed items are set in their blocks; None if blocks are missing."""
        masks = self._entries(packed)[:, 1:]
        if len(blocks) != masks.size * 4:
            return None
        stored = np.frombuffer(blocks, dtype="<u4").reshape(masks.shape)
        missing = (~stored & masks).reshape(len(masks) // self.blocks_per_item, -1)
        answers: list[bool] = (missing.max(axis=1) == 0).tolist()
        return answers

    def _entries(self, packed: bytes) -> NDArray[np.uint32]:
        """Return a row for each packed block: its number, and the words of its mask."""
        return np.frombuffer(packed, dtype="<u4").reshape(-1, (NUMBER_BYTES + self.block_bytes) // 4)

    def pack(self, items: Sequence[str | bytes]) -> bytes:
        """Return the blocks of encoded items, item after item."""
        if len(items) < FEWEST_OF_NUMPY and not isinstance(items, Digests):
            one = self.pack_one
            return b"".join([one(item.encode() if isinstance(item, str) else item) for item in items])
        sizes = self.regions, self.bits_per_block, self.block_bits
        starts = range(0, len(items), HASHED_AT_ONCE)
        return b"".join([packed(items[start : start + HASHED_AT_ONCE], *sizes) for start in starts])
