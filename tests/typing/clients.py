"""Every client that the classes accept."""

import fakeredis
import redis
import redis.asyncio
import valkey
import valkey.asyncio

import bloomredis
import bloomredis.asyncio
from bloomredis import connect

SYNC = (
    redis.Redis(host="localhost", port=6379, decode_responses=True),
    redis.RedisCluster(host="localhost", port=7000),
    valkey.Valkey(),
    valkey.ValkeyCluster(host="localhost"),
    fakeredis.FakeRedis(),
    fakeredis.FakeStrictRedis(server=fakeredis.FakeServer()),
    fakeredis.FakeValkey(),
    connect("memory://"),
    connect("embedded://", decode_responses=True),
    connect("embedded:///var/lib/seen"),
    connect("rediss://user:secret@localhost/1"),
)
ASYNC = (
    redis.asyncio.Redis(host="localhost", port=6379),
    redis.asyncio.RedisCluster(host="localhost", port=7000),
    valkey.asyncio.Valkey(),
    valkey.asyncio.ValkeyCluster(host="localhost"),
    fakeredis.FakeAsyncRedis(),
    fakeredis.FakeAsyncValkey(),
)

bloomredis.BloomFilter(redis.Redis(), "seen")
bloomredis.BloomFilter(redis.RedisCluster(host="localhost"), "seen")
bloomredis.BloomFilter(valkey.Valkey(), "seen")
bloomredis.BloomFilter(valkey.ValkeyCluster(host="localhost"), "seen")
bloomredis.BloomFilter(fakeredis.FakeRedis(), "seen")
bloomredis.BloomFilter(fakeredis.FakeValkey(), "seen")
bloomredis.BloomFilter(connect("memory://"), "seen")
bloomredis.asyncio.BloomFilter(redis.asyncio.Redis(), "seen")
bloomredis.asyncio.BloomFilter(redis.asyncio.RedisCluster(host="localhost"), "seen")
bloomredis.asyncio.BloomFilter(valkey.asyncio.Valkey(), "seen")
bloomredis.asyncio.BloomFilter(valkey.asyncio.ValkeyCluster(host="localhost"), "seen")
bloomredis.asyncio.BloomFilter(fakeredis.FakeAsyncRedis(), "seen")
bloomredis.asyncio.BloomFilter(fakeredis.FakeAsyncValkey(), "seen")

for client in SYNC:
    bloomredis.BloomFilter(client, "seen")
    bloomredis.BloomFilter.open(client, "seen")
    bloomredis.ScalingBloomFilter(client, "seen", capacity=1_000, error_rate=0.01)
    bloomredis.RotatingBloomFilter(client, "seen", capacity=1_000, error_rate=0.01, window=60)
    bloomredis.ShardedBloomFilter(client, "seen")
    bloomredis.CountingBloomFilter(client, "seen")


async def asyncio_clients() -> None:
    """Every class of asyncio, over each of the clients."""
    for async_client in ASYNC:
        bloomredis.asyncio.BloomFilter(async_client, "seen")
        await bloomredis.asyncio.BloomFilter.open(async_client, "seen")
        bloomredis.asyncio.ScalingBloomFilter(async_client, "seen", capacity=1_000, error_rate=0.01)
        bloomredis.asyncio.RotatingBloomFilter(
            async_client, "seen", capacity=1_000, error_rate=0.01, window=60
        )
        bloomredis.asyncio.ShardedBloomFilter(async_client, "seen")
        bloomredis.asyncio.CountingBloomFilter(async_client, "seen")
