"""The layout of Guava's `BloomFilter`, and the stream that its `writeTo()` writes.

Guava keeps the bits in the memory of a JVM.  Here its bit i is at SETBIT offset i of a Redis string.
`read_guava` and `write_guava` convert from and to the stream, which orders bits and bytes differently.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, SupportsIndex

from mmh3 import hash64

from bloomredis.bits import sizing
from bloomredis.bits.arrays import np
from bloomredis.bits.encoding import Item
from bloomredis.compat.bitmap import MAX_BITMAP_BITS, half_full, reversed_bits
from bloomredis.compat.hashes import java, longs
from bloomredis.compat.mitz64 import Mitz64

STRATEGIES: Final = ("MITZ_32", "MITZ_64")
"""Strategies, by the ordinal at the start of the stream; Guava's names have the prefix MURMUR128_."""

_HEAD: Final = struct.Struct(">bBi")
_LONGS_IN_A_KEY: Final = MAX_BITMAP_BITS // 64


@dataclass(frozen=True, kw_only=True)
class Guava(Mitz64):
    """A filter with one of Guava's strategies, on MurmurHash3 x64 128.

    MITZ_64, Guava's default: probe i, from 0, is ((h1 + i h2) & Long.MAX_VALUE) % num_bits.
    MITZ_32, its earlier default: probe i, from 1, adds i times the high half of h1 to the low half, as ints,
    and complements a negative sum.  It never sets a bit above 2^31 - 1.

    Items are encoded as by Guava's funnels: a str as `stringFunnel(UTF_8)`, with a question mark for an
    unpaired surrogate; bytes as `byteArrayFunnel`; an int as `longFunnel`, so that 42 and "42" are two items.
    An int outside 64 bits raises `ValueError`.
    """

    name = "guava"

    strategy: str

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ValueError(f"strategy must be one of {', '.join(STRATEGIES)}, not {self.strategy!r}")
        super().__post_init__()

    def encode(self, item: Item) -> bytes:
        """Return the bytes that are hashed for `item`.  Raises `TypeError` for all but str, bytes and int."""
        if not isinstance(item, int) or isinstance(item, bool):
            return java.utf8(item)
        try:
            return struct.pack("<q", item)
        except struct.error:
            raise ValueError(
                f"to Guava an int is a Java long, which cannot hold {item}; pass str(item)"
            ) from None

    def probes(self, encoded: bytes) -> list[int]:
        """Return the bits of an encoded item in probe order."""
        if self.strategy == "MITZ_64":
            return super().probes(encoded)
        h1 = hash64(encoded, signed=False)[0]
        low, high = h1 & 0xFFFFFFFF, h1 >> 32
        sums = ((low + i * high) & 0xFFFFFFFF for i in range(1, self.num_hashes + 1))
        return [(0xFFFFFFFF - number if number >> 31 else number) % self.num_bits for number in sums]

    def pack(self, items: Sequence[str | bytes]) -> bytes:
        """Return the offsets of encoded items as little-endian u32, item after item."""
        if self.strategy == "MITZ_64":
            return super().pack(items)
        halves = longs.murmurs(items)[:, 0].copy().view("<u4").reshape(-1, 2)
        sums = halves[:, :1] + halves[:, 1:] * np.arange(1, self.num_hashes + 1, dtype=np.uint32)
        np.invert(sums, out=sums, where=sums > java.MAX_INT)
        return longs.remainders(sums.astype(np.uint64), self.num_bits).astype("<u4").tobytes()


def optimal_num_bits(capacity: int, error_rate: float) -> int:
    """Return the number of bits before rounding: (long) (-n ln p / (ln 2)^2); a capacity of 0 counts as 1."""
    return java.to_long(java.bits_needed(capacity or 1, error_rate))


