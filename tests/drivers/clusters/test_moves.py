"""Filters that are copied, restored and merged from and to clusters."""

from __future__ import annotations

import asyncio
import io
from itertools import count
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.crc import key_slot

import bloomredis
import bloomredis.asyncio
from bloomredis import BloomFilter, ScalingBloomFilter, ShardedBloomFilter
from bloomredis.stored.shards import record as shard_record
from tests.support.clusters import Cluster
from tests.support.saving import ABSENT, ITEMS, KINDS, comparable
from tests.support.servers import binaries, running

ASKED = [*ITEMS, *ABSENT]
SHARDS = 16
IN_SHARDS: dict[str, Any] = {"capacity": 20_000, "error_rate": 1e-4, "shards": SHARDS}


@pytest.fixture(scope="module")
def single() -> Any:
    """A client of one server."""
    with running(binaries()["redis-8"]) as server, server.client() as made:
        yield made


@pytest.mark.parametrize("kind", KINDS)
def test_filters_move_to_a_server_and_back(cluster_client: Any, single: redis.Redis, kind: str) -> None:
    """A copy gives the same answers on one server, and back in the cluster under another name."""
    of, parameters = KINDS[kind]
    single.flushall()
    f = getattr(bloomredis, of)(cluster_client, "seen", **parameters)
    f.add_many(ITEMS)
    wanted = f.contains_many(ASKED)
    away = f.copy(single, "copy")
    assert away.contains_many(ASKED) == wanted
    back = away.copy(cluster_client, "back")
    assert back.contains_many(ASKED) == wanted
    assert comparable(back.info()) == comparable(f.info())
    file = io.BytesIO()
    back.save(file)
    file.seek(0)
    assert type(f).restore(cluster_client, "restored", file).contains_many(ASKED) == wanted


def test_merges_in_a_cluster(cluster_client: Any) -> None:
    """Filters in one slot or in two are merged, with and without shards."""
    for names in (("{tag}one", "{tag}other"), ("one", "other")):
        one, other = (BloomFilter(cluster_client, name, capacity=5_000, error_rate=0.01) for name in names)
        one.add_many(range(500))
        other.add_many(range(400, 900))
        one.merge(other)
        assert all(one.contains_many(range(900)))
        assert abs(one.info().count - 900) < 30
    whole: dict[str, Any] = {"capacity": 5_000, "error_rate": 0.01, "shards": 4}
    some, more = (ShardedBloomFilter(cluster_client, name, **whole) for name in ("some", "more"))
    some.add_many(range(500))
    more.add_many(range(400, 900))
    some.merge(more)
    assert all(some.contains_many(range(900)))


def one_slot_in_common() -> tuple[str, str]:
    """Return the names of two sharded filters of which a pair of shards, but not the last, shares a slot."""
    slots = slots_of("some")
    for number in count():
        pairs = zip(slots, slots_of(name := f"more-{number}"), strict=True)
        if any(one == other for one, other in list(pairs)[:-1]):
            return "some", name
    raise AssertionError


def slots_of(name: str) -> list[int]:
    """Return the slots of a filter's shards."""
    return [key_slot(shard_record.key(name, SHARDS, number).encode()) for number in range(SHARDS)]


def test_shards_in_one_slot_are_merged_among_others(cluster_client: Any) -> None:
    """Shards that share a slot are merged by the server; the others are merged with the right shards."""
    some, more = (ShardedBloomFilter(cluster_client, name, **IN_SHARDS) for name in one_slot_in_common())
    some.add_many(range(500))
    more.add_many(range(400, 2900))
    some.merge(more)
    assert all(some.contains_many(range(2900)))


def test_shards_in_one_slot_are_merged_with_asyncio(nodes: Cluster) -> None:
    """The asyncio client merges them correctly too."""

    async def main() -> None:
        async with redis.asyncio.RedisCluster(host="127.0.0.1", port=nodes.primaries()[0].port) as client:
            some, more = (
                bloomredis.asyncio.ShardedBloomFilter(client, name, **IN_SHARDS)
                for name in one_slot_in_common()
            )
            await some.add_many(range(500))
            await more.add_many(range(400, 2900))
            await some.merge(more)
            assert all(await some.contains_many(range(2900)))

    asyncio.run(main())


def test_a_filter_of_a_cluster_is_adopted(cluster_client: Any) -> None:
    """An adopted filter's layers lie in its slot."""
    BloomFilter(cluster_client, "full", capacity=500, error_rate=0.01).add_many(range(500))
    grown = ScalingBloomFilter.adopt(cluster_client, "full")
    grown.add_many(range(500, 2000))
    assert all(grown.contains_many(range(2000)))


def test_moves_with_asyncio(nodes: Cluster) -> None:
    """The asyncio client of a cluster moves filters in the same way."""

    async def main() -> None:
        node = nodes.primaries()[0]
        async with redis.asyncio.RedisCluster(host="127.0.0.1", port=node.port) as client:
            whole: dict[str, Any] = {"capacity": 5_000, "error_rate": 0.01, "shards": 4}
            f = bloomredis.asyncio.ShardedBloomFilter(client, "aio", **whole)
            await f.add_many(ITEMS)
            copy = await f.copy(client, "aio-copy")
            assert await copy.contains_many(ASKED) == await f.contains_many(ASKED)
            other = bloomredis.asyncio.ShardedBloomFilter(client, "aio-other", **whole)
            await other.add_many(range(5000, 6000))
            await copy.merge(other)
            assert all(await copy.contains_many(range(5000, 6000)))

    asyncio.run(main())
