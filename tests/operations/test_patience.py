"""Patience: commits are retried until their leases end; claims with fewer connections than callers."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

import bloomredis.asyncio
from bloomredis import (
    BatchInterruptedError,
    BloomFilter,
    ClaimLostError,
    ConnectionFailedError,
    OutcomeUnknownError,
    ServerRefusedError,
    ShardedBloomFilter,
)
from tests.support.clock import Clock
from tests.support.inside import client_of
from tests.support.proxy import lost, proxied
from tests.support.servers import Server, running
from tests.support.values import for_each
from tests.support.waiting import wait_until
from tests.support.wrapping import wrapped

SIZE: dict[str, Any] = {"capacity": 10_000, "error_rate": 1e-9}
ITEMS = [f"{i}" for i in range(60)]
KEPT = ("--appendonly", "yes", "--appendfsync", "always")

Commit = Callable[[Any, Any], None]


def by_block(_: Any, claim: Any) -> None:
    """Leave a block with the claim."""
    with claim:
        pass


COMMITS: list[Commit] = [
    lambda _, claim: claim.commit(),
    by_block,
    lambda f, claim: f.commit_many([claim]),
]


def impatient(server: Server, **options: Any) -> redis.Redis:
    """A client without retries of its own."""
    return server.client(retry=Retry(NoBackoff(), 0), **options)


@for_each("make", [BloomFilter, ShardedBloomFilter])
@for_each("package", [redis, valkey])
def test_more_threads_than_connections(any_server: Server, make: Any, package: Any) -> None:
    """Each of 30 threads that wait for one of three connections does its work once."""
    pool = package.BlockingConnectionPool(
        connection_class=package.UnixDomainSocketConnection, path=any_server.socket, max_connections=3
    )
    f, done, start = (
        make(package.Redis(connection_pool=pool), "seen", **SIZE),
        Counter[str](),
        threading.Barrier(30),
    )

    def work(item: str) -> None:
        done[item] += 1
        f.claim(f"{item} too").release()

    once = f.once(None, lease=60)(work)

    def run(number: int) -> None:
        start.wait()
        for item in ITEMS[number::30]:
            once(item)

    with ThreadPoolExecutor(30) as threads:
        list(threads.map(run, range(30)))
    assert done == Counter(ITEMS)
    assert all(f.contains_many(ITEMS))
    assert f.claim("0 too")
    pool.disconnect()


def test_more_tasks_than_connections(any_server: Server) -> None:
    """The same holds for tasks, with all methods of claims."""
    done: Counter[str] = Counter()

    async def main() -> None:
        pool = redis.asyncio.BlockingConnectionPool(
            connection_class=redis.asyncio.UnixDomainSocketConnection,
            path=any_server.socket,
            max_connections=2,
        )
        async with redis.asyncio.Redis.from_pool(pool) as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", **SIZE)

            async def work(item: str) -> None:
                async with f.claim(item, lease=60) as claim:
                    if claim:
                        done[item] += 1
                        await claim.extend(60)
                        await f.extend_many([claim], 60)
                other = await f.claim(f"{item} too")
                await other.release()
                await f.release_many(await f.claim_many([f"{item} too"]))

            await asyncio.gather(*map(work, [*ITEMS, *ITEMS]))
            assert all(await f.contains_many(ITEMS))

    asyncio.run(main())
    assert done == Counter(ITEMS)


@for_each("package", [redis, valkey])
@for_each("kind", ["ConnectionPool", "BlockingConnectionPool"])
def test_no_connection_for_a_claim(any_server: Server, package: Any, kind: str) -> None:
    """Nothing was sent, as for any other call: the claim raises ConnectionFailedError, which names a pool."""
    waits = {"timeout": 0.1} if kind == "BlockingConnectionPool" else {}
    pool = getattr(package, kind)(
        connection_class=package.UnixDomainSocketConnection,
        path=any_server.socket,
        max_connections=1,
        **waits,
    )
    f = BloomFilter(package.Redis(connection_pool=pool), "seen", **SIZE)
    f.add("warm")
    taken = pool.get_connection(*["EVALSHA"] if package is valkey else [])
    for call in (f.add, f.claim):
        with pytest.raises(ConnectionFailedError, match="BlockingConnectionPool") as caught:
            call("a")
        assert (type(caught.value), caught.value.sent) == (ConnectionFailedError, False)
    pool.release(taken)
    assert f.claim("a")
    pool.disconnect()


@for_each("commit", COMMITS)
def test_a_connection_that_comes_late(any_server: Server, commit: Commit) -> None:
    """A commit that finds no free connection is retried."""
    with any_server.client(max_connections=1) as client:
        f = BloomFilter(client, "seen", **SIZE)
        claim = f.claim("a", lease=60)
        taken = client.connection_pool.get_connection()
        back = threading.Timer(0.2, client.connection_pool.release, (taken,))
        back.start()
        commit(f, claim)
        back.join()
        assert claim.state == "done"


@for_each("commit", COMMITS)
def test_a_connection_that_never_comes(any_server: Server, commit: Commit) -> None:
    """The commit raises the client's error when its lease has ended."""
    with any_server.client(max_connections=1) as client:
        f = BloomFilter(client, "seen", **SIZE)
        claim = f.claim("a", lease=0.3)
        taken = client.connection_pool.get_connection()
        with pytest.raises((ConnectionFailedError, BatchInterruptedError), match="Too many connections"):
            commit(f, claim)
        assert claim.lost
        client.connection_pool.release(taken)


