"""A forked child uses nothing of its parent's: sessions, pipelines, pending answers, claims, locks."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import redis
import redis.asyncio

import bloomredis.asyncio
from bloomredis import (
    BatchInterruptedError,
    BloomFilter,
    CountingBloomFilter,
    FilterLostError,
    OutcomeUnknownError,
)
from bloomredis.stored.state import versioned
from tests.support.background import Child, forked, started
from tests.support.inside import inside, lock_of
from tests.support.proxy import Held, Proxy, lost
from tests.support.servers import Server
from tests.support.sizes import sized

SIZE: dict[str, Any] = {"capacity": 100_000, "error_rate": 1e-9}
THREADS = 8


def _commits(f: BloomFilter, item: str) -> bool:
    claim = f.claim(item)
    claim.commit()
    return claim.state == "done"


WAYS: dict[str, Callable[[BloomFilter, str], bool]] = {
    "add": BloomFilter.add,
    "add_many": lambda f, item: f.add_many([item]) == [True],
    "commit": _commits,
}


def _race(f: BloomFilter, way: str, child: str) -> list[tuple[str, bool]]:
    """Let threads add one item each at the same time; return their answers."""
    together = threading.Barrier(THREADS)

    def work(thread: int) -> tuple[str, bool]:
        together.wait(10)
        item = f"{child}/{thread}"
        return item, WAYS[way](f, item)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(work, range(THREADS)))


@pytest.mark.parametrize("way", WAYS)
@sized("pairs", make_test=4, make_test_all=100)
def test_children_with_threads_lose_nothing(any_client: redis.Redis, pairs: int, way: str) -> None:
    """Each item that a child's thread was told is new is in the filter, and was new once."""
    f = BloomFilter(any_client, "seen", **SIZE)
    assert WAYS[way](f, "warm")
    told: list[tuple[str, bool]] = []
    for pair in range(pairs):
        children = [Child(partial(_race, f, way, f"{pair}.{n}")) for n in range(2)]
        told += [answer for child in children for answer in child.result()]
    assert [new for _, new in told] == [True] * (pairs * 2 * THREADS)
    assert all(f.contains_many([item for item, _ in told]))


def test_children_with_tasks_lose_nothing(any_server: Server) -> None:
    """The same holds for tasks: a child with its own client has its own sessions."""

    async def adds(*items: str) -> list[bool]:
        async with redis.asyncio.Redis(unix_socket_path=any_server.socket) as client:
            own = f.with_client(client)
            return list(await asyncio.gather(*(own.add(item) for item in items)))

    def run(name: str) -> list[bool]:
        return asyncio.run(adds(f"{name}1", f"{name}2"))

    f = bloomredis.asyncio.BloomFilter(redis.asyncio.Redis(), "seen", **SIZE)
    assert run("a") == [True, True]
    children = [Child(partial(run, name)) for name in "xyz"]
    assert [child.result() for child in children] == [[True, True]] * 3
    with any_server.client() as client:
        assert all(
            BloomFilter.open(client, "seen").contains_many([f"{name}{i}" for name in "xyz" for i in (1, 2)])
        )


def test_a_pipeline_filled_before_the_fork(any_client: redis.Redis) -> None:
    """Items that children and parent then queue on it are new, and are in the filter."""
    f = BloomFilter(any_client, "seen", **SIZE)
    with any_client.pipeline(transaction=False) as pipe:

        def queue(item: str) -> list[Any]:
            f.queue_add(pipe, item)
            return pipe.execute()

        assert queue("a") == [1]
        assert [forked(partial(queue, item)) for item in "xy"] == [[1], [1]]
        assert queue("z") == [1]
    assert f.contains_many(list("axyz")) == [True] * 4


def test_a_pipeline_that_a_child_lets_go_of(any_client: redis.Redis) -> None:
    """The sessions of the parent's pipeline do not become the child's."""
    f = BloomFilter(any_client, "seen", **SIZE)
    pipes = [any_client.pipeline(transaction=False)]
    f.queue_add(pipes[0], "a")
    pipes[0].execute()

    def work(item: str) -> list[bool]:
        told = [f.add(f"first {item}")]  # the child gets a session
        pipes.clear()
        gc.collect()
        return [*told, f.add(item)]

    assert [forked(partial(work, item)) for item in "xy"] == [[True, True]] * 2
    assert f.contains_many(list("xy")) == [True, True]


