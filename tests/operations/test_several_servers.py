"""A filter over several servers, as the PHP class spreads it."""

from __future__ import annotations

import asyncio
import pickle
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

import bloomredis.asyncio
from bloomredis import (
    BatchInterruptedError,
    BloomError,
)
from tests.support.background import Child
from tests.support.retries import async_retrying
from tests.support.servers import Server, binaries, running
from tests.support.several import layout, on_servers, server_of
from tests.support.sharding import ITEMS
from tests.support.values import for_each


@pytest.fixture
def pair(server: Server) -> Iterator[list[Any]]:
    """Clients of two independent real servers."""
    with server.client() as first, running(binaries()["valkey-9"]) as other, other.client() as second:
        yield [first, second]


def test_a_filter_on_several_servers_pickles(pair: list[Any]) -> None:
    """The copy needs as many clients."""
    copy = pickle.loads(pickle.dumps(on_servers(pair)))  # noqa: S301 - our own
    with pytest.raises(RuntimeError, match="with_client"):
        copy.add("x")
    with pytest.raises(ValueError, match="2 servers, not on 1"):
        copy.with_client(pair[:1])
    assert copy.with_client(pair).add_many(ITEMS) == [True] * 400


class Down:
    """A client whose server is unreachable while `down` is set."""

    def __init__(self, client: redis.Redis) -> None:
        self._client: Any = client
        self.down = False

    def execute_command(self, *command: Any, **options: Any) -> Any:
        if self.down:
            raise redis.ConnectionError("Connection refused.")
        return self._client.execute_command(*command, **options)

    def pipeline(self, *, transaction: bool) -> Any:
        if self.down:
            raise redis.ConnectionError("Connection refused.")
        return self._client.pipeline(transaction=transaction)


def test_a_batch_that_is_interrupted_again_and_again(any_server: Server) -> None:
    """An answer known from the first attempt is returned whenever its item gets an answer."""
    servers = [Down(any_server.client(db=db)) for db in range(3)]
    f = on_servers(servers)
    f.add_many(ITEMS)
    fresh = {server_of(f, item): item for item in map(str, range(1000, 1100))}
    batch = [fresh[1], fresh[0], fresh[2]]
    told: list[bool] = []
    for down in ([1, 2], [2], []):
        for place, server in enumerate(servers):
            server.down = place in down
        try:
            told += f.add_many(batch[len(told) :])
        except BatchInterruptedError as error:
            told += error.results
    assert told == [True] * 3
    assert f.add_many(batch) == [False] * 3


def test_an_interrupted_batch_hands_out_a_claim_once(any_server: Server) -> None:
    """An item of the rest is busy if a claim so far has an equal item, else it is claimed."""
    up, down = servers = [Down(any_server.client(db=db)) for db in range(2)]
    f = on_servers(servers)
    f.add_many(ITEMS)
    fresh = [str(i) for i in range(1000, 1100)]
    first, later = [each for each in fresh if servers[server_of(f, each)] is up][:2]
    away = next(each for each in fresh if servers[server_of(f, each)] is down)
    down.down = True
    with pytest.raises(BatchInterruptedError) as caught:
        f.claim_many([first, away, first, later])
    down.down = False
    assert [claim.state for claim in caught.value.results] == ["claimed"]
    assert caught.value.rest == [away, first, later]
    assert [claim.state for claim in f.claim_many(caught.value.rest)] == ["claimed", "busy", "claimed"]


@for_each("count", [5_000, 40_000])
def test_a_load_that_is_interrupted(any_server: Server, count: int) -> None:
    """A few items are kept for a retry; of many, the error says how many are in."""
    servers = [Down(any_server.client(db=db)) for db in range(2)]
    f = on_servers(servers, f"load-{count}")
    items = [f"{i}" for i in range(count)]
    servers[1].down = True
    with pytest.raises(BloomError) as caught:
        f.load(iter(items))
    servers[1].down = False
    if isinstance(caught.value, BatchInterruptedError):
        assert 0 < len(caught.value.rest) < count
        f.load(caught.value.rest)
    else:
        (known,) = re.findall(r"has added the first (\d+) items", str(caught.value))
        assert f.contains_many(items[: int(known)]) == [True] * int(known)
        f.load(items)
    assert all(f.contains_many(items))


class Failing(Down):
    """A client that raises an error in place of one of its commands."""

    error: BaseException | None = None
    at = 0

    def execute_command(self, *command: Any, **options: Any) -> Any:
        self.at -= 1
        if self.at == 0 and self.error is not None:
            raise self.error
        return super().execute_command(*command, **options)


