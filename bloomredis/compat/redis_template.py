"""The layout of the Java `RedisBloomFilter` over Spring's RedisTemplate and Lua.

It hashes the UTF-16 code units of a String, so its items are text only.  Each of its calls takes a key; here
each key has a filter object, which a program keeps.  CityHash64 comes from the library cityhash:
`pip install 'bloomredis[redis-template]'`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cache, lru_cache
from typing import SupportsIndex, cast

from mmh3 import hash64

from bloomredis.bits import encoding, sizing
from bloomredis.bits.arrays import np
from bloomredis.bits.encoding import Item
from bloomredis.compat.bitmap import ExpiringBitmap
from bloomredis.compat.hashes import java, longs
from bloomredis.later import imported


@cache
def _city_hash() -> Callable[[bytes], int]:
    """Return the function CityHash64 of version 1.1."""
    try:
        found = imported("cityhash").CityHash64  # only this layout needs it
    except ImportError as error:
        raise ImportError(
            "redis_template needs CityHash64: pip install 'bloomredis[redis-template]'"
        ) from error
    return cast("Callable[[bytes], int]", found)


@lru_cache(maxsize=256)
def _steps(hashes: int) -> longs.Steps:
    return tuple((1, i, i * i) for i in range(hashes))


class RedisTemplate(ExpiringBitmap):
    """Probe i is ((h1 + i h2 + i^2) & Long.MAX_VALUE) % num_bits.

    h1 is the first half of MurmurHash3 x64 128, and h2 is CityHash64.  Both hash the text as little-endian
    UTF-16; unpaired surrogates are kept as code units.
    """

    name = "redis_template"

    def encode(self, item: Item) -> bytes:
        """Return the UTF-16 of a str, of the decimal digits of an int, or of bytes decoded as UTF-8.

        Raises `TypeError` for every other type.  Raises `ValueError` for bytes that are not UTF-8, since a
        Java String cannot hold them.
        """
        if not isinstance(item, str):
            try:
                item = encoding.encode(item).decode()
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"item {item!r} is not UTF-8 ({error.reason}), and redis_template hashes only text"
                ) from None
        return item.encode("utf-16-le", "surrogatepass")

    def encode_all(self, items: Sequence[Item]) -> Sequence[str | bytes]:
        """Return the encoded items of a batch; a str is converted too, or its UTF-8 would be hashed."""
        return [self.encode(item) for item in items]

    def probes(self, encoded: bytes) -> list[int]:
        """Return the bits of an encoded item in probe order."""
        h1 = hash64(encoded, signed=False)[0]
        return longs.probes(h1, _city_hash()(encoded), _steps(self.num_hashes), self.num_bits)

    def pack(self, items: Sequence[str | bytes]) -> bytes:
        """Return the offsets of encoded items as little-endian u32, item after item."""
        encoded = cast("Sequence[bytes]", items)
        hashes = longs.murmurs(encoded).copy()
        hashes[:, 1] = np.fromiter(map(_city_hash(), encoded), dtype=np.uint64, count=len(encoded))
        return longs.packed_probes(hashes, _steps(self.num_hashes), self.num_bits)


def num_bits(capacity: int, error_rate: float) -> int:
    """Return the number of bits: (long) (-n ln p / (ln 2)^2), with p as a 32-bit float."""
    return java.to_long(java.bits_needed(capacity, java.to_float32(error_rate)))


def num_hashes(capacity: int, bits: int) -> int:
    """Return the number of hashes: (int) round(m / n ln 2), which may be 0."""
    return java.rounded_int(java.divided(float(bits), capacity) * math.log(2))


def redis_template(
    capacity: SupportsIndex, error_rate: float, *, insert_ttl: float | timedelta | None = None
) -> RedisTemplate:
    """Return the layout of `RedisBloomFilter.create(capacity, error_rate, template)`.

    With `insert_ttl`, in seconds or as a timedelta, each insert renews the key's time to live, as in the
    original.

    Raises `ImportError` if cityhash is not installed.  Raises `ValueError` for a capacity that is not a Java
    int, for an error rate outside (0, 1), and for parameters that give no bit or no hash: with these the
    original reports every item as present.
    """
    _city_hash()
    count = java.int_capacity(capacity)
    rate = sizing.checked_error_rate(error_rate)
    bits = num_bits(count, rate)
    return RedisTemplate(
        num_bits=bits,
        num_hashes=num_hashes(count, bits),
        capacity=count,
        error_rate=rate,
        insert_ttl=insert_ttl,
    )
