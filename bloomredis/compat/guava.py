"""Which bits Guava's `BloomFilter` sets, and what its `writeTo()` writes.

Guava keeps the bits in the memory of a JVM.  Here its bit i is the bit at SETBIT offset i of a Redis string;
`read_guava` and `write_guava` convert to and from the stream, whose bytes have the bits in another order.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, SupportsIndex

import numpy as np
from mmh3 import hash64

from bloomredis.bits import sizing
from bloomredis.bits.encoding import Item
from bloomredis.compat.bitmap import MAX_BITS, half_full, reversed_bits
from bloomredis.compat.hashes import java, longs
from bloomredis.compat.mitz64 import Mitz64

STRATEGIES: Final = ("MITZ_32", "MITZ_64")
"""By the ordinal that the stream begins with; Guava's own names have MURMUR128_ before them."""

_HEAD: Final = struct.Struct(">bBi")
_LONGS_IN_A_KEY: Final = MAX_BITS // 64


@dataclass(frozen=True, kw_only=True)
class Guava(Mitz64):
    """A filter with one of Guava's strategies, on MurmurHash3 x64 128.

    MITZ_64, Guava's default: probe i is ((h1 + i h2) & Long.MAX_VALUE) % num_bits, i from 0.
    MITZ_32, its default once: the halves of h1 as ints, i from 1, a negative sum complemented; no bit past
    2^31 - 1 is ever set.

    An item is hashed as Guava's funnels feed it: a str as `stringFunnel(UTF_8)`, an unpaired surrogate
    becoming a question mark; bytes as `byteArrayFunnel`; an int as `longFunnel`, so that 42 and "42" are two
    items.  An int outside 64 bits is a `ValueError`.
    """

    name: ClassVar[str] = "guava"

    strategy: str

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ValueError(f"strategy must be one of {', '.join(STRATEGIES)}, not {self.strategy!r}")
        super().__post_init__()

    def encode(self, item: Item) -> bytes:
        """Return the bytes that stand for `item`; `TypeError` for what is no str, bytes or int."""
        if not isinstance(item, int) or isinstance(item, bool):
            return java.utf8(item)
        try:
            return struct.pack("<q", item)
        except struct.error:
            raise ValueError(f"an int is a Java long to Guava, and {item} is none; pass str(item)") from None

    def probes(self, encoded: bytes) -> list[int]:
        """Return the bits of an encoded item in probe order."""
        if self.strategy == "MITZ_64":
            return super().probes(encoded)
        h1 = hash64(encoded, signed=False)[0]
        low, high = h1 & 0xFFFFFFFF, h1 >> 32
        sums = ((low + i * high) & 0xFFFFFFFF for i in range(1, self.num_hashes + 1))
        return [(0xFFFFFFFF - number if number >> 31 else number) % self.num_bits for number in sums]

    def pack(self, items: Sequence[str | bytes]) -> bytes:
        """Return the offsets of all encoded items as little-endian u32, item after item."""
        if self.strategy == "MITZ_64":
            return super().pack(items)
        halves = longs.murmurs(items)[:, 0].copy().view("<u4").reshape(-1, 2)
        sums = halves[:, :1] + halves[:, 1:] * np.arange(1, self.num_hashes + 1, dtype=np.uint32)
        np.invert(sums, out=sums, where=sums > java.MAX_INT)
        return longs.remainders(sums.astype(np.uint64), self.num_bits).astype("<u4").tobytes()


def optimal_num_bits(capacity: int, error_rate: float) -> int:
    """Bits before rounding: (long) (-n ln p / (ln 2)^2), a capacity of 0 counting as 1."""
    return java.to_long(java.bits_needed(capacity or 1, error_rate))


def num_bits(capacity: int, error_rate: float) -> int:
    """`bitSize()`, the modulus: the optimum rounded up to whole longs."""
    return -(-optimal_num_bits(capacity, error_rate) // 64) * 64


def num_hashes_from_size(capacity: int, error_rate: float) -> int:
    """Hashes an item as Guava 31.1 and before compute them: max(1, round(m / n ln 2)), m truncated."""
    return java.hashes_needed(capacity or 1, optimal_num_bits(capacity, error_rate))


def num_hashes_from_rate(error_rate: float) -> int:
    """Hashes an item as Guava 33.4.6 computes them: max(1, round(-ln p / ln 2))."""
    return max(1, java.rounded_int(-math.log(error_rate) / math.log(2)))


def guava(
    capacity: SupportsIndex,
    error_rate: float,
    strategy: str = "MITZ_64",
    num_hashes: SupportsIndex | None = None,
) -> Guava:
    """Return the layout of `BloomFilter.create(funnel, capacity, error_rate)`.

    `num_hashes` is by default what Guava 31.1 and its predecessors compute.  33.4.6 computes
    `num_hashes_from_rate(error_rate)`; the two differ only for a handful of items, and by one.  A filter
    that was written with `writeTo()` says which it has: `read_guava`.

    A capacity of 0 counts as 1, as in Guava.  Raises `ValueError` where Guava refuses (no bit, more than 255
    hashes), past 2^32 bits, and for an error rate outside (0, 1).
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
    """Return the layout and the bits, as a Redis string has them, of what `writeTo()` has written.

    The stream does not say what the filter was made for: `capacity` and `error_rate` of the layout are what
    its size is best for.  Raises `ValueError` for what is no such stream, or past 2^32 bits.
    """
    if len(data) < _HEAD.size:
        raise ValueError(f"a Guava filter has at least {_HEAD.size} bytes, not {len(data)}")
    ordinal, hashes, count = _HEAD.unpack_from(data)
    if not 0 <= ordinal < len(STRATEGIES):
        raise ValueError(f"strategy ordinal {ordinal} is none of 0 to {len(STRATEGIES) - 1}: no Guava filter")
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
    """Return what `writeTo()` writes of such a filter; `bits` is the Redis string, which may end early.

    Raises `ValueError` for a string that is longer than the filter.
    """
    size = layout.num_bits // 8
    if layout.num_bits % 64 or len(bits) > size:
        raise ValueError(f"{len(bits)} bytes are no bits of {layout.num_bits // 64} longs: at most {size}")
    words = np.frombuffer(reversed_bits(bits.ljust(size, b"\0")), dtype="<u8")
    head = _HEAD.pack(STRATEGIES.index(layout.strategy), layout.num_hashes, len(words))
    return head + words.astype(">u8").tobytes()