@pytest.mark.parametrize("verb", ["claim", "claim_many", "extend", "extend_many"])
def test_a_lease_begins_when_its_call_is_sent(
    bloom: Any, any_client: redis.Redis, clock: Clock, verb: str
) -> None:
    """A call that waits in the client for most of the lease, or for longer, holds the item for all of it."""
    f = bloom(wrapped(any_client), "seen", **SIZE)
    (held,) = f.claim_many(["warm"], lease=30)
    f.extend_many([held], 30)
    waiting(client_of(getattr(f, "_filter", f)), clock, 25)
    if verb == "claim":
        held = f.claim("a", lease=20)
    elif verb == "claim_many":
        (held,) = f.claim_many(["a"], lease=20)
    elif verb == "extend":
        bloom.wait(held.extend(30))
    else:
        f.extend_many([held], 30)
    assert not held.lost
    assert held.remaining > 15


def waiting(client: Any, clock: Clock, seconds: float) -> None:
    """Let the client's next call wait for so long, as for a connection, before it sends anything."""
    execute, calls = client.execute_command, count()

    def first() -> None:
        if next(calls) == 0:
            clock.advance(seconds)

    def execute_command(*command: Any, **options: Any) -> Any:
        first()
        return execute(*command, **options)

    async def execute_in_task(*command: Any, **options: Any) -> Any:
        first()
        return await execute(*command, **options)

    is_asyncio = isinstance(client, redis.asyncio.Redis)
    client.execute_command = execute_in_task if is_asyncio else execute_command


@for_each("commit", COMMITS)
def test_a_restart_within_the_lease(
    any_server: Server, commit: Commit, caplog: pytest.LogCaptureFixture
) -> None:
    """Work that ends while the server restarts is committed when the server is back."""
    with running(any_server.binary, *KEPT) as server, impatient(server) as client:
        f = BloomFilter(client, "seen", **SIZE)
        claim = f.claim("a", lease=60)
        server.stop()
        back = threading.Timer(0.5, server.start)
        back.start()
        try:
            with caplog.at_level(logging.WARNING, "bloomredis"):
                commit(f, claim)
        finally:
            back.join()
        assert (claim.state, "a" in f) == ("done", True)
        assert "retried until their leases end" in caplog.text


