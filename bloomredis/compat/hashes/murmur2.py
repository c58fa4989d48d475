"""MurmurHash2 and MurmurHash64A, chained as in RedisBloom: the first hash seeds the second.

Algorithms: Austin Appleby, MurmurHash2 and, for 64-bit machines, MurmurHash64A, 2008.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import unpack_from
from typing import Final

_M64: Final = 0xC6A4A7935BD1E995
_SEED64: Final = 0xC6A4A7935BD1E995
_MASK64: Final = 2**64 - 1
_M32: Final = 0x5BD1E995
_SEED32: Final = 0x9747B28C
_MASK32: Final = 2**32 - 1


def chained64(data: bytes) -> tuple[int, int]:
    """Return MurmurHash64A of an item, and MurmurHash64A seeded with the first."""
    words = [_scrambled64(word) for word in unpack_from(f"<{len(data) // 8}Q", data)]
    first = _murmur64a(words, data, _SEED64)
    return first, _murmur64a(words, data, first)


def _scrambled64(word: int) -> int:
    word = word * _M64 & _MASK64
    return (word ^ word >> 47) * _M64 & _MASK64


def _murmur64a(words: Iterable[int], data: bytes, seed: int) -> int:
    state = seed ^ len(data) * _M64 & _MASK64
    for word in words:
        state = (state ^ word) * _M64 & _MASK64
    if rest := data[len(data) & ~7 :]:
        state = (state ^ int.from_bytes(rest, "little")) * _M64 & _MASK64
    state = (state ^ state >> 47) * _M64 & _MASK64
    return state ^ state >> 47


def chained32(data: bytes) -> tuple[int, int]:
    """Return MurmurHash2 of an item, and MurmurHash2 seeded with the first."""
    words = [_scrambled32(word) for word in unpack_from(f"<{len(data) // 4}I", data)]
    first = _murmur2(words, data, _SEED32)
    return first, _murmur2(words, data, first)


def _scrambled32(word: int) -> int:
    word = word * _M32 & _MASK32
    return (word ^ word >> 24) * _M32 & _MASK32


def _murmur2(words: Sequence[int], data: bytes, seed: int) -> int:
    state = (seed ^ len(data)) & _MASK32
    for word in words:
        state = state * _M32 & _MASK32 ^ word
    if rest := data[len(data) & ~3 :]:
        state = (state ^ int.from_bytes(rest, "little")) * _M32 & _MASK32
    state = (state ^ state >> 13) * _M32 & _MASK32
    return state ^ state >> 15
