"""A layout of each other system, and of each case of the vectors."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from bloomredis import compat
from bloomredis.compat.bitmap import Bitmap
from bloomredis.compat.redisbloom import (
    ENTS_IS_BITS,
    FORCE64,
    NO_SCALING,
    NOROUND,
    RedisBloom,
    link_size,
)
from tests.support.vectors import Row


def redisbloom_options(row: Row) -> int:
    words = {"NOROUND": NOROUND, "ENTS_IS_BITS": ENTS_IS_BITS, "FORCE64": FORCE64, "NO_SCALING": NO_SCALING}
    return sum(words.get(word, 0) for word in row["options"].split("|"))


def redisbloom_link(case: Row) -> RedisBloom:
    options = redisbloom_options(case)
    size = link_size(case["capacity"], case["error_rate"], options)
    return RedisBloom(
        num_bits=size.num_bits,
        num_hashes=size.num_hashes,
        capacity=size.entries,
        error_rate=size.error_rate,
        n2=size.n2,
        hash_bits=64 if options & FORCE64 else 32,
    )


MAKE: dict[str, Callable[[Row], Bitmap]] = {
    "go_zero": lambda case: compat.go_zero(case["num_bits"]),
    "guava_mitz32": lambda case: compat.guava(case["capacity"], case["error_rate"], "MITZ_32"),
    "guava_mitz64": lambda case: compat.guava(case["capacity"], case["error_rate"]),
    "jedis": lambda case: compat.jedis(case["capacity"], case["error_rate"]),
    "php_bkdr": lambda case: compat.php_bkdr(case["num_bits"], case["num_hashes"]),
    "redis_bitmaps": lambda case: compat.redis_bitmaps(case["capacity"], case["error_rate"]),
    "redis_template": lambda case: compat.redis_template(case["capacity"], case["error_rate"]),
    "redisbloom": redisbloom_link,
    "redisson": lambda case: compat.redisson(case["capacity"], case["error_rate"]),
}
LAYOUTS: list[Bitmap] = [
    compat.go_zero(60_000_000),
    compat.guava(1000, 0.01),
    compat.guava(1000, 0.01, strategy="MITZ_32"),
    compat.jedis(1000, 0.01),
    compat.php_bkdr(35_000_000, 20),
    compat.redis_bitmaps(1000, 0.01),
    compat.redis_template(1000, 0.01),
    compat.redisson(1000, 0.01),
    redisbloom_link({"capacity": 1000, "error_rate": 0.01, "options": "NOROUND|FORCE64"}),
    redisbloom_link({"capacity": 1000, "error_rate": 0.01, "options": "0"}),
]
NAMED = pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)


def redis_string(offsets: list[int], size: int) -> bytes:
    """Return the string that SETBIT gives for these offsets."""
    bits = bytearray(size)
    for offset in offsets:
        bits[offset >> 3] |= 0x80 >> (offset & 7)
    return bytes(bits)


def unpacked(packed: bytes, layout: Bitmap) -> list[list[int]]:
    """Return the offsets of each item in a script's argument."""
    return [list(found) for found in struct.iter_unpack(f"<{layout.num_hashes}I", packed)]