def test_a_restart_while_tasks_commit(any_server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Many tasks end while the server restarts: each has run once and is committed."""
    done: Counter[str] = Counter()

    async def main(server: Server) -> None:
        retry = AsyncRetry(NoBackoff(), 0)
        async with redis.asyncio.Redis(unix_socket_path=server.socket, retry=retry) as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", **SIZE)
            begun, stopped = asyncio.Event(), asyncio.Event()

            @f.once(None, lease=60)
            async def work(item: str) -> None:
                done[item] += 1
                if len(done) == len(ITEMS):
                    begun.set()
                await stopped.wait()

            tasks = [asyncio.create_task(work(item)) for item in ITEMS]
            await begun.wait()
            await asyncio.to_thread(server.stop)
            stopped.set()
            await asyncio.to_thread(wait_until, "commits fail", lambda: "commits are retried" in caplog.text)
            await asyncio.to_thread(server.start)
            await asyncio.gather(*tasks)
            assert await f.add_many(ITEMS) == [False] * len(ITEMS)

    with running(any_server.binary, *KEPT) as server:
        asyncio.run(main(server))
    assert done == Counter(ITEMS)


@for_each("commit", COMMITS)
def test_a_refusal_that_passes(any_server: Server, commit: Commit) -> None:
    """A commit is retried while a server refuses writes for a while."""
    with running(any_server.binary) as server, impatient(server) as client, server.client() as admin:
        f = BloomFilter(client, "seen", **SIZE)
        claim = f.claim("a", lease=60)
        admin.config_set("min-replicas-to-write", 1)
        back = threading.Timer(0.3, admin.config_set, ("min-replicas-to-write", 0))
        back.start()
        try:
            commit(f, claim)
        finally:
            back.join()
        assert claim.state == "done"


@for_each("commit", COMMITS)
def test_a_refusal_that_stays(any_server: Server, commit: Commit, caplog: pytest.LogCaptureFixture) -> None:
    """A missing right is raised at once."""
    with running(any_server.binary) as server, ExitStack() as stack:
        admin = stack.enter_context(server.client())
        admin.acl_setuser("worker", enabled=True, nopass=True, keys=["*"], commands=["+@all"])
        f = BloomFilter(
            stack.enter_context(impatient(server, username="worker", password="")), "seen", **SIZE
        )
        claim = f.claim("a", lease=60)
        admin.acl_setuser("worker", enabled=True, commands=["-evalsha", "-eval"])
        with pytest.raises((ServerRefusedError, BatchInterruptedError), match="permission"):
            commit(f, claim)
        assert "retried" not in caplog.text


@for_each("commit", COMMITS)
def test_a_server_that_stays_away(any_server: Server, commit: Commit) -> None:
    """The commit ends with the lease, and its error says that no answer came."""
    with running(any_server.binary) as server, impatient(server) as client:
        f = BloomFilter(client, "seen", **SIZE)
        claim = f.claim("a", lease=0.6)
        server.stop()
        with pytest.raises((OutcomeUnknownError, BatchInterruptedError)):
            commit(f, claim)
        assert claim.lost


@for_each("commit", COMMITS)
def test_a_lost_claim_is_told_at_once(any_server: Server, commit: Commit) -> None:
    """A lost claim is an answer, so nothing is retried."""
    with any_server.client() as client:
        f = BloomFilter(client, "seen", **SIZE)
        claim = f.claim("a", lease=60)
        client.delete(*client.keys("*claim*"))
        if commit is COMMITS[2]:
            commit(f, claim)
        else:
            with pytest.raises(ClaimLostError):
                commit(f, claim)
        assert claim.state == "lost"


@for_each("commit", COMMITS)
def test_a_commit_without_a_name_is_made_once(any_server: Server, commit: Commit) -> None:
    """With `retry_safe=False` nobody could distinguish its second answer from the first."""
    with proxied(any_server.socket) as proxy, proxy.client() as client:
        f = BloomFilter(client, "seen", retry_safe=False, **SIZE)
        f.claim("warm").commit()
        claim = f.claim("a", lease=60)
        proxy.plan("commit", lost)
        with pytest.raises((OutcomeUnknownError, BatchInterruptedError)):
            commit(f, claim)
        assert "a" in f
