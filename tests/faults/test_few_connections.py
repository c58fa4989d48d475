"""A retry that finds no free connection hides no lost reply: the call is pending, and its answer is kept."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import partial
from itertools import takewhile
from typing import Any

import pytest
import redis
import redis.asyncio

import bloomredis
import bloomredis.asyncio
from bloomredis import (
    BatchInterruptedError,
    BloomFilter,
    ConnectionFailedError,
    CountingBloomFilter,
    OutcomeUnknownError,
)
from tests.support.background import outcome, started
from tests.support.clusters import SERVERS, Cluster
from tests.support.clusters import cluster as formed
from tests.support.inside import idle, lock_of, take
from tests.support.proxy import Exchange, Fate, Proxy, passed
from tests.support.servers import Server, binaries
from tests.support.values import for_each

SIZE: dict[str, Any] = {"capacity": 20_000, "error_rate": 1e-9}
FEW: dict[str, Any] = {"socket_timeout": 0.1, "max_connections": 2}
WORKERS = 8
ENOUGH = 5
"""The calls that a storm must hit: each was lost, and then found no connection."""
SECONDS = 60
"""The limit of a storm that does not hit as many."""


@contextmanager
def _without_connection(client: redis.Redis, server: Server) -> Iterator[Callable[[], object]]:
    """Yield an action, after which the server lacks its scripts, and another caller takes the connection."""
    pool: Any = client.connection_pool
    release, taken, planned = pool.release, list[Any](), list[bool]()

    def released(connection: Any) -> None:
        release(connection)
        if planned and not taken:
            taken.append(pool.get_connection())

    def flush() -> None:
        planned.append(True)
        with server.client() as other:
            other.script_flush()

    pool.release = released
    yield flush
    del pool.release
    for connection in taken:
        release(connection)


def lost_after(action: Callable[[], object]) -> Fate:
    """Return a fate: the request is executed, then comes the action, and then the connection ends."""

    def fate(exchange: Exchange) -> bool:
        exchange.execute()
        action()
        exchange.hang_up()
        return False

    return fate


def _call(f: Any, verb: str) -> object:
    try:
        return getattr(f, verb)("x")
    except OutcomeUnknownError as error:
        return error


@for_each("verb", ["add", "remove"])
def test_no_connection_for_the_text_of_a_script(any_server: Server, any_proxy: Proxy, verb: str) -> None:
    """The call was executed, its reply lost, and the resent one met a server without scripts."""
    client = any_proxy.client(retries=2, max_connections=1)
    f: Any = (BloomFilter if verb == "add" else CountingBloomFilter)(client, verb, **SIZE)
    f.add_many(["warm", *["x"] * (verb == "remove")])
    getattr(f, verb)("warm")
    with _without_connection(client, any_server) as flush:
        any_proxy.plan(verb, lost_after(flush), passed)
        met = _call(f, verb)
    any_proxy.calm()
    assert isinstance(met, OutcomeUnknownError)
    assert met.token is not None
    assert [_call(f, verb), _call(f, verb)] == [True, False]


def test_no_connection_for_the_text_of_a_batch(any_server: Server, any_proxy: Proxy) -> None:
    """All items of the batch are pending."""
    client = any_proxy.client(retries=2, max_connections=1)
    f = BloomFilter(client, "seen", **SIZE)
    f.add_many(["warm", "up"])
    with _without_connection(client, any_server) as flush:
        any_proxy.plan("add", lost_after(flush), passed)
        with pytest.raises(BatchInterruptedError) as caught:
            f.add_many(["a", "b"])
    any_proxy.calm()
    assert f.add_many(caught.value.rest) == [True, True]


@for_each("retry_safe", [True, False])
def test_no_connection_for_the_text_of_a_commit(
    any_server: Server, any_proxy: Proxy, *, retry_safe: bool
) -> None:
    """The commit may have been executed: a retry in its session is told so; without one nobody can know."""
    client = any_proxy.client(retries=2, max_connections=1)
    f = BloomFilter(client, "seen", **SIZE, retry_safe=retry_safe)
    f.clear()
    f.claim("warm").commit()
    claim = f.claim("x", lease=20)
    with _without_connection(client, any_server) as flush:
        any_proxy.plan("commit", lost_after(flush), passed)
        committing = started(claim.commit)
        if not retry_safe:
            assert isinstance(outcome(committing), OutcomeUnknownError)
    any_proxy.calm()
    if retry_safe:
        assert outcome(committing) is None
        assert claim.state == "done"
    assert f.info().count == 2


class Storm:
    """Workers, each with items of its own, on a node of a cluster that freezes again and again.

    :ivar hidden: the number of calls that were lost, and then found no connection.
    :ivar wrong: the items whose only caller was told that another call had come first.
    """

    def __init__(self, nodes: Cluster, kind: str, verb: str) -> None:
        self.nodes, self.kind, self.verb = nodes, kind, verb
        self.hidden, self.wrong = 0, list[str]()
        self._until = time.monotonic() + SECONDS
        if verb == "remove":
            with nodes.client() as client:
                items = [item for own in range(WORKERS) for item in self.items(own)]
                bloomredis.CountingBloomFilter(client, "seen", **SIZE).update(items)

    @property
    def goes_on(self) -> bool:
        """True until enough calls were hit."""
        return not self.wrong and self.hidden < ENOUGH and time.monotonic() < self._until

    def items(self, own: int) -> Iterator[str]:
        """Yield the items of a worker, until the storm ends."""
        return takewhile(lambda _: self.goes_on, (f"{own}-{i}" for i in range(2000)))

    def token_of(self, error: Any) -> str | None:
        """Return the token with which a failed call is retried."""
        if isinstance(error, ConnectionFailedError):
            assert not error.sent
            return None
        self.hidden += "; then " in error.problem
        token: str | None = error.token
        return token

    def answered(self, item: str, *, answer: bool) -> None:
        """Take the answer about an own item."""
        if not answer:
            self.wrong.append(item)

    def freeze(self) -> None:
        """Freeze the node for longer than the clients wait, again and again."""
        process: Any = self.nodes.nodes[0].server.process
        while self.goes_on:
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.17)
            process.send_signal(signal.SIGCONT)
            time.sleep(0.05)


def _taken_after_a_loss(pool: Any) -> None:
    """Let another caller take each connection that was closed, for a while.

    Threads seldom do so by themselves within the microseconds between two attempts; tasks do.
    """
    release = pool.release

    def released(connection: Any) -> None:
        release(connection)
        with lock_of(pool):  # whose threads take connections meanwhile
            if connection.is_connected or connection not in idle(pool):
                return
            take(pool, connection)
        threading.Timer(0.05, release, (connection,)).start()

    pool.release = released


def in_threads(storm: Storm) -> None:
    """Let threads share a client."""
    with redis.RedisCluster(**storm.nodes.at, **FEW) as client:
        f = getattr(bloomredis, storm.kind)(client, "seen", **SIZE)
        f.create()
        _taken_after_a_loss(client.get_redis_connection(client.get_node_from_key("seen")).connection_pool)

        def work(own: int) -> None:
            for item in storm.items(own):
                token = None
                while True:
                    try:
                        answer = getattr(f, storm.verb)(item, token=token)
                    except (OutcomeUnknownError, ConnectionFailedError) as error:
                        token = storm.token_of(error)
                        time.sleep(0.001)  # another thread's turn
                    else:
                        storm.answered(item, answer=answer)
                        break

        for each in [started(storm.freeze), *(started(partial(work, own)) for own in range(WORKERS))]:
            each.result(2 * SECONDS)


def in_tasks(storm: Storm) -> None:
    """Let tasks share a client, each with calls of its own."""

    async def work(f: Any, own: int) -> None:
        for item in storm.items(own):
            token = None
            while True:
                try:
                    answer = await getattr(f, storm.verb)(item, token=token)
                except (OutcomeUnknownError, ConnectionFailedError) as error:
                    token = storm.token_of(error)
                    await asyncio.sleep(0.001)
                else:
                    storm.answered(item, answer=answer)
                    break

    async def main() -> None:
        async with redis.asyncio.RedisCluster(**storm.nodes.at, **FEW) as client:
            f = getattr(bloomredis.asyncio, storm.kind)(client, "seen", **SIZE)
            await f.create()
            freezing = started(storm.freeze)
            await asyncio.gather(*(work(copy(f), own) for own in range(WORKERS)))
            freezing.result(SECONDS)

    asyncio.run(main())


@pytest.mark.parametrize("binary", SERVERS)
@pytest.mark.parametrize("way", [in_threads, in_tasks])
@pytest.mark.parametrize(("kind", "verb"), [("BloomFilter", "add"), ("CountingBloomFilter", "remove")])
def test_a_node_freezes(binary: str, way: Callable[[Storm], None], kind: str, verb: str) -> None:
    """A cluster client has two connections, and its callers take them between the attempts of a call."""
    with formed(binaries()[binary], primaries=1, replicas=0) as nodes:
        storm = Storm(nodes, kind, verb)
        way(storm)
    assert storm.wrong == []
    assert storm.hidden >= ENOUGH
