"""Reads of replicas: only the primary proves that a filter still exists."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.cluster import LoadBalancingStrategy

import bloomredis.asyncio
from bloomredis import BloomFilter, FilterLostError
from tests.support.clock import Clock
from tests.support.clusters import Cluster, cluster, wait_until
from tests.support.servers import binaries

SIZE: dict[str, Any] = {"capacity": 1000, "error_rate": 1e-6}
CHECK = 1.0
FROM_REPLICAS: dict[str, Any] = {"load_balancing_strategy": LoadBalancingStrategy.RANDOM_REPLICA}


@pytest.fixture
def split() -> Iterator[Cluster]:
    """A primary, and a replica that got a filter before it was cut off; `seen` has "x" on both."""
    with cluster(binaries()["redis-8"], primaries=1, replicas=1) as nodes:
        primary, replica = nodes.nodes
        with nodes.client() as client:
            BloomFilter(client, "seen", **SIZE).add("x")
        nodes.wait_until_replicated(primary)
        replica.ask("CONFIG", "SET", "masterauth", "wrong")
        primary.ask("CLIENT", "KILL", "TYPE", "REPLICA")
        wait_until("the link is down", lambda: replica.info("replication")["master_link_status"] == "down")
        yield nodes


def test_reads_of_a_replica_do_not_prolong_a_cache(split: Cluster, clock: Clock) -> None:
    """A clear is detected when the check interval ends, however often replicas are read before."""
    with split.client(**FROM_REPLICAS) as client, split.client() as other:
        f = BloomFilter(client, "seen", local_cache=CHECK, **SIZE)
        assert not f.add("x")
        BloomFilter(other, "seen").clear()

        def read_and_add() -> None:
            for _ in range(4):
                f.contains("nothing")
                f.add("x")
                clock.advance(CHECK / 2)

        with pytest.raises(FilterLostError):
            read_and_add()


def test_reads_of_a_replica_by_tasks(split: Cluster, clock: Clock) -> None:
    """The same holds for an asyncio client."""

    async def main() -> None:
        async with redis.asyncio.RedisCluster(**split.at, **FROM_REPLICAS) as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", local_cache=CHECK, **SIZE)
            assert not await f.add("x")
            with split.client() as other:
                BloomFilter(other, "seen").clear()

            async def read_and_add() -> None:
                for _ in range(4):
                    await f.contains("nothing")
                    await f.add("x")
                    clock.advance(CHECK / 2)

            with pytest.raises(FilterLostError):
                await read_and_add()

    asyncio.run(main())


def test_a_kept_answer_does_not_depend_on_a_replica(split: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """An item still missing on a replica does not mean that the filter has forgotten it."""
    items = [f"item-{i}" for i in range(1100)]
    execute: Any = redis.Redis.execute_command
    sent = 0

    def interrupted(self: redis.Redis, *command: Any, **options: Any) -> Any:
        nonlocal sent
        sent += command[0] == "EVALSHA"
        if sent == 2:
            raise KeyboardInterrupt
        return execute(self, *command, **options)

    with split.client(**FROM_REPLICAS) as client:
        f = BloomFilter(client, "seen", **SIZE)
        assert not f.add("x")
        with monkeypatch.context() as patch:
            patch.setattr(redis.Redis, "execute_command", interrupted)
            with pytest.raises(KeyboardInterrupt):
                f.add_many(items)
        assert f.add_many(items) == [True] * 1100
