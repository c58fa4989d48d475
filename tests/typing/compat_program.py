"""A user's program that shares bitmaps with other systems: every layout."""

from datetime import timedelta
from typing import assert_type

import redis
import redis.asyncio

import bloomredis.asyncio
from bloomredis import BloomFilter
from bloomredis.compat import (
    from_guava,
    from_redisbloom,
    go_zero,
    guava,
    jedis,
    php_bkdr,
    php_bkdr_shards,
    redis_bitmaps,
    redis_template,
    redisson,
    to_guava,
)

LAYOUTS = (
    go_zero(1 << 20),
    jedis(1_000_000, 0.01),
    redis_template(1_000_000, 0.01),
    php_bkdr(1 << 20, 7, revised=True),
    redis_bitmaps(1_000_000, 0.01),
    guava(1_000_000, 0.01),
    guava(1_000_000, 0.01, strategy="MITZ_32", num_hashes=5),
    redisson(1_000_000, 0.01),
)


def each_layout(client: redis.Redis, async_client: redis.asyncio.Redis) -> None:
    """A layout describes itself, and makes a filter in both drivers."""
    for layout in LAYOUTS:
        assert_type(layout.num_bits, int)
        assert_type(layout.num_hashes, int)
        assert_type(layout.offsets("a"), list[int])
        BloomFilter(client, "theirs", layout=layout).add("a")
        bloomredis.asyncio.BloomFilter(async_client, "theirs", layout=layout)


def one_by_one(client: redis.Redis, servers: list[redis.Redis]) -> None:
    """Each layout as its users write it."""
    BloomFilter(client, "theirs", layout=go_zero(1 << 20))
    BloomFilter(client, "theirs", layout=jedis(1_000, 0.01, insert_ttl=3600))
    BloomFilter(client, "theirs", layout=redis_template(1_000, 0.01, insert_ttl=timedelta(hours=1)))
    BloomFilter(client, "theirs", layout=redis_bitmaps(1_000, 0.01))
    BloomFilter(client, "theirs", layout=guava(1_000, 0.01))
    BloomFilter(client, "theirs", layout=redisson(1_000, 0.01))
    shards = php_bkdr_shards("theirs", 1 << 20, 7, servers, partitions=2, revised=False)
    assert_type(shards.of("a").server, redis.Redis)
    for server, key, layout in shards:
        BloomFilter(server, key, layout=layout).add("a")


def transfers(client: redis.Redis, data: bytes, chunks: list[tuple[int, bytes]]) -> None:
    """Import and export."""
    theirs = from_guava(client, "theirs", data)
    assert_type(theirs, BloomFilter)
    assert_type(theirs.add("a"), bool)
    assert_type(to_guava(theirs), bytes)
    assert_type(from_redisbloom(client, "theirs", chunks).contains_many(["a"]), list[bool])


async def async_transfers(client: redis.asyncio.Redis, data: bytes, chunks: list[tuple[int, bytes]]) -> None:
    """Import and export with an asyncio client."""
    theirs = await from_guava(client, "theirs", data)
    assert_type(theirs, bloomredis.asyncio.BloomFilter)
    assert_type(await theirs.add("a"), bool)
    assert_type(await to_guava(theirs), bytes)
    assert_type(await from_redisbloom(client, "theirs", chunks), bloomredis.asyncio.BloomFilter)
