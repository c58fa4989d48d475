"""A user's program over asyncio clients: every class and every method."""

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import assert_type

import numpy as np
import redis.asyncio
from numpy.typing import NDArray
from redis.asyncio import Redis, RedisCluster

from bloomredis import BatchInterruptedError, FilterInfo, LocalFilter, OutcomeUnknownError, Skipped
from bloomredis.asyncio import (
    BloomFilter,
    Claim,
    CountingBloomFilter,
    RotatingBloomFilter,
    ScalingBloomFilter,
    ShardedBloomFilter,
    connect,
)

log = logging.getLogger(__name__)


def as_bytes(number: float) -> bytes:
    """Return the bytes to hash."""
    return number.hex().encode()


async def stream() -> AsyncIterator[str]:
    """Yield the items of a source."""
    yield "a"


async def urls() -> None:
    """A URL in place of a client."""
    seen = BloomFilter.from_url("redis://localhost", "seen", capacity=1_000, error_rate=0.01)
    assert_type(connect("redis://localhost", socket_timeout=5), Redis)
    assert_type(seen, BloomFilter)
    await seen.close()
    async with seen as same:
        assert_type(same, BloomFilter)
    await seen.aclose()
    numbers = BloomFilter[float].from_url("memory://", "n", encode=as_bytes)
    assert_type(numbers, BloomFilter[float])
    sharded = ShardedBloomFilter.from_url("redis+cluster://host", "seen", shards=16)
    await sharded.close()


async def rarer_options(client: Redis, seen: BloomFilter, names: list[str]) -> None:
    """The options that the other functions leave out."""
    BloomFilter(
        client,
        "seen",
        capacity=1_000,
        error_rate=0.01,
        layout="classic",
        ttl=timedelta(days=7),
        on_full="raise",
        on_lost="recreate",
        local_cache=True,
        retry_safe=True,
        min_replicas=1,
        replica_timeout=0.5,
    )
    for kind in (ShardedBloomFilter, CountingBloomFilter):
        kind(client, "seen", on_lost="raise", retry_safe=False, min_replicas=1, replica_timeout=0.5)
    assert_type([name async for name in seen.dedupe(names, batch=10)], list[str])
    assert_type(await seen.claim_many(names, renew=True), list[Claim])
    await seen.save("seen.bloom", progress=print)
    restored = await BloomFilter[float].restore(
        client, "restored", "seen.bloom", encode=as_bytes, progress=print
    )
    await restored.merge(restored, progress=print)
    await ScalingBloomFilter.adopt(client, "copy", expansion=4, tightening_ratio=0.8)
    counting = CountingBloomFilter(client, "c")
    await counting.remove("a", token=None)


async def items(seen: BloomFilter, names: list[str]) -> None:
    """One and many items."""
    assert_type(seen.name, str)
    assert_type(await seen.add("a"), bool)
    assert_type(await seen.contains(b"a"), bool)
    assert_type(await seen.add_many([1, "a"]), list[bool])
    assert_type(await seen.contains_many(names), list[bool])
    assert_type(await asyncio.gather(*(seen.add(name) for name in names)), list[bool])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(seen.add("a"))
    assert_type(task.result(), bool)
    async for name in seen.dedupe(stream()):
        assert_type(name, str)
    assert_type([number async for number in seen.dedupe([1, 2])], list[int])
    async for row in seen.dedupe([{"id": "a"}], key=lambda row: row.get("id"), missing="drop"):
        assert_type(row, dict[str, str])
    assert_type(await seen.update(names, progress=print), int)
    await seen.update(stream())


async def life(client: Redis) -> None:
    """Opening, describing, clearing and deleting a filter."""
    seen = await BloomFilter.open(client, "seen")
    assert_type(seen, BloomFilter)
    await seen.create()
    assert_type(await seen.acknowledge(), bool)
    assert_type(await seen.info(), FilterInfo)
    await seen.clear()
    await seen.expire(timedelta(minutes=1))
    assert_type(await seen.delete(), bool)
    assert_type(await seen.update(["a", "b"]), int)
    local = await seen.snapshot()
    assert_type(local, LocalFilter)
    await seen.save("seen.bloom")
    assert_type(await BloomFilter.restore(client, "restored", "seen.bloom"), BloomFilter)
    copy = await seen.copy(client, "copy", progress=print)
    assert_type(copy, BloomFilter)
    await seen.merge(copy)
    await seen.merge(local)
    assert_type(await ScalingBloomFilter.adopt(client, "copy"), ScalingBloomFilter)
    assert_type(local.contains("a"), bool)
    assert_type(seen.with_client(Redis()), BloomFilter)


