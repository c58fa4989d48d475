"""The layout of the Java chain of growing Redis bitmaps, and its keys.

Guava's strategy MITZ_64 on bitmaps `<base>-<cursor>`: items are added to the bitmap at the cursor, and a put
that leaves more than half of its bits set begins the next one.  An item is present if any bitmap has all
its bits.

Differences from the original, which reads all this as its own:

* A put is one step here; there it is a command for each bit, and two clients may begin two bitmaps at once.
* A bitmap has its full length from its first item on, there from its beginning.
* `clear()` deletes all keys; the original's `reset()` leaves the cursor "0" and an empty bitmap.
* A `ttl` is that of the whole chain, cursor included; the original sets none.
* There are at most 1,024 bitmaps, since an item is tested in all of them; the original has no limit.
"""

from __future__ import annotations

from typing import SupportsIndex

from bloomredis.bits import sizing
from bloomredis.bits.encoding import Item
from bloomredis.compat.hashes import java
from bloomredis.compat.mitz64 import Mitz64


class RedisBitmaps(Mitz64):
    """One bitmap of the chain; all are of the same size, and an item has the same bits in each.

    Probe i is ((h1 + i h2) & Long.MAX_VALUE) % num_bits, h1 and h2 being MurmurHash3 x64 128.  A str is
    hashed as Java's `getBytes(UTF_8)`, an unpaired surrogate as a question mark; an int as decimal digits.
    """

    name = "redis_bitmaps"

    def encode(self, item: Item) -> bytes:
        """Return the bytes that are hashed for `item`.  Raises `TypeError` if it is no str, bytes or int."""
        return java.utf8(item)

    def link_key(self, name: str, cursor: int) -> str:
        """Return the key of one bitmap of the chain; the original names its chain `bloomfilter`."""
        return f"{name}-{cursor}"

    def cursor_key(self) -> str:
        """Return the key of the cursor, the number of the bitmap that items are added to; 0 if missing.

        The original names it `cursor` for every chain, so a database can hold only one.
        """
        return "cursor"


def optimal_num_bits(capacity: int, error_rate: float) -> int:
    """Bits before rounding: (long) (-n ln p / (ln 2)^2)."""
    return java.to_long(java.bits_needed(capacity, error_rate))


def num_bits(capacity: int, error_rate: float) -> int:
    """Bits of one bitmap and the modulus: the optimum rounded up to a multiple of 64."""
    return -(-optimal_num_bits(capacity, error_rate) // 64) * 64


def num_hashes(capacity: int, optimal_bits: int) -> int:
    """Hashes an item: max(1, round(m / n ln 2)), m not rounded up."""
    return java.hashes_needed(capacity, optimal_bits)


def redis_bitmaps(capacity: SupportsIndex, error_rate: float) -> RedisBitmaps:
    """Return the layout of each bitmap in a chain with these parameters.

    `capacity` items fill one bitmap; then the chain grows.  Raises `ValueError` for an error rate outside
    (0, 1), and for parameters that leave no bit or need more than 2^32.
    """
    count = sizing.checked_capacity(capacity)
    rate = sizing.checked_error_rate(error_rate)
    return RedisBitmaps(
        num_bits=num_bits(count, rate),
        num_hashes=num_hashes(count, optimal_num_bits(count, rate)),
        capacity=count,
        error_rate=rate,
    )
