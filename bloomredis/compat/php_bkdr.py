"""Which bits the PHP class `Bf` with BKDR hashes sets, and in which shard.

The class of https://github.com/0x5446/bloomfilter-redis: its v1 and v2 keep one bitmap, and v3 as first
published spreads the items over servers and over keys `name.0`, `name.1`, ...  (A later revision of v3 has
64-bit hashes and keys `name:0`; it is another format.)
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, Final, SupportsIndex
from zlib import crc32

from bloomredis.bits import sizing
from bloomredis.compat.bitmap import MAX_BITS, Bitmap, half_full

_MASK: Final = 0x7FFFFFFF
_MAX_PHP_INT: Final = 2**63 - 1
_EXACT: Final = 2**53  # the integers up to here are doubles

Seed = int | float


@lru_cache(maxsize=256)
def seeds(hashes: int) -> tuple[Seed, ...]:
    """Return the seeds 31, 131, 1313, 13131, ...; where PHP's integers end, they go on as floats."""
    found: list[Seed] = []
    for i in range(hashes):
        seed: Seed = 0
        for digit in range(i + 2):
            seed = _php(seed * 10) + (3 if digit % 2 else 1)
        found.append(_php(seed))
    return tuple([31, *found[1:]][:hashes])


def _php(number: Seed) -> Seed:
    """Return a number as PHP keeps it: an int that outgrows 64 bits becomes a float."""
    return float(number) if number > _MAX_PHP_INT else number


def bkdr(data: bytes, seed: Seed) -> int:
    """Return the hash as 64-bit PHP computes it: hash = hash * seed + byte, modulo 2^31.

    Each product passes through a double, which loses the low bits of those past 2^53.
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
        # The seed is a double, or as good as one: the product is rounded once, in whatever order.
        large = float(seed)
        for byte in data:
            value = ((int(value * large) & _MASK) + byte) & _MASK
    return value


def _product(value: int, seed: int) -> int:
    """Return a product of two of PHP's ints as a double: an int before, as long as it is one."""
    exact = value * seed
    return int(float(exact) if exact <= _MAX_PHP_INT else float(value) * float(seed))


@dataclass(frozen=True, kw_only=True)
class PhpBkdr(Bitmap):
    """Probe i is the BKDR hash with seed i modulo `num_bits`.

    A hash has 31 bits, so no offset passes 2^31 - 1, however many bits there are said to be.  An item is
    the bytes of a PHP string; a str stands for its UTF-8, and one that UTF-8 cannot encode is a `ValueError`.
    """

    name: ClassVar[str] = "php_bkdr"

    servers: tuple[Hashable, ...] | None = field(default=None, repr=False)
    """What stands for the servers, in the order in which the PHP program lists them; None for one."""
    partitions: int | None = None
    """Keys a server, or None for one key without a suffix."""

    def max_bits(self) -> int:
        """Return the most bits: of all shards together as many as PHP can count, of one bitmap 2^32."""
        return MAX_BITS if self.partitions is None else _MAX_PHP_INT

    def probes(self, encoded: bytes) -> list[int]:
        """Return the bits of an encoded item in probe order."""
        return [bkdr(encoded, seed) % self.num_bits for seed in seeds(self.num_hashes)]

    def partition(self, encoded: bytes) -> tuple[int, str]:
        """Return which server an item is on, and what follows the filter's name in its key there.

        The same CRC-32 chooses both, so with a common divisor of the two counts some shards stay empty.
        """
        if self.partitions is None:
            return 0, ""
        checksum = crc32(encoded)
        return checksum % len(self.servers or (None,)), f".{checksum % self.partitions}"


def num_partitions(num_bits: int, servers: int) -> int:
    """Keys a server that v3 chooses: ceil(ceil(m / servers) / 2^32), and 1 for up to 2^32 bits in all."""
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

    With `servers` or `partitions` it is v3's, sharded: give the servers in PHP's order, and `partitions` if
    it is not what v3 computes from the rest.  PHP is told no capacity: `capacity` and `error_rate` of the
    layout are what so many hashes are best for, as many items as set half the bits.
    """
    bits, hashes = sizing.positive("num_bits", num_bits), sizing.positive("num_hashes", num_hashes)
    if servers is not None and not servers:
        raise ValueError("servers must have at least one server; leave it out for one bitmap")
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
