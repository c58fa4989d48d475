"""HighwayHash-128, for one item and for batches.

Algorithm: Alakuijala, Cox & Wassenberg, "Fast keyed hash/pseudo-random function using SIMD multiply and
permute", 2016.  The state is four vectors of four 64-bit lanes; each 32 bytes of input take one round, and
six more rounds finish the hash.  One item is hashed with ints, a batch with numpy, one row an item.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, TypeAlias

from bloomredis.bits.arrays import NDArray, np

Words: TypeAlias = "NDArray[np.uint64]"
Key = tuple[int, int, int, int]

_MUL0: Final = (0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3)
_MUL1: Final = (0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377)
_HALF_ZIPPER: Final = (3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7)
_ZIPPER: Final = bytes((*_HALF_ZIPPER, *(16 + byte for byte in _HALF_ZIPPER)))
_PERMUTED: Final = (5, 4, 7, 6, 1, 0, 3, 2)  # 32-bit halves of a vector before each of the last rounds
_LANES: Final = Struct("<4Q")
_HALVES: Final = Struct("<8I")
_FEW: Final = 12  # numpy is slower for up to this many items
_MASK: Final = 2**64 - 1
_LOW: Final = 0xFFFFFFFF


def hash128(data: bytes, key: Key) -> tuple[int, int]:
    """Return the two 64-bit halves of the hash of one item."""
    v0 = [mul ^ part for mul, part in zip(_MUL0, key, strict=True)]
    v1 = [mul ^ (part >> 32 | (part & _LOW) << 32) for mul, part in zip(_MUL1, key, strict=True)]
    mul0, mul1 = list(_MUL0), list(_MUL1)
    whole = len(data) & ~31
    for start in range(0, whole, 32):
        _round(v0, v1, mul0, mul1, _LANES.unpack_from(data, start))
    if rest := len(data) & 31:
        v0 = [(lane + (rest << 32) + rest) & _MASK for lane in v0]
        v1 = list(_LANES.unpack(_HALVES.pack(*_rotated(_HALVES.unpack(_LANES.pack(*v1)), rest))))
        _round(v0, v1, mul0, mul1, _LANES.unpack(_padded(data[whole:])))
    for _ in range(6):
        halves = _HALVES.unpack(_LANES.pack(*v0))
        _round(v0, v1, mul0, mul1, _LANES.unpack(_HALVES.pack(*[halves[i] for i in _PERMUTED])))
    return (
        (v0[0] + mul0[0] + v1[2] + mul1[2]) & _MASK,
        (v0[1] + mul0[1] + v1[3] + mul1[3]) & _MASK,
    )


def _rotated(halves: Sequence[int], left: int) -> Iterator[int]:
    return ((half << left | half >> (32 - left)) & _LOW for half in halves)


def _round(v0: list[int], v1: list[int], mul0: list[int], mul1: list[int], lanes: Sequence[int]) -> None:
    for i, lane in enumerate(lanes):
        v1[i] = b = (v1[i] + mul0[i] + lane) & _MASK
        mul0[i] ^= (b & _LOW) * (v0[i] >> 32)
        v0[i] = a = (v0[i] + mul1[i]) & _MASK
        mul1[i] ^= (a & _LOW) * (b >> 32)
    for target, source in ((v0, v1), (v1, v0)):
        # The pattern is translated with the vector as the table, which permutes the vector's bytes.
        zipped = _LANES.unpack(_ZIPPER.translate(_LANES.pack(*source).ljust(256)))
        for i, lane in enumerate(zipped):
            target[i] = (target[i] + lane) & _MASK


def _padded(rest: bytes) -> bytes:
    """Return the last 1 to 31 bytes of an item as a packet of 32, placed according to their number."""
    words, odd = rest[: len(rest) & ~3], rest[len(rest) & ~3 :]
    if len(rest) & 16:
        return words.ljust(28, b"\0") + rest[-4:]
    tail = bytes((odd[0], odd[len(odd) >> 1], odd[-1])) if odd else b""
    return (words.ljust(16, b"\0") + tail).ljust(32, b"\0")


def hashes128(items: Sequence[bytes], key: Key) -> Words:
    """Return the hashes of many items: one row of two 64-bit halves an item."""
    result = np.empty((len(items), 2), dtype=np.uint64)
    groups: dict[tuple[int, bool], list[int]] = {}
    for index, item in enumerate(items):
        groups.setdefault((len(item) >> 5, len(item) & 31 > 0), []).append(index)
    for (packets, ragged), indices in groups.items():
        alike = [items[index] for index in indices]
        if len(alike) < _FEW:
            result[indices] = [hash128(item, key) for item in alike]
        else:
            result[indices] = _Vectors(alike, key).hashed(packets, ragged=ragged)
    return result


class _Vectors:
    """The state of the hashes of several items with the same number of rounds."""

    def __init__(self, items: Sequence[bytes], key: Key) -> None:
        self.items = items
        keys = np.array(key, dtype=np.uint64)
        self.mul0: Words = np.array([_MUL0], dtype=np.uint64).repeat(len(items), axis=0)
        self.mul1: Words = np.array([_MUL1], dtype=np.uint64).repeat(len(items), axis=0)
        self.v0: Words = self.mul0 ^ keys
        self.v1: Words = self.mul1 ^ (keys >> np.uint64(32) | keys << np.uint64(32))

    def hashed(self, packets: int, *, ragged: bool) -> Words:
        whole = np.frombuffer(b"".join([item[: 32 * packets] for item in self.items]), dtype="<u8")
        for packet in whole.reshape(len(self.items), packets, 4).swapaxes(0, 1):
            self.round(packet)
        if ragged:
            self.rest()
        for _ in range(6):
            self.round(self.v0.view(np.uint32).take(_PERMUTED, axis=1).view(np.uint64))
        sums: Words = (self.v0 + self.mul0)[:, :2]
        sums += (self.v1 + self.mul1)[:, 2:]
        return sums

    def rest(self) -> None:
        sizes = np.array([[len(item) & 31] for item in self.items], dtype=np.uint64)
        self.v0 += sizes << np.uint64(32) | sizes
        halves, left = self.v1.view(np.uint32), sizes.astype(np.uint32)
        self.v1 = (halves << left | halves >> (np.uint32(32) - left)).view(np.uint64)
        rests = b"".join([_padded(item[len(item) & ~31 :]) for item in self.items])
        self.round(np.frombuffer(rests, dtype="<u8").reshape(-1, 4))

    def round(self, lanes: Words) -> None:
        low, high = np.uint64(_LOW), np.uint64(32)
        self.v1 += self.mul0
        self.v1 += lanes
        self.mul0 ^= (self.v1 & low) * (self.v0 >> high)
        self.v0 += self.mul1
        self.mul1 ^= (self.v0 & low) * (self.v1 >> high)
        self.v0 += _zipped(self.v1)
        self.v1 += _zipped(self.v0)


def _zipped(vectors: Words) -> Words:
    return vectors.view(np.uint8).take(list(_ZIPPER), axis=1).view(np.uint64)