def test_claims_of_a_server_that_stopped_before_an_interrupt(any_server: Server) -> None:
    """A retry also gets the claims that a server made before it stopped."""
    servers = [Failing(any_server.client(db=db)) for db in range(2)]
    f = on_servers(servers, keys=1)
    items = [f"claim-{i}" for i in range(1600)]
    f.add_many(ITEMS)
    f.release_many(f.claim_many(items[:20]))
    for server, error, at in zip(
        servers, (redis.ConnectionError("gone"), KeyboardInterrupt()), (2, 3), strict=True
    ):
        server.error, server.at = error, at
    with pytest.raises(KeyboardInterrupt):
        f.claim_many(items, lease=3600)
    assert Counter(claim.state for claim in f.claim_many(items)) == {"claimed": 1600}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_asks_all_servers(any_server: Server) -> None:
    """The child makes its own threads, since the parent's do not exist in it."""
    with running(binaries()["valkey-9"]) as second:
        f = on_servers([any_server.client(), second.client()])
        assert all(f.add_many(ITEMS))
        assert Child(lambda: f.add_many([*ITEMS, "x", "y"])).result() == [False] * 400 + [True] * 2
        assert f.add_many(["x", "y", "z"]) == [False, False, True]


def test_a_server_that_dies_interrupts_and_loses_nothing(bloom: Any, any_server: Server) -> None:
    """The other server's answers are returned when the rest is retried."""
    with running(binaries()["valkey-9"], "--save", "", "--appendonly", "yes") as second:
        pair = [any_server.client(), second.client(retry=Retry(NoBackoff(), 0))]
        f = bloom(pair, "seen", layout=layout(2))
        assert all(f.add_many(ITEMS[:100]))
        second.stop()
        with pytest.raises(BatchInterruptedError) as caught:
            f.add_many(ITEMS)
        second.start()
        told = [*caught.value.results, *f.add_many(caught.value.rest)]
        assert told == [False] * 100 + [True] * 300
        assert f.add_many(ITEMS) == [False] * 400
        second.stop()
        with pytest.raises(BatchInterruptedError) as claimed:
            f.claim_many([f"c{i}" for i in range(50)])
        second.start()
        states = [claim.state for claim in (*claimed.value.results, *f.claim_many(claimed.value.rest))]
        assert states == ["claimed"] * 50


def test_a_server_that_dies_fails_only_its_own_callers(any_server: Server) -> None:
    """Tasks that share round trips get answers from the other server; the rest is new once it is back."""

    async def main(second: Server) -> None:
        sockets, never = (any_server.socket, second.socket), async_retrying(0)
        pair = [redis.asyncio.Redis(unix_socket_path=each, **never) for each in sockets]
        f = bloomredis.asyncio.BloomFilter(pair, "seen", layout=layout(2))
        assert all(await asyncio.gather(*map(f.add, ITEMS[:50])))
        second.stop()
        told = await asyncio.gather(*map(f.add, ITEMS[50:]), return_exceptions=True)
        assert [isinstance(each, BloomError) for each in told] == [server_of(f, i) == 1 for i in ITEMS[50:]]
        assert {each for each in told if isinstance(each, bool)} == {True}
        second.start()
        left = [i for i, each in zip(ITEMS[50:], told, strict=True) if isinstance(each, BloomError)]
        assert all(await asyncio.gather(*map(f.add, left)))
        for each in pair:
            await each.aclose()

    with running(binaries()["valkey-9"], "--save", "", "--appendonly", "yes") as second:
        asyncio.run(main(second))


def test_commits_do_not_wait_for_another_server(any_server: Server) -> None:
    """Not even the first batch, whose first commit goes alone."""
    with running(binaries()["valkey-9"]) as second:
        pair = [any_server.client(), second.client(retry=Retry(NoBackoff(), 0))]
        f = on_servers(pair)
        claims = f.claim_many(ITEMS[:40], lease=3)
        servers = [f._operations.server_of(claim._state.encoded) for claim in claims]
        assert set(servers) == {0, 1}
        claims.sort(key=lambda claim: -f._operations.server_of(claim._state.encoded))
        second.stop()
        with pytest.raises(BatchInterruptedError):
            f.commit_many(claims)
        assert Counter(claim.state for claim in claims)["done"] == servers.count(0)


def test_servers_are_asked_at_once(any_server: Server) -> None:
    """A batch takes as long as its slowest server, not as long as all together."""
    stopped = Counter[int]()

    class Slow:
        def __init__(self, place: int, client: redis.Redis) -> None:
            self.place, self.client = place, client

        def __getattr__(self, name: str) -> Any:
            return getattr(self.client, name)

        def pipeline(self, **options: Any) -> Any:
            stopped[self.place] += 1
            barrier.wait(20)
            return self.client.pipeline(**options)

    barrier = threading.Barrier(3)
    with ExitStack() as stack:
        databases = [stack.enter_context(any_server.client(db=db)) for db in range(3)]
        warm = on_servers(databases)
        warm.add_many(ITEMS)
        slow = warm.with_client([Slow(i, client) for i, client in enumerate(databases)])
        assert slow.add_many(ITEMS) == [False] * 400
    assert stopped == {0: 1, 1: 1, 2: 1}
