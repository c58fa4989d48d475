"""An address leads to another primary after a failover, while open connections stay with the former one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any, Final

import pytest
import redis
import redis.asyncio
import valkey

import bloomredis
import bloomredis.asyncio
from bloomredis import BloomFilter, ServerRefusedError
from tests.support.proxy import Proxy, proxied
from tests.support.replicas import attach, primary_options
from tests.support.servers import Server, binaries, running
from tests.support.waiting import wait_until

SIZE: Final[dict[str, Any]] = {"capacity": 1000, "error_rate": 1e-9}
KINDS: Final[dict[str, dict[str, Any]]] = {
    "BloomFilter": {},
    "CountingBloomFilter": {},
    "ScalingBloomFilter": {},
    "RotatingBloomFilter": {"window": 3600},
    "ShardedBloomFilter": {"shards": 3},
}


class Address:
    """An address, and the two servers that it may lead to."""

    def __init__(self, proxy: Proxy, servers: list[Server]) -> None:
        self.proxy, self._servers = proxy, servers

    def fail_over(self) -> None:
        """Make the replica the primary and the other way round; only new connections reach the primary."""
        old, new = self._servers
        with old.client() as before, new.client() as after:
            before.wait(1, 5000)
            after.replicaof("NO", "ONE")
            before.replicaof("127.0.0.1", new.options[3])
        self.proxy.turn_to(new.socket)
        self._servers.reverse()

    def settle(self) -> None:
        """Wait until the replica follows, with an empty server."""
        primary, replica = self._servers
        with primary.client() as client, replica.client() as other:
            client.flushall()
            wait_until("the replica follows", lambda: other.info("replication")["master_link_status"] == "up")


@pytest.fixture(scope="module")
def pair() -> Iterator[Address]:
    with ExitStack() as stack:
        binary = binaries()["redis-8"]
        servers = [stack.enter_context(running(binary, *primary_options())) for _ in range(2)]
        attach(*servers)
        yield Address(stack.enter_context(proxied(servers[0].socket)), servers)


@pytest.fixture
def address(pair: Address) -> Address:
    pair.settle()
    return pair


def answers(call: Any) -> list[object]:
    """Return the answers to five calls; None for each that was refused."""
    found: list[object] = [None] * 5
    for i in range(5):
        with suppress(ServerRefusedError):
            found[i] = call(f"after {i}")
    return found


def _blocking(package: Any, port: int) -> Any:
    return package.BlockingConnectionPool(port=port)


POOLS: Final[dict[str, Any]] = {
    "redis": lambda port: redis.Redis(port=port),
    "redis, blocking": lambda port: redis.Redis(connection_pool=_blocking(redis, port)),
    "valkey": lambda port: valkey.Valkey(port=port),
    "valkey, blocking": lambda port: valkey.Valkey(connection_pool=_blocking(valkey, port)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pool", POOLS)
def test_the_next_call_reaches_the_new_primary(address: Address, kind: str, pool: str) -> None:
    """One call at most is refused, and then no connection leads to the former primary any more."""
    with POOLS[pool](address.proxy.port) as client:
        f = getattr(bloomredis, kind)(client, "seen", **SIZE, **KINDS[kind])
        assert f.add("before")
        address.fail_over()
        assert answers(f.add)[1:] == [True] * 4
        assert not f.add("before")


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_call_of_a_task_does(address: Address, kind: str) -> None:
    """The same with asyncio, for tasks that share round trips."""

    async def main() -> None:
        async with redis.asyncio.Redis(port=address.proxy.port) as client:
            f = getattr(bloomredis.asyncio, kind)(client, "seen", **SIZE, **KINDS[kind])
            assert await f.add("before")
            address.fail_over()
            first = await asyncio.gather(*(f.add(f"x{i}") for i in range(20)), return_exceptions=True)
            assert {type(each) for each in first} <= {bool, ServerRefusedError}
            assert all(await asyncio.gather(*(f.add(f"y{i}") for i in range(20))))
            assert not await f.add("before")

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_a_commit_is_made_by_the_new_primary(address: Address, kind: str) -> None:
    """It is repeated over a new connection, so work that was done is marked."""
    with redis.Redis(port=address.proxy.port) as client:
        f = getattr(bloomredis, kind)(client, "seen", **SIZE, **KINDS[kind])
        claims = f.claim_many(["a", "b", "c"], lease=60)
        address.fail_over()
        claims[0].commit()
        assert f.commit_many(claims[1:]) == ["done", "done"]
        assert all(f.contains_many(["a", "b", "c"]))


def test_an_address_that_stays_a_replica(address: Address) -> None:
    """Its connections are closed at most once a second, however many calls are refused."""
    with redis.Redis(port=address.proxy.port) as client, address.proxy.client() as other:
        f = BloomFilter(client, "seen", **SIZE)
        assert f.add("before")
        address.fail_over()
        f.contains("before")
        with suppress(ServerRefusedError):
            f.add("x")
        before = other.info("stats")["total_connections_received"]
        other.execute_command("REPLICAOF", "127.0.0.1", "1")
        try:
            assert answers(f.add) == [None] * 5
            assert other.info("stats")["total_connections_received"] - before <= 2
        finally:
            other.execute_command("REPLICAOF", "NO", "ONE")
            address.fail_over()
