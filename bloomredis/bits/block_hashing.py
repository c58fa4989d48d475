"""The blocks of an item and its bits in each block, computed from its 128-bit hash (`lua/FORMAT.md`).

The first of the digest's four words, scaled to the size of the region, gives the block.  Each byte after that
word gives a bit in the block.  For the next region, the words are scrambled and rotated.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import Final

from bloomredis.bits import hashing
from bloomredis.bits.arrays import NDArray, np
from bloomredis.bits.hashing import Picks
from bloomredis.bits.limits import BLOCK_BITS, SMALL_BLOCK_BITS

BLOCK_NUMBER: Final = struct.Struct("<I")
"""The encoding of a block's number for the scripts."""
NUMBER_BYTES: Final = 4
"""The size of a block's number, which precedes the mask of an item's bits in a packed block."""
ALL_WORDS: Final = (0, 1 << 32)
"""The first block and size of a region in which a block's number equals the digest's first word."""
_SIZES: Final = (BLOCK_BITS, SMALL_BLOCK_BITS)
ENTRIES: Final = {bits: struct.Struct(f"<I{bits // 8}s") for bits in _SIZES}
"""For each block size, the format of a packed block: its number, and the mask of an item's bits."""
_POSITIONS: Final = {bits: bytes(drawn % bits for drawn in range(256)) for bits in _SIZES}

MOST_MOVED_SINGLY: Final = 24
"""The most items with clashing positions for which a loop is faster than numpy."""

_MULTIPLIER: Final = 0x45D9F3B
_WORDS: Final = struct.Struct("<4I")


@cache
def bit_values(block_bits: int) -> tuple[int, ...]:
    """Return the mask of the bit that each value of a byte gives, as an int; the first bit is the highest.

    An entry takes half the time of a shift that makes it anew.
    """
    return tuple(1 << (~drawn & block_bits - 1) for drawn in range(256))


