"""Which bits the widely copied Java `RedisBloomFilter` over Jedis or Codis sets.

It is Guava's arithmetic with a modulus that is not rounded up to whole longs, kept in an int.
"""

from __future__ import annotations

from typing import ClassVar, SupportsIndex

from bloomredis.bits import sizing
from bloomredis.bits.encoding import Item
from bloomredis.compat.hashes import java
from bloomredis.compat.mitz64 import Mitz64


class Jedis(Mitz64):
    """Probe i is ((h1 + i h2) & Long.MAX_VALUE) % num_bits, h1 and h2 being MurmurHash3 x64 128.

    A str is hashed as Java's `getBytes(UTF_8)`, an unpaired surrogate as a question mark; an int as its
    decimal text.
    """

    name: ClassVar[str] = "jedis"

    def key(self, name: str) -> str:
        """Return the Redis key of a filter: `bf:` before its name."""
        return f"bf:{name}"

    def encode(self, item: Item) -> bytes:
        """Return the bytes that stand for `item`; `TypeError` for what is no str, bytes or int."""
        return java.utf8(item)


def num_bits(capacity: int, error_rate: float) -> int:
    """Bits of a filter: (int) (-n ln p / (ln 2)^2), which stops at 2^31 - 1."""
    return java.to_int(java.bits_needed(capacity, error_rate))


def num_hashes(capacity: int, bits: int) -> int:
    """Hashes an item: max(1, round(m / n ln 2)); of a size that stopped at 2^31 - 1 too few for the rate."""
    return java.hashes_needed(capacity, bits)


def jedis(capacity: SupportsIndex, error_rate: float) -> Jedis:
    """Return the layout of `new RedisBloomFilter(capacity, error_rate)`.

    Past 2^31 - 1 bits the original goes on with a filter that is too small, and so does this one: its
    error rate is then higher than `error_rate`.  Raises `ValueError` for what is no int in Java, for an
    error rate outside (0, 1), and for parameters that leave no bit.
    """
    count = java.int_capacity(capacity)
    rate = sizing.checked_error_rate(error_rate)
    bits = num_bits(count, rate)
    return Jedis(num_bits=bits, num_hashes=num_hashes(count, bits), capacity=count, error_rate=rate)
