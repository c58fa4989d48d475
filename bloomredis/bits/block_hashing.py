"""The blocks of an item and its bits in them, computed from its 128-bit hash (`lua/FORMAT.md`).

A region's block is the first of the digest's four words scaled to the size of the region, and the bits in
the block are the bytes after it.  The next region takes the words scrambled and rotated.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bloomredis.bits import hashing
from bloomredis.bits.limits import BLOCK_BITS

BLOCK_NUMBER: Final = struct.Struct("<I")
"""A block's number as the scripts take it."""
ENTRY_BYTES: Final = 36
"""Size of a packed block: its number, and the mask of an item's bits in it."""
ALL_WORDS: Final = (0, 1 << 32)
"""A region in which a block's number is the word that it is scaled from."""
BIT_VALUES: Final = tuple(1 << (BLOCK_BITS - 1 - position) for position in range(BLOCK_BITS))
"""The mask of each bit of a block, as an int."""
MASKS: Final = np.frombuffer(b"".join(bit.to_bytes(32, "big") for bit in BIT_VALUES), "<u8").reshape(-1, 4)
"""The mask of each bit of a block, as four words a row."""

_MULTIPLIER: Final = 0x45D9F3B
_WORDS: Final = struct.Struct("<4I")


def regions_of(blocks: int, regions: int) -> tuple[tuple[int, int], ...]:
    """Return the first block and the number of blocks of each region."""
    starts = [i * blocks // regions for i in range(regions + 1)]
    return tuple((start, end - start) for start, end in pairwise(starts))


def picks(digest: bytes, regions: Sequence[tuple[int, int]], bits: int) -> list[tuple[int, Sequence[int]]]:
    """Return for each region the block of a digest and the distinct positions of its bits there."""
    picked = []
    for i, (first, size) in enumerate(regions):
        if i:
            digest = _WORDS.pack(*_mixed(*_WORDS.unpack(digest)))
        block = first + (BLOCK_NUMBER.unpack_from(digest)[0] * size >> 32)
        positions: Sequence[int] = digest[4 : 4 + bits]
        picked.append((block, positions if len(set(positions)) == bits else _moved(positions)))
    return picked


def masks(digest: bytes, regions: Sequence[tuple[int, int]], bits: int) -> list[tuple[int, int]]:
    """Return for each region the block of a digest and the mask of its bits there, as an int."""
    found: list[tuple[int, int]] = []
    for first, size in regions:
        if found:
            digest = _WORDS.pack(*_mixed(*_WORDS.unpack(digest)))
        mask = 0
        for position in digest[4 : 4 + bits]:
            mask |= BIT_VALUES[position]
        if mask.bit_count() != bits:
            mask = sum(map(BIT_VALUES.__getitem__, _moved(digest[4 : 4 + bits])))
        found.append((first + (BLOCK_NUMBER.unpack_from(digest)[0] * size >> 32), mask))
    return found


def picks_of_batch(
    items: Sequence[str | bytes], regions: int, bits: int
) -> tuple[list[NDArray[np.uint32]], NDArray[np.uint8]]:
    """Hash a batch; return for each region the words that blocks are scaled from, and the positions."""
    words = np.frombuffer(hashing.digests(items), dtype="<u4").reshape(-1, 4)
    block_words = []
    positions = np.empty((regions, bits, len(words)), dtype=np.uint8)
    for i, drawn in enumerate(positions):
        if i:
            words = _mixed_batch(words)
        block_words.append(words[:, 0])
        drawn[:] = words.view(np.uint8)[:, 4 : 4 + bits].T
        _move_batch(drawn)
    return block_words, positions


def _moved(positions: Sequence[int]) -> list[int]:
    """Return distinct positions: one that is taken already moves on to the next free one."""
    moved: list[int] = []
    for drawn in positions:
        position = drawn
        while position in moved:
            position = (position + 1) % BLOCK_BITS
        moved.append(position)
    return moved


def _move_batch(positions: NDArray[np.uint8]) -> None:
    """Make the positions of each item distinct as `_moved` does, in place: one column an item."""
    later, earlier = _pairs(len(positions))
    items, columns = np.arange(positions.shape[1]), positions
    while True:
        clashes = columns.take(later, axis=0) == columns.take(earlier, axis=0)
        left = clashes.any(axis=0).nonzero()[0]
        if not left.size:
            return
        items = items[left]
        # An item's first position that clashes moves: those before it are final.
        positions[later[clashes[:, left].argmax(axis=0)], items] += np.uint8(1)  # 255 wraps around to 0
        columns = positions.take(items, axis=1)


@lru_cache
def _pairs(positions: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the later and the earlier of each pair of so many positions, ordered by the later one."""
    return np.tril_indices(positions, -1)


def _mixed(a: int, b: int, c: int, d: int) -> tuple[int, int, int, int]:
    """Return the words for the next region: each scrambled, and the first put last."""
    a = (a ^ a >> 16) * _MULTIPLIER & 0xFFFFFFFF
    b = (b ^ b >> 16) * _MULTIPLIER & 0xFFFFFFFF
    c = (c ^ c >> 16) * _MULTIPLIER & 0xFFFFFFFF
    d = (d ^ d >> 16) * _MULTIPLIER & 0xFFFFFFFF
    return b ^ b >> 16, c ^ c >> 16, d ^ d >> 16, a ^ a >> 16


def _mixed_batch(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the words of `_mixed` for many digests: one row a digest."""
    product = (words ^ words >> np.uint32(16)) * np.uint32(_MULTIPLIER)
    product ^= product >> np.uint32(16)
    return np.roll(product, -1, axis=1)
