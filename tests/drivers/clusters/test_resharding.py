"""Calls on a cluster while slots migrate: no answer changes."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio

import bloomredis.asyncio
from bloomredis import BloomFilter, FilterLostError, ScalingBloomFilter
from tests.support.cluster_clients import CLIENTS, SMALL, away, only
from tests.support.clusters import Cluster, wait_until
from tests.support.sizes import sized

pytestmark = pytest.mark.faults

OUTLASTED = 0.8

"""Seconds of a slot's migration: more than redis-py retries TRYAGAIN for, which is 0.4 s."""


class Model:
    """Calls in threads, whose answers are compared with those of a set."""

    def __init__(self, f: Any, seed: int) -> None:
        self.f = f
        self.dice = random.Random(seed)
        self.added: set[str] = set()
        self.answers = 0
        self.wrong: list[Any] = []

    def step(self) -> None:
        """Make a call of any kind, and compare the answer with the set's."""
        item, more = self._item(), [self._item() for _ in range(5)]
        call = self.dice.choice([self._contains, self._add, self._claim, self._many])
        call(item, more)

    def look(self) -> None:
        """Test an item, and compare the answer with the set's."""
        self._contains(self._item(), [])

    def _item(self) -> str:
        return str(self.dice.randrange(3000))

    def _check(self, what: object, got: object, wanted: object) -> None:
        self.answers += 1
        if got != wanted:
            self.wrong.append((what, got, wanted))

    def _contains(self, item: str, _: list[str]) -> None:
        self._check(("contains", item), self.f.contains(item), item in self.added)

    def _add(self, item: str, _: list[str]) -> None:
        self._check(("add", item), self.f.add(item), item not in self.added)
        self.added.add(item)

    def _many(self, _: str, items: list[str]) -> None:
        wanted = []
        for item in items:
            wanted.append(item not in self.added)
            self.added.add(item)
        self._check(("add_many", items), self.f.add_many(items), wanted)

    def _claim(self, item: str, _: list[str]) -> None:
        claim = self.f.claim(item)
        self._check(("claim", item), claim.state, "done" if item in self.added else "claimed")
        if claim:
            claim.commit()
            self.added.add(item)


