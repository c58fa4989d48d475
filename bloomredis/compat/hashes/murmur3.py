"""MurmurHash3 of many items, each with a byte 0, 1, 2, ... appended.

The hashes of one item share all whole 16-byte blocks.  They differ only in the block with the appended byte,
and there in one of its two 64-bit lanes.  So a batch costs little more than one hash an item.  `varied` below
is the lane with the byte, a row for each value of the byte; everything else is one row.
Algorithm: MurmurHash3 x64 128 by Austin Appleby, seed 0; the first half of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

from bloomredis.bits.arrays import NDArray, np

Words: TypeAlias = "NDArray[np.uint64]"
Indices: TypeAlias = "NDArray[np.intp]"


def _words(*numbers: int) -> Words:
    return np.array(numbers, dtype=np.uint64)


_C1, _C2, _ADD1, _ADD2, _FIVE = _words(0x87C37B91114253D5, 0x4CF5AD432745937F, 0x52DCE729, 0x38495AB5, 5)
_LONGEST: Final = 512
_FINAL: Final = _words(0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)

# Indexed by the length of an item's rest after its whole blocks: masks of the item's bytes in the next two
# words, and the constants of the lane with the appended byte.
_REST: Final = range(16)
_BITS1: Final = _words(*((1 << 8 * min(rest, 8)) - 1 for rest in _REST))
_BITS2: Final = _words(*((1 << 8 * max(rest - 8, 0)) - 1 for rest in _REST))
_IN_FIRST: Final = np.arange(16) < 8
_STEP: Final = np.where(_IN_FIRST, _C1, _C2) << (np.arange(16, dtype=np.uint64) % _words(8) * _words(8))
_LEFT: Final = np.where(_IN_FIRST, _words(31), _words(33))
_FACTOR: Final = np.where(_IN_FIRST, _C2, _C1)


def suffixed(items: Sequence[str | bytes], suffixes: int) -> Words | None:
    """Return the first 64 bits of each hash: a row for each appended byte, a column for each item.

    Return None if an item is longer than 512 bytes.  This would then be slower, since each 16 bytes of the
    longest item cost the whole batch a round.
    """
    lengths, starts, memory = _laid_out(items)
    if lengths.max() > _LONGEST:
        return None
    h1, h2 = _whole_blocks(lengths >> 4, starts, memory)
    end = starts + (lengths & ~15)
    rest = lengths & 15
    first = _IN_FIRST[rest]
    lane1 = (memory[end] & _BITS1[rest]) * _C1
    lane2 = (memory[end + 8] & _BITS2[rest]) * _C2

    varied: Words = np.arange(suffixes, dtype=np.uint64)[:, None] * _STEP[rest]
    varied += np.where(first, lane1, lane2)
    left = _LEFT[rest]
    carried = varied >> (64 - left)
    varied <<= left
    varied |= carried
    varied *= _FACTOR[rest]
    varied ^= np.where(first, h1, h2)
    other = np.where(first, h2 ^ (_rotated(lane2, 33) * _C1), h1 ^ (_rotated(lane1, 31) * _C2))

    (full,) = np.nonzero(rest == 15)  # the appended byte completes a block
    if len(full):
        other[full] = (_rotated(other[full], 27) + h2[full]) * _FIVE + _ADD1
        varied[:, full] = (_rotated(varied[:, full], 31) + other[full]) * _FIVE + _ADD2
    return _finished(varied, other, first, (lengths + 1).astype(np.uint64))


def _finished(varied: Words, other: Words, varied_is_first: NDArray[np.bool_], lengths: Words) -> Words:
    """Return the first half of the hash, whose state is (`varied`, `other`) or (`other`, `varied`)."""
    varied ^= lengths
    other ^= lengths
    h1 = varied + other
    # The second half of the state, selected by masks, which is twice as fast as np.where.
    h2 = varied & np.where(varied_is_first, _words(0), ~_words(0))
    h2 += np.where(varied_is_first, other, _words(0))
    h2 += h1
    _mix(h1, varied)
    _mix(h2, varied)
    h1 += h2
    return h1


def _laid_out(items: Sequence[str | bytes]) -> tuple[Indices, Indices, Words]:
    """Return each item's length and start, and the 64-bit word at each byte of the joined items."""
    data = _joined(items)
    if data is None:
        items = encoded = [item.encode() if isinstance(item, str) else item for item in items]
        data = b"".join(encoded)
    lengths = np.fromiter(map(len, items), dtype=np.intp, count=len(items))
    memory: Words = np.ndarray(len(data) + 16, "<u8", data + bytes(24), strides=(1,))
    return lengths, np.cumsum(lengths) - lengths, memory


def _joined(items: Sequence[Any]) -> bytes | None:
    """Return the items joined if all are bytes or all ASCII, in half the time of encoding each; else None."""
    with suppress(TypeError):
        return b"".join(items)
    with suppress(TypeError):
        if (text := "".join(items)).isascii():
            return text.encode()
    return None


def _whole_blocks(blocks: Indices, starts: Indices, memory: Words) -> tuple[Words, Words]:
    """Return the two halves of each item's state after its whole blocks."""
    h1 = np.zeros(len(blocks), dtype=np.uint64)
    h2 = h1.copy()
    # Blocks past an item's end hold other items' bytes; they do not change its state.
    positions = starts + 16 * np.arange(blocks.max(initial=0))[:, None]
    np.minimum(positions, len(memory) - 9, out=positions)
    lanes1 = _rotated(memory[positions] * _C1, 31)
    lanes1 *= _C2
    positions += 8
    lanes2 = _rotated(memory[positions] * _C2, 33)
    lanes2 *= _C1
    everywhere = blocks.min(initial=0)
    for block, (lane1, lane2) in enumerate(zip(lanes1, lanes2, strict=True)):
        one = _rotated(lane1 ^ h1, 27)
        one += h2
        one *= _FIVE
        one += _ADD1
        two = _rotated(lane2 ^ h2, 31)
        two += one
        two *= _FIVE
        two += _ADD2
        if block < everywhere:
            h1, h2 = one, two
        else:
            active = blocks > block
            h1, h2 = np.where(active, one, h1), np.where(active, two, h2)
    return h1, h2


def _rotated(words: Words, left: int) -> Words:
    rotated = words << np.uint64(left)
    rotated |= words >> np.uint64(64 - left)
    return rotated


def _mix(words: Words, spare: Words) -> None:
    """Apply the finalizer in place: each bit of the result depends on every bit of the state."""
    shift = np.uint64(33)
    for factor in _FINAL:
        np.right_shift(words, shift, out=spare)
        words ^= spare
        words *= factor
    np.right_shift(words, shift, out=spare)
    words ^= spare
