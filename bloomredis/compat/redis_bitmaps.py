"""The layout of the Java chain of growing Redis bitmaps, and its keys.

The chain uses Guava's strategy MITZ_64 on bitmaps `<base>-<cursor>`.  Items are added to the bitmap at the
cursor; a put that leaves more than half of its bits set begins the next bitmap.  An item is present if any
bitmap has all its bits.

The original can read everything that is written here.  It differs in these points:

* A put is atomic here.  The original sends a command for each bit, and two clients may begin two bitmaps at
  once.
* The first item gives a bitmap its full length; in the original, its creation does.
* `clear()` deletes all keys; the original's `reset()` leaves the cursor "0" and an empty bitmap.
* A `ttl` applies to the whole chain, including the cursor; the original sets none.
* A chain has at most 1,024 bitmaps, since each is tested for an item; the original has no limit.
"""

from __future__ import annotations

from typing import SupportsIndex

from bloomredis.bits import sizing
from bloomredis.bits.encoding import Item
from bloomredis.compat.hashes import java
from bloomredis.compat.mitz64 import Mitz64


class RedisBitmaps(Mitz64):
    """One bitmap of the chain; all bitmaps have the same size, and an item has the same bits in each.

    Probe i is ((h1 + i h2) & Long.MAX_VALUE) % num_bits, with the halves of MurmurHash3 x64 128.  A str is
    hashed as Java's `getBytes(UTF_8)`, with a question mark for an unpaired surrogate; an int is hashed as
    its decimal digits.
    """

    name = "redis_bitmaps"

    def encode(self, item: Item) -> bytes:
        """Return the bytes that are hashed for `item`.  Raises `TypeError` for all but str, bytes and int."""
        return java.utf8(item)

    def link_key(self, name: str, cursor: int) -> str:
        """Return the key of one bitmap of the chain; the original names its chain `bloomfilter`."""
        return f"{name}-{cursor}"

    def cursor_key(self) -> str:
        """Return the key of the cursor: the number of the bitmap that takes new items, 0 if missing.

        The original names it `cursor` for every chain, so a database can hold only one.
        """
        return "cursor"


def optimal_num_bits(capacity: int, error_rate: float) -> int:
    """Return the number of bits before rounding: (long) (-n ln p / (ln 2)^2)."""
    return java.to_long(java.bits_needed(capacity, error_rate))


def num_bits(capacity: int, error_rate: float) -> int:
    """Return the number of bits of a bitmap, the modulus: the optimum rounded up to a multiple of 64."""
    return -(-optimal_num_bits(capacity, error_rate) // 64) * 64


def num_hashes(capacity: int, optimal_bits: int) -> int:
    """Return the number of hashes: max(1, round(m / n ln 2)), with m not rounded up."""
    return java.hashes_needed(capacity, optimal_bits)


def redis_bitmaps(capacity: SupportsIndex, error_rate: float) -> RedisBitmaps:
    """Return the layout of each bitmap in a chain with these parameters.

    `capacity` items fill one bitmap; then the chain grows.  Raises `ValueError` for an error rate outside
    (0, 1), and for parameters that give no bit or need more than 2^32 bits.
    """
    count = sizing.checked_capacity(capacity)
    rate = sizing.checked_error_rate(error_rate)
    return RedisBitmaps(
        num_bits=num_bits(count, rate),
        num_hashes=num_hashes(count, optimal_num_bits(count, rate)),
        capacity=count,
        error_rate=rate,
    )