def test_a_pending_item_is_owed_to_the_parent(any_proxy: Proxy) -> None:
    """A child finds the item present; the parent gets the answer."""
    f = BloomFilter(any_proxy.client(), "seen", **SIZE)
    f.add("warm")
    any_proxy.plan("add", lost)
    with pytest.raises(OutcomeUnknownError):
        f.add("x")
    assert [forked(lambda: f.add("x")) for _ in range(2)] == [False, False]
    assert f.add("x")


def test_the_rest_of_a_batch_is_owed_to_the_parent(any_proxy: Proxy) -> None:
    """The same holds for each item of an interrupted batch."""
    f = BloomFilter(any_proxy.client(), "seen", **SIZE)
    f.add("warm")
    any_proxy.plan("add", lost)
    with pytest.raises(BatchInterruptedError) as caught:
        f.add_many(list("abc"))
    assert forked(lambda: f.add_many(list("abc"))) == [False] * 3
    assert f.add_many(caught.value.rest) == [True] * 3


def test_a_pending_removal_is_owed_to_the_parent(any_proxy: Proxy) -> None:
    """A child finds the item gone; the parent is told that it removed it."""
    f = CountingBloomFilter(any_proxy.client(), "seen", **SIZE)
    f.add_many(["x", "warm"])
    f.remove("warm")
    any_proxy.plan("remove", lost)
    with pytest.raises(OutcomeUnknownError):
        f.remove("x")
    assert not forked(lambda: f.remove("x"))
    assert f.remove("x")


def test_a_pending_claim_is_held_by_the_parent(any_proxy: Proxy) -> None:
    """A child is another worker, and finds the item busy."""
    f = BloomFilter(any_proxy.client(), "seen", **SIZE)
    f.claim("warm").release()
    any_proxy.plan("claim", lost)
    with pytest.raises(OutcomeUnknownError):
        f.claim("job", lease=60)
    assert forked(lambda: f.claim("job", lease=60).state) == "busy"
    assert f.claim("job", lease=60).state == "claimed"


def test_a_fork_while_a_lock_is_held(any_proxy: Proxy) -> None:
    """The thread that holds the lock does not exist in the child, and no child thread waits for it."""
    f: Any = BloomFilter(any_proxy.client(), "seen", **SIZE)
    f.add("warm")
    any_proxy.plan("add", lost)
    with pytest.raises(OutcomeUnknownError):
        f.add("pending")  # makes the call check pending calls
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with lock_of(inside(f).pending):
            held.set()
            release.wait(30)

    holding = started(hold)
    held.wait(10)
    try:
        told = forked(lambda: (f.add_many(["x", "y"]), started(lambda: f.add("z")).result(10)))
    finally:
        release.set()
        holding.result(10)
    assert told == ([True, True], True)


def test_a_fork_while_a_call_is_under_way(any_proxy: Proxy) -> None:
    """The child's threads wait for no call of the parent's threads."""
    f = BloomFilter(any_proxy.client(), "seen", **SIZE)
    f.add("warm")
    held = Held()
    any_proxy.plan("add", held)
    parents = started(lambda: f.add("parent's"))
    held.wait()
    assert forked(lambda: started(lambda: f.add("child's")).result(10))
    held.go.set()
    assert parents.result(10)


def test_a_fork_while_a_thread_reports_a_loss(
    any_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child has no such thread, so it opens the new filter by itself."""
    f = BloomFilter(any_client, "seen", on_lost="recreate", **SIZE)
    f.add("before")
    any_client.delete("seen")
    told: list[bool] = []

    def error(*words: str, **parts: str) -> FilterLostError:
        monkeypatch.undo()
        told.append(forked(lambda: f.add("child")))
        return FilterLostError(*words, **parts)

    monkeypatch.setattr(versioned, "FilterLostError", error)
    assert f.add("parent")
    assert told == [True]
    assert f.contains_many(["before", "child", "parent"]) == [False, True, True]