async def classes(client: Redis, cluster: RedisCluster) -> None:
    """The other classes."""
    scaling = ScalingBloomFilter(client, "s", capacity=1_000, error_rate=0.01, expansion=4)
    await scaling.add("a")
    await scaling.expire(60)
    rotating = RotatingBloomFilter(
        client, "r", capacity=1_000, error_rate=0.01, window=timedelta(hours=1), slices=2
    )
    await rotating.add_many(["a"])
    sharded = await ShardedBloomFilter.open(client, "h")
    await sharded.add_many(["a"])
    over = ShardedBloomFilter(cluster, "h", capacity=10**10, error_rate=0.01, shards=32)
    await over.contains("a")
    counting = CountingBloomFilter(client, "c", capacity=1_000, error_rate=0.01)
    assert_type(await counting.remove("a"), bool)
    numbers = BloomFilter(client, "n", capacity=1_000, error_rate=0.01, encode=as_bytes)
    assert_type(numbers, BloomFilter[float])
    await numbers.add(1.5)
    assert_type((await numbers.snapshot()).contains(1.5), bool)


async def queued(client: Redis, cluster: RedisCluster, seen: BloomFilter) -> None:
    """Calls on pipelines of the program's own."""
    async with client.pipeline(transaction=True) as pipe:
        await seen.queue_add(pipe, "a")
        await seen.queue_contains(pipe, "b")
        added, there = await pipe.execute()
        log.info("%s %s", added, there)
    pipeline = cluster.pipeline()
    await seen.queue_add(pipeline, "a")


async def claims(seen: BloomFilter, urls: list[str]) -> None:
    """Claims, awaited and entered."""
    async with seen.claim(urls[0], lease=60) as claim:
        assert_type(claim, Claim)
        if claim:
            log.info("%s %s", claim.item, claim.state)
    claim = await seen.claim(urls[0])
    async with claim:
        await claim.extend(timedelta(minutes=1))
    for each in await seen.claim_many(urls):
        await each.commit()
        await each.release()


async def long_claims(seen: BloomFilter, urls: list[str]) -> None:
    """Claims that renew themselves, have a named owner, or go to another process."""
    async with seen.claim(urls[0], renew=True, owner="rank-7") as claim:
        if claim and not claim.lost:
            await asyncio.sleep(claim.remaining)
    assert_type(claim.is_own, bool)
    assert_type(Claim.from_token(seen, claim.token), Claim)


async def batches_of_claims(seen: BloomFilter, urls: list[str]) -> None:
    """Many claims in one round trip."""
    claims = await seen.claim_many(urls, lease=60, owner="partition 3")
    await seen.extend_many(claims, timedelta(minutes=5))
    await seen.release_many(claims[:1])
    states = await seen.commit_many(claims)
    assert_type([state == "done" for state in states], list[bool])


async def once(seen: BloomFilter) -> None:
    """Coroutine functions that run once for an item."""

    @seen.once("ship", key=str, lease=60, renew=False)
    async def ship(order: int) -> bytes:
        return bytes(order)

    assert_type(await ship(7), bytes | Skipped)
    assert_type(await seen.contains(ship.item(7)), bool)

    async def wait(item: str, remaining: float) -> float:
        return remaining

    @seen.once("bill", on_busy=wait)
    async def bill(order: str) -> str:
        return order

    assert_type(await bill("a"), str | Skipped | float)
    async with asyncio.TaskGroup() as group:
        group.create_task(ship(8))


async def columns(seen: BloomFilter, column: NDArray[np.int64]) -> None:
    """Masks of columns."""
    assert_type(await seen.contains_mask(column), NDArray[np.bool_])
    assert_type(await seen.add_mask(column), NDArray[np.bool_])


async def faults(seen: BloomFilter, client: redis.asyncio.Redis) -> list[bool]:
    """Errors belong to the other driver."""
    try:
        return await seen.add_many(["a"])
    except BatchInterruptedError as error:
        return await seen.add_many(error.rest)
    except OutcomeUnknownError as error:
        return [await seen.with_client(client).add("a", token=error.token)]


asyncio.run(claims(BloomFilter(Redis(), "seen", capacity=1_000, error_rate=0.01), ["a", "b"]))
