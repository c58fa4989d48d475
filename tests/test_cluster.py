"""Cluster clients: the scripts' keys share a slot, and pipelines run EVALSHA."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.cluster import ClusterNode

import bloomredis.asyncio
from bloomredis import BloomFilter
from tests.servers import binaries, running

NAMES = ["seen", "tag{ged}", "{ged}"]


def free_port() -> int:
    """A port whose cluster bus port, 10,000 above, is in range too."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port < 55_000:
            return port


@pytest.fixture(params=["redis-8", "valkey-9"], scope="module")
def cluster_port(request: pytest.FixtureRequest) -> Iterator[int]:
    """A cluster of one node that serves every slot."""
    port = free_port()
    options = ("--bind", "127.0.0.1", "--port", str(port), "--cluster-enabled", "yes", "--save", "")
    with running(binaries()[request.param], *options) as server, server.client() as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        deadline = time.monotonic() + 20
        while "cluster_state:ok" not in str(client.execute_command("CLUSTER", "INFO")):
            assert time.monotonic() < deadline
            time.sleep(0.01)  # polling a condition, with a deadline
        yield port


@pytest.fixture
def cluster(cluster_port: int) -> Iterator[Any]:
    """A synchronous cluster client; the cluster is empty and knows no script."""
    client: Any = redis.RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", cluster_port)])  # type: ignore[no-untyped-call]  # redis-py has it so
    client.flushall()
    client.script_flush()
    yield client
    client.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_cluster_client_does_as_well(cluster: Any, name: str) -> None:
    """Receipts, which are keys of their own, lie in the filter's slot."""
    f = BloomFilter(cluster, name, capacity=1000, error_rate=1e-6)
    assert f.add_many(["a", "b", "a"]) == [True, True, False]
    assert not f.add("a")
    assert f.info().count == 2
    f.clear()
    assert f.add("a")
    assert f.delete()


def test_a_cluster_pipeline(cluster: Any) -> None:
    """Queued calls of two filters are answered at their places, also when the scripts were flushed."""
    filters = [BloomFilter(cluster, name, capacity=1000, error_rate=1e-6) for name in NAMES[:2]]
    for round_ in range(2):
        cluster.script_flush()
        pipe = cluster.pipeline()
        for i in range(100):
            filters[i % 2].queue_add(pipe, f"{round_}-{i // 4}")
        assert pipe.execute() == [1, 1, 0, 0] * 25


def test_the_asyncio_cluster_client(cluster_port: int, cluster: Any) -> None:
    """Calls share round trips, and a pipeline is answered."""

    async def main() -> None:
        nodes: list[Any] = [redis.asyncio.cluster.ClusterNode("127.0.0.1", cluster_port)]
        async with redis.asyncio.RedisCluster(startup_nodes=nodes) as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", capacity=1000, error_rate=1e-6)
            assert sum(await asyncio.gather(*(f.add(f"{i % 50}") for i in range(100)))) == 50
            pipe = client.pipeline()
            for item in ("x", "y", "x"):
                await f.queue_add(pipe, item)
            assert await pipe.execute() == [1, 1, 0]

    asyncio.run(main())
