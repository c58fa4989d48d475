"""The layout of the widely copied Java `RedisBloomFilter` over Jedis or Codis.

It uses Guava's arithmetic, but its modulus is an int and is not rounded up to a multiple of 64.

The original takes the key at each call: `insert(key, element, expireSec)`.  Here each key has a filter
object, which a program keeps; `insert_ttl` is the original's `expireSec`, which each insert sets again.  The
original deletes the key if it is 0 or less; here call `delete()`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import SupportsIndex

from bloomredis.bits import sizing
from bloomredis.bits.encoding import Item
from bloomredis.compat.bitmap import ExpiringBitmap
from bloomredis.compat.hashes import java
from bloomredis.compat.mitz64 import Mitz64


class Jedis(ExpiringBitmap, Mitz64):
    """Probe i is ((h1 + i h2) & Long.MAX_VALUE) % num_bits, with the halves of MurmurHash3 x64 128.

    A str is hashed as Java's `getBytes(UTF_8)`, with a question mark for an unpaired surrogate; an int is
    hashed as its decimal digits.
    """

    name = "jedis"

    def key(self, name: str) -> str:
        """Return the Redis key of a filter: its name with the prefix `bf:`."""
        return f"bf:{name}"

    def encode(self, item: Item) -> bytes:
        """Return the bytes that are hashed for `item`.  Raises `TypeError` for all but str, bytes and int."""
        return java.utf8(item)


def num_bits(capacity: int, error_rate: float) -> int:
    """Return the number of bits: (int) (-n ln p / (ln 2)^2), at most 2^31 - 1."""
    return java.to_int(java.bits_needed(capacity, error_rate))


def num_hashes(capacity: int, bits: int) -> int:
    """Return the number of hashes: max(1, round(m / n ln 2)); a size limited to 2^31 - 1 gives too few."""
    return java.hashes_needed(capacity, bits)


def jedis(
    capacity: SupportsIndex, error_rate: float, *, insert_ttl: float | timedelta | None = None
) -> Jedis:
    """Return the layout of `new RedisBloomFilter(capacity, error_rate)`.

    With `insert_ttl`, in seconds or as a timedelta, each insert renews the key's time to live, as the
    original's `insert(key, element, expireSec)` does.  The original deletes the key if `expireSec` is 0 or
    less.  Here such an `insert_ttl` raises `ValueError`; call `delete()` of the filter instead.

    If 2^31 - 1 bits are not enough, the original creates a filter that is too small, and so does this
    function: the real error rate is then higher than `error_rate`.  Raises `ValueError` for a capacity that
    is not a Java int, for an error rate outside (0, 1), which the original accepts, and for parameters that
    give no bit.
    """
    count = java.int_capacity(capacity)
    rate = sizing.checked_error_rate(error_rate)
    bits = num_bits(count, rate)
    return Jedis(
        num_bits=bits,
        num_hashes=num_hashes(count, bits),
        capacity=count,
        error_rate=rate,
        insert_ttl=insert_ttl,
    )
