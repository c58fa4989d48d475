"""The layout of the PHP class `Bf` with BKDR hashes, and the shard of each item.

The class of https://github.com/0x5446/bloomfilter-redis: its v1 and v2 have one bitmap, and v3 as first
published distributes the items over servers and over keys `name.0`, `name.1`, ...  (A later revision of v3
has 64-bit hashes and keys `name:0`; it is another format.)
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, SupportsIndex
from zlib import crc32

from bloomredis.bits import sizing
from bloomredis.compat.bitmap import MAX_BITS, Bitmap, half_full

_MASK: Final = 0x7FFFFFFF
_MAX_PHP_INT: Final = 2**63 - 1
_EXACT: Final = 2**53  # doubles represent all integers up to here exactly

Seed = int | float


@lru_cache(maxsize=256)
def seeds(hashes: int) -> tuple[Seed, ...]:
    """Return the seeds 31, 131, 1313, 13131, ...; beyond PHP's integers they are floats."""
    found: list[Seed] = []
    for i in range(hashes):
        seed: Seed = 0
        for digit in range(i + 2):
            seed = _php(seed * 10) + (3 if digit % 2 else 1)
        found.append(_php(seed))
    return tuple([31, *found[1:]][:hashes])


def _php(number: Seed) -> Seed:
    """Return a number as PHP keeps it: an int beyond 64 bits becomes a float."""
    return float(number) if number > _MAX_PHP_INT else number


def bkdr(data: bytes, seed: Seed) -> int:
    """Return the hash as 64-bit PHP computes it: hash = hash * seed + byte, modulo 2^31.

    Each product is converted to a double, which loses low bits above 2^53.
    """
    value = 0
    if _EXACT < seed <= _MAX_PHP_INT:
        for byte in data:
            value = ((_product(value, int(seed)) & _MASK) + byte) & _MASK
    elif seed * _MASK < _EXACT:
        small = int(seed)
        for byte in data:
            value = (value * small + byte) & _MASK
    else:
        # The seed is exact as a double, so the product is rounded once.
        large = float(seed)
        for byte in data:
            value = ((int(value * large) & _MASK) + byte) & _MASK
    return value


def _product(value: int, seed: int) -> int:
    """Return a product of two PHP ints, converted to a double after or, beyond 64 bits, before it."""
    exact = value * seed
    return int(float(exact) if exact <= _MAX_PHP_INT else float(value) * float(seed))


@dataclass(frozen=True, kw_only=True)
class PhpBkdr(Bitmap):
    """Probe i is the BKDR hash with seed i modulo `num_bits`.

    A hash has 31 bits, so no offset exceeds 2^31 - 1, whatever `num_bits` is.  An item is the bytes of a
    PHP string; a str is encoded as UTF-8, and one that UTF-8 cannot encode is a `ValueError`.
    """

    name = "php_bkdr"

    servers: tuple[Hashable, ...] | None = field(default=None, repr=False)
    """An identifier of each server, in the order of the PHP program; None for a single server."""
    partitions: int | None = None
    """Keys on each server; None for one key without a suffix."""

    def max_bits(self) -> int:
        """Return the limit of bits: PHP's largest int for all shards together, 2^32 for one bitmap."""
        return MAX_BITS if self.partitions is None else _MAX_PHP_INT

    def probes(self, encoded: bytes) -> list[int]:
        """Return the bits of an encoded item in probe order."""
        return [bkdr(encoded, seed) % self.num_bits for seed in seeds(self.num_hashes)]

    def partition(self, encoded: bytes) -> tuple[int, str]:
        """Return the index of an item's server, and the suffix of its key there.

        Both come from one CRC-32, so if the two counts have a common divisor some shards stay empty.
        """
        if self.partitions is None:
            return 0, ""
        checksum = crc32(encoded)
        return checksum % len(self.servers or (None,)), f".{checksum % self.partitions}"


def num_partitions(num_bits: int, servers: int) -> int:
    """Keys on each server in v3: ceil(ceil(m / servers) / 2^32), and 1 for up to 2^32 bits in all."""
    if num_bits <= MAX_BITS:
        return 1
    return math.ceil(math.ceil(num_bits / servers) / MAX_BITS)


def php_bkdr(
    num_bits: SupportsIndex,
    num_hashes: SupportsIndex,
    servers: Sequence[Hashable] | None = None,
    partitions: SupportsIndex | None = None,
) -> PhpBkdr:
    """Return the layout of `new Bf(key, num_bits, num_hashes)`.

    With `servers` or `partitions` it is the sharded one of v3: give the servers in PHP's order, and
    `partitions` if it is not the number that v3 computes.  PHP takes no capacity: `capacity` and
    `error_rate` of the layout are the best for so many hashes, when half the bits are set.
    """
    bits, hashes = sizing.positive("num_bits", num_bits), sizing.positive("num_hashes", num_hashes)
    if servers is not None and not servers:
        raise ValueError("servers must name at least one server; omit it for a single bitmap")
    keys = None if partitions is None else sizing.positive("partitions", partitions)
    if keys is None and servers is not None:
        keys = num_partitions(bits, len(servers))
    capacity, error_rate = half_full(bits, hashes)
    return PhpBkdr(
        num_bits=bits,
        num_hashes=hashes,
        capacity=capacity,
        error_rate=error_rate,
        servers=None if servers is None else tuple(servers),
        partitions=keys,
    )
