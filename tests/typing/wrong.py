"""Users' mistakes; each comment has a type checker's finding for its line."""

import redis
import redis.asyncio
from redis.client import Pipeline

import bloomredis.asyncio
from bloomredis import (
    BloomFilter,
    Claim,
    CountingBloomFilter,
    RotatingBloomFilter,
    ScalingBloomFilter,
    ShardedBloomFilter,
)
from bloomredis.compat import from_guava, to_guava

client = redis.Redis()
pipe: Pipeline = client.pipeline()  # pyright: ignore[reportUnknownMemberType] - redis-py has no type for shard_hint
async_client = redis.asyncio.Redis()
seen = BloomFilter(client, "seen", capacity=1_000, error_rate=0.01)
async_seen = bloomredis.asyncio.BloomFilter(async_client, "seen")
scaling = ScalingBloomFilter(client, "seen", capacity=1_000, error_rate=0.01)


def as_bytes(number: float) -> bytes:
    """Return the bytes to hash."""
    return number.hex().encode()


def as_text(number: float) -> str:
    """Return text, which cannot be hashed."""
    return number.hex()


# Items.
seen.add(1.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
seen.add(None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
seen.add_many([1.5, 2.5])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
seen.claim(1.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
seen.queue_add(pipe, 1.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
seen.snapshot().contains(1.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
BloomFilter(client, "seen", encode=as_text)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
BloomFilter(client, "seen", encode=as_bytes).add("text")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
seen.claim("a", owner=7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
seen.commit_many(["a"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
# Parameters.
BloomFilter(client, "seen", capcity=1_000)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
BloomFilter(client, "seen", 1_000, 0.01)  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]
BloomFilter(client, "seen", capacity="many", error_rate=0.01)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
BloomFilter(client, "seen", window=60)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
BloomFilter(client, "seen", local_cache="1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
BloomFilter(client, b"seen")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
CountingBloomFilter(client, "seen", local_cache=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
ShardedBloomFilter(client, "seen", on_full="raise")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
# Clients.
BloomFilter(async_client, "seen")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
BloomFilter.open(async_client, "seen")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
ShardedBloomFilter(async_client, "seen")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
bloomredis.asyncio.BloomFilter(client, "seen")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
bloomredis.asyncio.BloomFilter(redis.RedisCluster(host="localhost"), "seen")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
ShardedBloomFilter([client], "seen")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
from_guava(object(), "seen", b"")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
to_guava(scaling)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
# Words.
BloomFilter(client, "seen", layout="bloked")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
BloomFilter(client, "seen", on_lost="ignore")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
ScalingBloomFilter(client, "seen", capacity=1_000, error_rate=0.01, layout="module")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
seen.once(print)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
# Verbs.
seen.remove("a")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
scaling.queue_add(pipe, "a")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
scaling.snapshot()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
RotatingBloomFilter(client, "seen", capacity=1_000, error_rate=0.01, window=60).expire(60)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


async def halves() -> bool:
    """The methods of one driver used like those of the other."""
    await seen.add("a")  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]
    assert "a" in async_seen  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]
    await async_seen.commit_many(seen.claim_many(["a"]))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Claim.from_token(async_seen, "")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    async with seen.claim("a"):  # type: ignore[attr-defined]  # pyright: ignore[reportGeneralTypeIssues]
        pass
    with async_seen.claim("a"):  # type: ignore[attr-defined]  # pyright: ignore[reportGeneralTypeIssues]
        pass
    return async_seen.contains("a")  # type: ignore[return-value]  # pyright: ignore[reportReturnType]
