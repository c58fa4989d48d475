"""The layout of the PHP class `Bf` with BKDR hashes, and the shards over which its v3 distributes items.

The class is that of https://github.com/0x5446/bloomfilter-redis.  Its versions differ:

* v1 and v2 have one bitmap.
* v3 as first published distributes the items over servers, and there over keys `name.0`, `name.1`, ...
* v3 as revised has hashes of 63 bits.  It distributes the items, and the bits, over servers, each of which
  has one bitmap `name:0`.

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
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Generic, NamedTuple, SupportsIndex, TypeVar
from zlib import crc32

from bloomredis import arguments
from bloomredis.bits import sizing
from bloomredis.bits.encoding import Item
from bloomredis.compat.bitmap import MAX_BITMAP_BITS, Bitmap, half_full

_MASK: Final = 0x7FFFFFFF
_MAX_PHP_INT: Final = 2**63 - 1  # also the mask of v3 as revised
_EXACT: Final = 2**53  # doubles represent all integers up to here exactly

Seed = int | float
S = TypeVar("S")


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

    revised: bool = False
    """True for v3 as revised."""
    is_shard: bool = False
    """True for a shard of v3, whose key is complete.

    As first published, `num_bits` counts the bits of all shards: an item has the same bits in any of them.
    """

    def max_bits(self) -> int:
        """Return the most bits: 2^32 for one bitmap, PHP's largest int for all shards together."""
        return _MAX_PHP_INT if self.is_shard and not self.revised else MAX_BITMAP_BITS

    def key(self, name: str) -> str:
        """Return the key of a filter: its name, with `:0` appended in v3 as revised."""
        return f"{name}:0" if self.revised and not self.is_shard else name

    def probes(self, encoded: bytes) -> list[int]:
        """Return the bits of an encoded item in probe order."""
        mask = _MAX_PHP_INT if self.revised else _MASK
        return [bkdr(encoded, seed, mask) % self.num_bits for seed in seeds(self.num_hashes)]


class PhpBkdrShard(NamedTuple, Generic[S]):
    """A shard: a `BloomFilter` over this server's client with this key and layout."""

    server: S
    key: str
    layout: PhpBkdr


class PhpBkdrShards(tuple[PhpBkdrShard[S], ...]):
    """The shards of a filter, in the order of the remainders of an item's CRC-32."""

    __slots__ = ()

    def of(self, item: Item) -> PhpBkdrShard[S]:
        """Return the shard of an item.  Raises `TypeError` or `ValueError` for an item that is none."""
        return self[crc32(self[0].layout.encode(item)) % len(self)]


def num_partitions(num_bits: int, servers: int) -> int:
    """Return the number of keys a server: ceil(ceil(m / servers) / 2^32), or 1 up to 2^32 bits."""
    if num_bits <= MAX_BITMAP_BITS:
        return 1
    return math.ceil(math.ceil(num_bits / servers) / MAX_BITMAP_BITS)


def php_bkdr(num_bits: SupportsIndex, num_hashes: SupportsIndex, *, revised: bool = False) -> PhpBkdr:
    """Return the layout of `new Bf(key, num_bits, num_hashes)`, in one key of one server.

    `revised` selects v3 as it was revised later.  PHP takes no capacity.  The layout's `capacity` is the best
    for this number of hashes: it sets half the bits.  Its `error_rate` is the rate at that capacity.
    """
    return _layout(num_bits, num_hashes, revised=revised)


def php_bkdr_shards(
    name: str,
    num_bits: SupportsIndex,
    num_hashes: SupportsIndex,
    servers: Sequence[S],
    *,
    partitions: SupportsIndex | None = None,
    revised: bool = False,
) -> PhpBkdrShards[S]:
    """Return the shards of `new Bf(name, num_bits, num_hashes)` in v3: the server, key and layout of each.

    Each shard is a `BloomFilter` of its own.  `of(item)` of the result returns the shard of an item.  One
    CRC-32 chooses both its server and its key there, so some of the keys stay empty if the numbers of servers
    and of keys have a common divisor; these are left out.

    :param servers: in PHP's order: the clients, or whatever stands for the servers in the result.
    :param partitions: keys on each server, if their number differs from the one that v3 computes.
    :param revised: v3 as it was revised later, with one key on each server.
    """
    arguments.name(name)
    if not servers:
        raise ValueError("servers must name at least one server")
    if revised and partitions is not None:
        raise ValueError("v3 as revised has one key on each server; omit partitions")
    bits = sizing.positive("num_bits", num_bits)
    if revised:
        keys = [f"{name}:0"]
        layout = _layout(-(-bits // len(servers)), num_hashes, revised=True, is_shard=True)
    else:
        count = num_partitions(bits, len(servers)) if partitions is None else partitions
        keys = [f"{name}.{i}" for i in range(sizing.positive("partitions", count))]
        layout = _layout(bits, num_hashes, is_shard=True)
    return PhpBkdrShards(
        PhpBkdrShard(servers[i % len(servers)], keys[i % len(keys)], layout)
        for i in range(math.lcm(len(servers), len(keys)))
    )


def _layout(
    num_bits: SupportsIndex, num_hashes: SupportsIndex, *, revised: bool = False, is_shard: bool = False
) -> PhpBkdr:
    bits, hashes = sizing.positive("num_bits", num_bits), sizing.positive("num_hashes", num_hashes)
    capacity, error_rate = half_full(bits, hashes)
    return PhpBkdr(
        num_bits=bits,
        num_hashes=hashes,
        capacity=capacity,
        error_rate=error_rate,
        revised=revised,
        is_shard=is_shard,
    )