def num_bits(capacity: int, error_rate: float) -> int:
    """Return `bitSize()`, the modulus: the optimum rounded up to a multiple of 64."""
    return -(-optimal_num_bits(capacity, error_rate) // 64) * 64


def num_hashes_from_size(capacity: int, error_rate: float) -> int:
    """Return the number of hashes in Guava up to 31.1: max(1, round(m / n ln 2)), with m truncated."""
    return java.hashes_needed(capacity or 1, optimal_num_bits(capacity, error_rate))


def num_hashes_from_rate(error_rate: float) -> int:
    """Return the number of hashes in Guava 33.4.6: max(1, round(-ln p / ln 2))."""
    return max(1, java.rounded_int(-math.log(error_rate) / math.log(2)))


def guava(
    capacity: SupportsIndex,
    error_rate: float,
    strategy: str = "MITZ_64",
    num_hashes: SupportsIndex | None = None,
) -> Guava:
    """Return the layout of `BloomFilter.create(funnel, capacity, error_rate)`.

    `num_hashes` defaults to the number in Guava up to 31.1.  Guava 33.4.6 computes it from the error rate
    alone.  The two numbers differ for very small capacities only, and by one.  A stream of `writeTo()`
    contains the number, and `from_guava` reads it.

    A capacity of 0 counts as 1, as in Guava.  Raises `ValueError` for parameters that Guava refuses (no bit,
    more than 255 hashes), for more than 2^32 bits, and for an error rate outside (0, 1).
    """
    count = 0 if type(capacity) is int and capacity == 0 else sizing.checked_capacity(capacity)
    rate = sizing.checked_error_rate(error_rate)
    hashes = (
        num_hashes_from_size(count, rate) if num_hashes is None else sizing.positive("num_hashes", num_hashes)
    )
    return Guava(
        num_bits=num_bits(count, rate),
        num_hashes=hashes,
        capacity=count or 1,
        error_rate=rate,
        strategy=strategy,
    )


def read_guava(data: bytes) -> tuple[Guava, bytes]:
    """Return the layout of a stream of `writeTo()`, and its bits as a Redis string.

    The stream does not contain the capacity, so the layout has the best `capacity` and `error_rate` for its
    size.  Raises `ValueError` if `data` is not a valid stream or has more than 2^32 bits.
    """
    if len(data) < _HEAD.size:
        raise ValueError(f"a Guava filter has at least {_HEAD.size} bytes, not {len(data)}")
    ordinal, hashes, count = _HEAD.unpack_from(data)
    if not 0 <= ordinal < len(STRATEGIES):
        raise ValueError(
            f"not a Guava filter: strategy ordinal {ordinal} is not in 0 to {len(STRATEGIES) - 1}"
        )
    if not hashes:
        raise ValueError("a Guava filter has at least 1 hash, not 0")
    if not 1 <= count <= _LONGS_IN_A_KEY:
        raise ValueError(f"{count} longs of bits: one key holds 1 to {_LONGS_IN_A_KEY}")
    if len(data) != _HEAD.size + 8 * count:
        raise ValueError(f"{count} longs of bits need {_HEAD.size + 8 * count} bytes, not {len(data)}")
    capacity, error_rate = half_full(64 * count, hashes)
    layout = Guava(
        num_bits=64 * count,
        num_hashes=hashes,
        capacity=capacity,
        error_rate=error_rate,
        strategy=STRATEGIES[ordinal],
    )
    words = np.frombuffer(data, dtype=">u8", offset=_HEAD.size)
    return layout, reversed_bits(words.astype("<u8").tobytes())


def write_guava(layout: Guava, bits: bytes) -> bytes:
    """Return the stream of `writeTo()`; `bits` is the Redis string, which may omit trailing zeros.

    Raises `ValueError` if the string is longer than the filter.
    """
    size = layout.num_bits // 8
    if layout.num_bits % 64 or len(bits) > size:
        raise ValueError(f"{len(bits)} bytes of bits; {layout.num_bits // 64} longs hold at most {size}")
    words = np.frombuffer(reversed_bits(bits.ljust(size, b"\0")), dtype="<u8")
    head = _HEAD.pack(STRATEGIES.index(layout.strategy), layout.num_hashes, len(words))
    return head + words.astype(">u8").tobytes()