class Working:
    """A call that a thread repeats until the block ends."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(1)

    def __enter__(self) -> None:
        self._work = self._pool.submit(self._run)

    def _run(self) -> None:
        while not self._over.is_set():
            self._call()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._pool.shutdown()
        self._work.result()


@sized("rounds", make_test=1, make_test_all=2)
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("redis", {}),
        ("redis", {"retry_safe": False}),
        ("redis", {"min_replicas": 1}),
        ("valkey", {"min_replicas": 1}),
    ],
    ids=str,
)
def test_resharding_changes_no_answer(
    nodes: Cluster, kind: str, options: dict[str, Any], rounds: int
) -> None:
    """The slot moves through all primaries and pauses half-way, with the filter on either side of a move."""
    make, _ = CLIENTS[kind]
    with make(**nodes.at) as client:
        model = Model(BloomFilter(client, "seen", **SMALL, **options), seed=1)
        model.f.create()
        with Working(model.step):
            for number, to in enumerate(nodes.primaries() * rounds):
                before = model.answers
                wait_until("calls are answered", lambda: model.answers > before + 20)  # noqa: B023 - at once
                nodes.migrate(
                    "seen", to, ahead=only("seen", moves=number % 2 == 0), dwell=lambda: _pause(0.1)
                )
        assert model.wrong == []
        assert model.f.contains_many(list(model.added)) == [True] * len(model.added)
        assert model.f.info().count == len(model.added)


def _pause(seconds: float) -> None:
    time.sleep(seconds)  # the test is about a migration of this length


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize("moves", [True, False], ids=["filter moved", "filter not moved"])
def test_reads_go_on_while_the_slot_is_half_way(nodes: Cluster, kind: str, moves: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """The filter is read where it is; a replica that has lost it to another node is not trusted."""
    make, options = CLIENTS[kind]
    with make(**nodes.at, **options) as client:
        model = Model(BloomFilter(client, "seen", **SMALL, min_replicas=1), seed=2)
        for _ in range(50):
            model.step()

        def dwell() -> None:
            nodes.wait_until_replicated(nodes.primary_of("seen"))
            for _ in range(50):
                model.look()

        nodes.migrate("seen", away(nodes), ahead=only("seen", moves=moves), dwell=dwell)
        nodes.wait_until_ok()
        for _ in range(50):
            model.look()
        assert model.wrong == []


@pytest.mark.parametrize("moves", [True, False], ids=["filter moved", "filter not moved"])
def test_a_loss_is_acknowledged_while_the_slot_is_half_way(
    nodes: Cluster,
    cluster_client: Any,
    bloom: Any,
    moves: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """The filter is lost from either node, made where its slot goes, and found there after the move."""
    first, second = (bloom(cluster_client, "seen", **SMALL, min_replicas=1) for _ in range(2))
    for each in (first, second):
        each.add("before")

    def dwell() -> None:
        for node in nodes.primaries():
            with node.client() as client, client.pipeline(transaction=False) as pipe:
                pipe.execute_command("ASKING")
                pipe.unlink("seen")
                pipe.execute(raise_on_error=False)  # others serve another slot
        for each in (first, second):
            with pytest.raises(FilterLostError):
                each.contains("before")
        first.acknowledge()
        assert not second.contains("before")

    nodes.migrate("seen", away(nodes), ahead=only("seen", moves=moves), dwell=dwell)
    nodes.wait_until_ok()
    assert second.add("after")
    assert first.contains_many(["before", "after"]) == [False, True]


OUTLASTING: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "add": (lambda f, _: f.add("c"), True),
    "add_many": (lambda f, _: f.add_many(["a", "d"]), [False, True]),
    "commit": (lambda f, bloom: bloom.wait(f.claim("e").commit()), None),
    "update": (lambda f, _: f.update(["f"]), 1),
}


@pytest.mark.parametrize(
    "call", ["add", *(pytest.param(each, marks=pytest.mark.long) for each in OUTLASTING if each != "add")]
)
def test_a_call_outlasts_a_migration(nodes: Cluster, cluster_client: Any, bloom: Any, call: str) -> None:
    """A call succeeds though the slot migrates for longer than redis-py itself retries."""
    f = bloom(cluster_client, "seen", **SMALL, min_replicas=1)
    f.add_many(["a", "b"])
    migrating = threading.Event()

    def dwell() -> None:
        migrating.set()
        _pause(OUTLASTED)

    make, wanted = OUTLASTING[call]
    with ThreadPoolExecutor(1) as pool:
        move = pool.submit(nodes.migrate, "seen", away(nodes), dwell=dwell)
        migrating.wait(20)
        assert make(f, bloom) == wanted
        move.result()
    assert f.info().count == 3


@pytest.mark.parametrize("make", [redis.asyncio.RedisCluster, valkey.asyncio.ValkeyCluster])
def test_tasks_ask_over_many_connections(nodes: Cluster, make: Any) -> None:
    """ASKING counts only on its own connection, and tasks share the connections of a node."""

    async def main() -> None:
        async with make(**nodes.at) as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", **SMALL)
            await f.add_many(range(50))
            loop = asyncio.get_running_loop()

            def dwell() -> None:
                asking = asyncio.run_coroutine_threadsafe(ask(), loop)
                assert asking.result(20) == [number < 50 for number in range(90)]

            async def ask() -> list[bool]:
                return await asyncio.gather(*(copy(f).contains(number) for number in range(90)))

            move = nodes.migrate
            await asyncio.to_thread(move, "seen", away(nodes), ahead=only("seen", moves=True), dwell=dwell)
            back = asyncio.to_thread(move, "seen", away(nodes), dwell=lambda: _pause(0.1))
            answers = await asyncio.gather(back, *(copy(f).add(number) for number in range(90)))
            assert answers[1:] == [number >= 50 for number in range(90)]

    asyncio.run(main())


def hide_hosts(nodes: Cluster, kind: str) -> None:
    """Let redirections of all nodes name a host of this kind; skip the test if the server cannot."""
    for node in nodes.nodes:
        try:
            node.ask("CONFIG", "SET", "cluster-preferred-endpoint-type", kind)
        except redis.ResponseError:
            pytest.skip("Redis 6.2 always names hosts")


@pytest.mark.parametrize("make", [redis.RedisCluster, valkey.ValkeyCluster])
def test_ask_that_names_no_host(nodes: Cluster, make: Any) -> None:
    """The keys have moved, and the slot has not: calls follow ASK to an address that the client lacks."""
    hide_hosts(nodes, "unknown-endpoint")
    try:
        with make(**nodes.at) as client:
            f = ScalingBloomFilter(client, "seen", **SMALL)
            f.add("before")

            def dwell() -> None:
                begun = time.monotonic()
                assert f.add("during")
                assert f.contains_many(["before", "during", "x"]) == [True, True, False]
                assert time.monotonic() - begun < 5

            nodes.migrate("seen", away(nodes), ahead=lambda keys: keys, dwell=dwell)
    finally:
        hide_hosts(nodes, "ip")


@pytest.mark.parametrize("make", [redis.asyncio.RedisCluster, valkey.asyncio.ValkeyCluster])
def test_ask_that_names_no_host_with_tasks(nodes: Cluster, make: Any) -> None:
    """The same for tasks, whose connections to that node are closed afterwards."""

    async def main() -> None:
        async with make(**nodes.at) as client:
            f = bloomredis.asyncio.ScalingBloomFilter(client, "seen", **SMALL)
            await f.add("before")
            loop = asyncio.get_running_loop()

            async def ask() -> list[bool]:
                return await asyncio.gather(*(f.add(f"x{i}") for i in range(20)), f.contains("before"))

            def dwell() -> None:
                assert all(asyncio.run_coroutine_threadsafe(ask(), loop).result(5))

            await asyncio.to_thread(nodes.migrate, "seen", away(nodes), ahead=lambda keys: keys, dwell=dwell)

    hide_hosts(nodes, "unknown-endpoint")
    try:
        asyncio.run(main())
    finally:
        hide_hosts(nodes, "ip")
