"""The layout of the PHP class `Bf` with BKDR hashes, and the shard of each item.

The class is that of https://github.com/0x5446/bloomfilter-redis.  Its versions differ:

* v1 and v2 have one bitmap.
* v3 as first published distributes the items over servers and over keys `name.0`, `name.1`, ...
* v3 as revised has hashes of 63 bits and one bitmap `name:0` on each server.

Not covered are:

* v3 as revised with more than 2^32 bits on a server: it spreads an item's bits over `name:0`, `name:1`, ...
* `slidingBloomfilter.lua` of that repository.  Its hash overflows a Lua number and so depends on the
  platform, no cluster and no ACL can place its keys, which are plain timestamps, and its caller supplies the
  time.  `RotatingBloomFilter` serves the same purpose.

PHP casts an item to a string.  Items here are str, bytes or int.  For other values pass the text of PHP:
"1.5" for a float, "1" for true, "" for false and null.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, SupportsIndex
from zlib import crc32

from bloomredis.bits import sizing
from bloomredis.compat.bitmap import MAX_BITMAP_BITS, Bitmap, half_full

_MASK: Final = 0x7FFFFFFF
_MAX_PHP_INT: Final = 2**63 - 1  # also the mask of v3 as revised
_EXACT: Final = 2**53  # doubles represent all integers up to here exactly

Seed = int | float


@lru_cache(maxsize=256)
def seeds(hashes: int) -> tuple[Seed, ...]:
    """Return the seeds 31, 131, 1313, 13131, ...; seeds beyond PHP's integers are floats."""
    found: list[Seed] = []
    for i in range(hashes):
        seed: Seed = 0
        for digit in range(i + 2):
            seed = _php(seed * 10) + (3 if digit % 2 else 1)
        found.append(_php(seed))
    return tuple([31, *found[1:]][:hashes])


def _php(number: Seed) -> Seed:
    """Return a number as PHP stores it: an int beyond 64 bits becomes a float."""
    return float(number) if number > _MAX_PHP_INT else number


def bkdr(data: bytes, seed: Seed, mask: int = _MASK) -> int:
    """Return the hash as 64-bit PHP computes it: hash = (hash * seed + byte) & mask, for each byte.

    Each product is converted to a double, which loses low bits above 2^53.
    """
    value = 0
    if seed * mask < _EXACT:
        small = int(seed)
        for byte in data:
            value = (value * small + byte) & mask
    elif isinstance(seed, int) and (seed > _EXACT or mask > _EXACT):
        for byte in data:
            value = ((_product(value, seed) & mask) + byte) & mask
    else:
        # The seed is exact as a double, so the product is rounded once.
        large = float(seed)
        for byte in data:
            value = ((int(value * large) & mask) + byte) & mask
    return value


def _product(value: int, seed: int) -> int:
    """Return a product of two PHP ints as a double; beyond 64 bits PHP converts the factors first."""
    exact = value * seed
    return int(float(exact) if exact <= _MAX_PHP_INT else float(value) * float(seed))


@dataclass(frozen=True, kw_only=True)
class PhpBkdr(Bitmap):
    """Probe i is the BKDR hash with seed i modulo `num_bits`.

    A hash of 31 bits gives no offset above 2^31 - 1, whatever `num_bits` is.  An item is the bytes of a
    PHP string; a str is encoded as UTF-8.  A str that UTF-8 cannot encode raises `ValueError`.
    """

    name = "php_bkdr"

    servers: tuple[Hashable, ...] | None = field(default=None, repr=False)
    """An identifier of each server, in the order of the PHP program; None for a single server."""
    partitions: int | None = None
    """Keys on each server; None for one key without a suffix."""
    revised: bool = False
    """True for v3 as revised, in which `num_bits` counts the bits on each server."""

    def max_bits(self) -> int:
        """Return the most bits: PHP's largest int for all shards together, 2^32 for one bitmap."""
        return MAX_BITMAP_BITS if self.partitions is None or self.revised else _MAX_PHP_INT

    def key(self, name: str) -> str:
        """Return the key of a filter or a shard: its name, with `:0` appended in v3 as revised."""
        return f"{name}:0" if self.revised else name

    def probes(self, encoded: bytes) -> list[int]:
        """Return the bits of an encoded item in probe order."""
        mask = _MAX_PHP_INT if self.revised else _MASK
        return [bkdr(encoded, seed, mask) % self.num_bits for seed in seeds(self.num_hashes)]

    def partition(self, encoded: bytes) -> tuple[int, str]:
        """Return the index of an item's server, and the suffix of its key there.

        Both come from one CRC-32, so some shards stay empty if the two counts have a common divisor.
        """
        return (0, "") if self.partitions is None else self._partition(crc32(encoded))

    def parts(self) -> list[tuple[int, str]]:
        """Return each server and suffix that a checksum can choose."""
        period = len(self.servers or (None,)) * (self.partitions or 1)
        return sorted(set(map(self._partition, range(period))))

    def _partition(self, checksum: int) -> tuple[int, str]:
        suffix = "" if self.revised else f".{checksum % (self.partitions or 1)}"
        return checksum % len(self.servers or (None,)), suffix


def num_partitions(num_bits: int, servers: int) -> int:
    """Return the number of keys a server: ceil(ceil(m / servers) / 2^32), or 1 up to 2^32 bits."""
    if num_bits <= MAX_BITMAP_BITS:
        return 1
    return math.ceil(math.ceil(num_bits / servers) / MAX_BITMAP_BITS)


def php_bkdr(
    num_bits: SupportsIndex,
    num_hashes: SupportsIndex,
    servers: Sequence[Hashable] | None = None,
    partitions: SupportsIndex | None = None,
    *,
    revised: bool = False,
) -> PhpBkdr:
    """Return the layout of `new Bf(key, num_bits, num_hashes)`.

    `servers` or `partitions` select the sharded layout of v3.  Give the servers in PHP's order, and
    `partitions` if it differs from the number that v3 computes.  `revised` selects v3 as it was revised
    later, with or without `servers`.

    PHP takes no capacity.  The layout's `capacity` is the best for this number of hashes: it sets half the
    bits.  Its `error_rate` is the rate at that capacity.
    """
    bits, hashes = sizing.positive("num_bits", num_bits), sizing.positive("num_hashes", num_hashes)
    if servers is not None and not servers:
        raise ValueError("servers must name at least one server; omit it for a single bitmap")
    if revised and partitions is not None:
        raise ValueError("v3 as revised has one key on each server; omit partitions")
    capacity, error_rate = half_full(bits, hashes)
    keys = None if partitions is None else sizing.positive("partitions", partitions)
    if revised:
        keys = None if servers is None else 1
        bits = -(-bits // len(servers or (None,)))
    elif keys is None and servers is not None:
        keys = num_partitions(bits, len(servers))
    return PhpBkdr(
        num_bits=bits,
        num_hashes=hashes,
        capacity=capacity,
        error_rate=error_rate,
        servers=None if servers is None else tuple(servers),
        partitions=keys,
        revised=revised,
    )