@cache
def mask_rows(block_bits: int) -> NDArray[np.uint64]:
    """Return, as a row of words, the mask of the bit that each value of a byte gives (`bit_values`)."""
    masks = b"".join(value.to_bytes(block_bits // 8) for value in bit_values(block_bits))
    return np.frombuffer(masks, "<u8").reshape(256, -1)


def regions_of(blocks: int, regions: int) -> tuple[tuple[int, int], ...]:
    """Return the first block and the number of blocks of each region."""
    starts = [i * blocks // regions for i in range(regions + 1)]
    return tuple((start, end - start) for start, end in pairwise(starts))


def picks(
    digest: bytes, regions: Sequence[tuple[int, int]], bits: int, block_bits: int
) -> list[tuple[int, Sequence[int]]]:
    """Return, for each region, the block of a digest and the distinct positions of its bits in the block."""
    picked = []
    for i, (first, size) in enumerate(regions):
        if i:
            digest = _WORDS.pack(*_mixed(*_WORDS.unpack(digest)))
        block = first + (BLOCK_NUMBER.unpack_from(digest)[0] * size >> 32)
        positions: Sequence[int] = digest[4 : 4 + bits].translate(_POSITIONS[block_bits])
        picked.append((block, positions if len(set(positions)) == bits else _moved(positions, block_bits)))
    return picked


def masks(
    digest: bytes, regions: Sequence[tuple[int, int]], bits: int, block_bits: int
) -> list[tuple[int, int]]:
    """Return, for each region, the block of a digest and the mask of its bits in the block, as an int."""
    found = list[tuple[int, int]]()
    for first, size in regions:
        if found:
            digest = _WORDS.pack(*_mixed(*_WORDS.unpack(digest)))
        block = first + (BLOCK_NUMBER.unpack_from(digest)[0] * size >> 32)
        found.append((block, mask_of(digest[4 : 4 + bits], block_bits)))
    return found


def mask_of(drawn: Sequence[int], block_bits: int) -> int:
    """Return the mask of the distinct bits that bytes give, as an int (`moved_mask`)."""
    values, mask = bit_values(block_bits), 0
    for each in drawn:
        mask |= values[each]
    return mask if mask.bit_count() == len(drawn) else moved_mask(drawn, block_bits)


def moved_mask(drawn: Sequence[int], block_bits: int) -> int:
    """Return the mask of the bits that bytes give; a bit that is already set moves to the next unset bit."""
    values, mask = bit_values(block_bits), 0
    for each in drawn:
        bit = values[each]
        while mask & bit:
            bit = bit >> 1 or values[0]
        mask |= bit
    return mask


def packed(
    items: Sequence[str | bytes], regions: Sequence[tuple[int, int]], bits: int, block_bits: int
) -> bytes:
    """Hash a batch; return the blocks of each item: the number as little-endian u32, then the mask."""
    words = words_of(items)
    entries = np.empty((len(words), len(regions), 1 + block_bits // 32), dtype="<u4")
    for i, (first, size) in enumerate(regions):
        if i:
            words = next_words(words)
        entries[:, i, 0] = blocks_of(words[:, 0], first, size)
        entries[:, i, 1:] = masks_of_batch(words, bits, block_bits).view("<u4")
    return entries.tobytes()


def words_of(items: Sequence[str | bytes]) -> NDArray[np.uint32]:
    """Hash a batch; return the words that give the blocks and bits of the first region, one row an item."""
    return np.frombuffer(hashing.digests(items), dtype="<u4").reshape(-1, 4)


def blocks_of(words: NDArray[np.uint32], first: int, size: int) -> NDArray[np.uint64]:
    """Return the block that each word gives in a region with this first block and size."""
    # Before numpy 2 the product of an array of u32 and one u64 has 32 bits.
    blocks: NDArray[np.uint64] = words.astype(np.uint64) * np.uint64(size) >> np.uint64(32)
    blocks += np.uint64(first)
    return blocks


def masks_at(positions: NDArray[np.uint8], block_bits: int) -> NDArray[np.uint64]:
    """Return the mask of each column of positions, or of bytes that give them, as a row of words."""
    found: NDArray[np.uint64] = np.bitwise_or.reduce(mask_rows(block_bits).take(positions, axis=0), axis=0)
    return found


def masks_of_batch(words: NDArray[np.uint32], bits: int, block_bits: int) -> NDArray[np.uint64]:
    """Return, for each row of a region's words, the mask of an item's bits in its block, as words."""
    drawn = words.view(np.uint8)[:, 4 : 4 + bits]
    found = masks_at(drawn.T, block_bits)
    clashing = (_bit_counts(found).dot(np.ones(found.shape[1], np.uint8)) != bits).nonzero()[0]
    if clashing.size <= MOST_MOVED_SINGLY:
        together = drawn[clashing].tobytes()
        each = [together[start : start + bits] for start in range(0, len(together), bits)]
        moved = [moved_mask(one, block_bits).to_bytes(block_bits // 8, "big") for one in each]
        found[clashing] = np.frombuffer(b"".join(moved), "<u8").reshape(-1, found.shape[1])
    else:
        positions = drawn[clashing].T & np.uint8(block_bits - 1)
        _move_batch(positions, block_bits)
        found[clashing] = masks_at(positions, block_bits)
    return found


def _bit_counts(words: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """Return the number of set bits in each word."""
    counts: NDArray[np.uint8]
    if hasattr(np, "bitwise_count"):
        counts = np.bitwise_count(words)
    else:  # before numpy 2
        counts = np.unpackbits(words[..., np.newaxis].view(np.uint8), axis=-1).sum(axis=-1, dtype=np.uint8)
    return counts


def picks_of_batch(items: Sequence[str | bytes], regions: int, bits: int, block_bits: int) -> Picks:
    """Hash a batch, unless it is `Digests` whose picks are known."""
    own = items if isinstance(items, hashing.Digests) else None
    known = own.picks if own else None
    if known and known.block_bits == block_bits:
        available, widest = known.positions.shape[:2]
        if available >= regions and widest >= bits:
            return known.first(regions, bits)
    words = words_of(items)
    block_words = []
    positions = np.empty((regions, bits, len(words)), dtype=np.uint8)
    for i in range(regions):
        if i:
            words = next_words(words)
        block_words.append(words[:, 0])
        positions[i] = words.view(np.uint8)[:, 4 : 4 + bits].T & np.uint8(block_bits - 1)
        _move_batch(positions[i], block_bits)
    found = Picks(block_words, positions, block_bits)
    if own is not None:
        own.picks = found
    return found


def _moved(positions: Sequence[int], block_bits: int) -> list[int]:
    """Return distinct positions: a repeated position moves to the next free one."""
    moved: list[int] = []
    for drawn in positions:
        position = drawn
        while position in moved:
            position = (position + 1) % block_bits
        moved.append(position)
    return moved


def _move_batch(positions: NDArray[np.uint8], block_bits: int) -> None:
    """Make the positions of each item distinct in place, as `_moved` does; each column is an item."""
    later, earlier = _pairs(len(positions))
    items, columns = np.arange(positions.shape[1]), positions
    while True:
        clashes = columns.take(later, axis=0) == columns.take(earlier, axis=0)
        left = clashes.any(axis=0).nonzero()[0]
        if not left.size:
            return
        items = items[left]
        # Move only the first clashing position of each item: the positions before it are final.
        moving = later[clashes[:, left].argmax(axis=0)], items
        positions[moving] = (positions[moving] + np.uint8(1)) & np.uint8(block_bits - 1)
        columns = positions.take(items, axis=1)


@lru_cache
def _pairs(positions: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the later and the earlier index of each pair of positions, ordered by the later one."""
    return np.tril_indices(positions, -1)


def _mixed(a: int, b: int, c: int, d: int) -> tuple[int, int, int, int]:
    """Return the words for the next region: scrambled, and rotated so that the first is last."""
    a = (a ^ a >> 16) * _MULTIPLIER & 0xFFFFFFFF
    b = (b ^ b >> 16) * _MULTIPLIER & 0xFFFFFFFF
    c = (c ^ c >> 16) * _MULTIPLIER & 0xFFFFFFFF
    d = (d ^ d >> 16) * _MULTIPLIER & 0xFFFFFFFF
    return b ^ b >> 16, c ^ c >> 16, d ^ d >> 16, a ^ a >> 16


def next_words(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the words of many items for the next region, as `_mixed` does, one row an item."""
    product = (words ^ words >> np.uint32(16)) * np.uint32(_MULTIPLIER)
    product ^= product >> np.uint32(16)
    return np.roll(product, -1, axis=1)
