"""Every answer is about the filter that the call saw."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import redis

import bloomredis.asyncio
from bloomredis import (
    BatchInterruptedError,
    BloomFilter,
    ClaimLostError,
    CountingBloomFilter,
    FilterLostError,
    OutcomeUnknownError,
    compat,
)
from tests.support.background import PATIENCE, outcome, started
from tests.support.clock import Clock
from tests.support.inside import commit_once
from tests.support.losing import LosingClient
from tests.support.modules import needs_module
from tests.support.proxy import Held, Proxy, after, lost, once_executed, passed
from tests.support.servers import Server
from tests.support.sizes import sized
from tests.support.values import for_each

SIZE: dict[str, Any] = {"capacity": 1000, "error_rate": 1e-6}
LARGE: dict[str, Any] = {"capacity": 10_000_000, "error_rate": 1e-6}
CHECK = 100.0


@pytest.fixture
def other(any_server: Server) -> Iterator[BloomFilter]:
    """Another client's object of the filter, which shares nothing with the first client's objects."""
    with any_server.client() as client:
        yield BloomFilter(client, "seen", on_lost="recreate", **SIZE)


def _clear(f: BloomFilter, other: BloomFilter) -> None:
    f.clear()


def _recreate(f: BloomFilter, other: BloomFilter) -> None:
    other.delete()
    f.add("noticed")


RENEWALS = {"clear": _clear, "recreate": _recreate}


@pytest.mark.parametrize("renewal", RENEWALS)
@pytest.mark.parametrize("call", [lambda f: f.add("x"), lambda f: f.add_many(["x"])[0]])
def test_the_cache_learns_into_its_own_generation(
    any_proxy: Proxy, other: BloomFilter, clock: Clock, renewal: str, call: Callable[[BloomFilter], bool]
) -> None:
    """An add whose reply comes after the filter was recreated is not in the new filter's cache."""
    f = BloomFilter(any_proxy.client(), "seen", local_cache=True, on_lost="recreate", **SIZE)
    f.add("warm")
    held = Held()
    any_proxy.plan("add", held)
    slow = started(lambda: call(f))
    held.wait()
    RENEWALS[renewal](f, other)
    held.go.set()
    assert outcome(slow) is True
    clock.advance(2 * CHECK)
    f.add("again")
    assert ["x" in f, "x" in other] == [False, False]
    assert call(f)
    assert "x" in other


def test_the_cache_of_tasks_learns_into_its_own_generation(any_proxy: Proxy, other: BloomFilter) -> None:
    """The same holds for tasks."""

    async def main() -> None:
        async with any_proxy.asyncio_client() as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", local_cache=True, **SIZE)
            await f.add("warm")
            held = Held()
            any_proxy.plan("add", held)
            slow = asyncio.create_task(f.add("x"))
            await asyncio.to_thread(held.wait)
            await f.clear()
            held.go.set()
            assert await slow
            assert not await f.contains("x")
            assert await f.add("x")

    asyncio.run(main())
    assert "x" in other


def test_a_test_teaches_its_own_generation(any_proxy: Proxy, other: BloomFilter) -> None:
    """A `contains` whose reply comes after a clear adds nothing to the new cache."""
    f = BloomFilter(any_proxy.client(), "seen", local_cache=True, **SIZE)
    f.add("warm")
    f.contains("x")
    other.add("x")
    held = Held()
    any_proxy.plan("reading", passed, passed, held)  # the two blocks, and the header
    slow = started(lambda: f.contains("x"))
    held.wait()
    f.clear()
    held.go.set()
    assert outcome(slow) is True
    assert f.add("x")
    assert "x" in other


def test_a_batch_that_finds_the_loss_asks_again(any_client: redis.Redis, other: BloomFilter) -> None:
    """The cached items of the lost filter are not used for the new one, so the batch is sent again."""
    f = BloomFilter(any_client, "seen", local_cache=True, on_lost="recreate", **SIZE)
    f.add("x")
    other.delete()
    assert f.add_many(["x", "new"]) == [True, True]
    assert f.contains_many(["x", "new"]) == [True, True]
    assert "x" in other


def test_the_check_interval_bounds_what_a_cache_says(
    any_client: redis.Redis, other: BloomFilter, clock: Clock
) -> None:
    """After a loss an item may be "already there" for a check interval; then the loss is detected."""
    f = BloomFilter(any_client, "seen", local_cache=CHECK, **SIZE)
    f.add("x")
    other.clear()
    assert not f.add("x")
    clock.advance(1.01 * CHECK)
    with pytest.raises(FilterLostError):
        f.add("x")


@for_each("layout", [compat.go_zero(100_000), compat.jedis(1000, 0.01), compat.redis_bitmaps(1000, 0.01)])
def test_no_cache_of_what_proves_no_loss(any_client: redis.Redis, layout: Any) -> None:
    """A bitmap of another system has no generation, so a stale cache could never be detected."""
    with pytest.raises(ValueError, match="local_cache"):
        BloomFilter(any_client, "seen", layout=layout, local_cache=True)


def _lose_and_acknowledge(f: Any, client: redis.Redis) -> None:
    client.delete("seen")
    with pytest.raises(FilterLostError):
        f.add("noticed")
    f.acknowledge()


def _lose(f: Any, client: redis.Redis) -> None:
    client.delete("seen")
    f.add("noticed")


def _other_clears(f: Any, client: redis.Redis) -> None:
    BloomFilter(client, "seen").clear()
    f.add("noticed")


ENDS: dict[str, tuple[Any, Callable[[Any, redis.Redis], object]]] = {
    "lost, and acknowledged": ("raise", _lose_and_acknowledge),
    "lost, and recreated": ("recreate", _lose),
    "cleared by another": ("recreate", _other_clears),
    "lost, not noticed yet": ("recreate", lambda _, client: client.delete("seen")),
    "cleared by another, not noticed yet": (
        "recreate",
        lambda _, client: BloomFilter(client, "seen").clear(),
    ),
    "cleared": ("raise", lambda f, _: f.clear()),
    "deleted, and created": ("raise", lambda f, _: (f.delete(), f.create())),
}
EVERY_END = pytest.mark.parametrize("end", ENDS)


@EVERY_END
@pytest.mark.parametrize("call", [lambda f: [f.add("x")], lambda f: f.add_many(["x"])])
def test_a_pending_item_ends_with_its_filter(
    any_proxy: Proxy, any_client: redis.Redis, bloom: Any, end: str, call: Callable[[Any], list[bool]]
) -> None:
    """A retry adds the item to the current filter."""
    on_lost, renew = ENDS[end]
    f = bloom(any_proxy.client(), "seen", on_lost=on_lost, **SIZE)
    f.add("warm")
    any_proxy.plan("add", lost)
    with pytest.raises((OutcomeUnknownError, BatchInterruptedError)):
        call(f)
    renew(f, any_client)
    assert call(f) == [True]
    assert not BloomFilter(any_client, "seen").add("x")


@EVERY_END
def test_a_token_ends_with_its_filter(
    any_proxy: Proxy, any_client: redis.Redis, bloom: Any, end: str
) -> None:
    """A retry by token adds the item to the current filter."""
    on_lost, renew = ENDS[end]
    f = bloom(any_proxy.client(), "seen", on_lost=on_lost, **SIZE)
    f.add("warm")
    any_proxy.plan("add", lost)
    with pytest.raises(OutcomeUnknownError) as caught:
        f.add("x")
    renew(f, any_client)
    elsewhere = bloom(any_client, "seen", **SIZE)
    assert elsewhere.add("x", token=caught.value.token)
    assert not BloomFilter(any_client, "seen").add("x")


@pytest.mark.parametrize("end", [end for end in ENDS if "by another" not in end])  # the filter is another
def test_a_pending_removal_ends_with_its_filter(
    any_proxy: Proxy, any_client: redis.Redis, bloom: Any, end: str
) -> None:
    """The removal takes nothing out of the current filter."""
    on_lost, renew = ENDS[end]
    f = bloom(any_proxy.client(), "seen", kind="CountingBloomFilter", on_lost=on_lost, **SIZE)
    f.add_many(["x", "warm"])
    f.remove("warm")
    any_proxy.plan("remove", lost)
    with pytest.raises(OutcomeUnknownError):
        f.remove("x")
    renew(f, any_client)
    assert not f.remove("x")
    f.add("x")
    assert CountingBloomFilter(any_client, "seen", **SIZE).remove("x")


@EVERY_END
def test_a_pending_claim_ends_with_its_filter(any_proxy: Proxy, any_client: redis.Redis, end: str) -> None:
    """A retry claims and commits the item in the current filter."""
    on_lost, renew = ENDS[end]
    f = BloomFilter(any_proxy.client(), "seen", on_lost=on_lost, **SIZE)
    f.claim("warm").commit()
    any_proxy.plan("claim", lost)
    with pytest.raises(OutcomeUnknownError):
        f.claim("x", lease=60)
    renew(f, any_client)
    claim = f.claim("x", lease=60)
    assert claim.state == "claimed"
    claim.commit()
    assert not BloomFilter(any_client, "seen").add("x")


@EVERY_END
def test_a_pending_commit_ends_with_its_filter(any_proxy: Proxy, any_client: redis.Redis, end: str) -> None:
    """A retry does not report the item as present in the current filter."""
    on_lost, renew = ENDS[end]
    f = BloomFilter(any_proxy.client(), "seen", on_lost=on_lost, **SIZE)
    f.claim("warm").commit()
    claim = f.claim("x", lease=60)
    any_proxy.plan("commit", lost)
    with pytest.raises(OutcomeUnknownError):
        commit_once(claim)
    renew(f, any_client)
    with pytest.raises(ClaimLostError):
        claim.commit()
    assert "x" not in f


def test_a_token_is_for_its_own_item(any_proxy: Proxy, bloom: Any) -> None:
    """With another item the token raises a ValueError and nothing is sent; its own item stays pending."""
    f = bloom(any_proxy.client(), "seen", **SIZE)
    f.add("warm")
    any_proxy.plan("add", lost)
    with pytest.raises(OutcomeUnknownError) as caught:
        f.add("x")
    any_proxy.fate = _nothing
    with pytest.raises(ValueError, match="another item"):
        f.add("y", token=caught.value.token)
    any_proxy.calm()
    assert [f.contains("y"), f.add("x", token=caught.value.token)] == [False, True]


def _nothing(exchange: Any) -> bool:
    raise AssertionError("something was sent")


@pytest.mark.parametrize("arrives", ["before the clear", "after the clear"])
@pytest.mark.parametrize("call", [lambda f: [f.add("x")], lambda f: f.add_many(["x", "y"])])
def test_a_clear_of_the_same_object_fails_no_other_call(
    any_proxy: Proxy, arrives: str, call: Callable[[BloomFilter], list[bool]]
) -> None:
    """A call in flight gets its answer, and so does the next one."""
    f = BloomFilter(any_proxy.client(), "seen", **SIZE)
    f.add("warm")
    held = Held(executed=arrives == "before the clear")
    any_proxy.plan("add", held)
    slow = started(lambda: call(f))
    held.wait()
    f.clear()
    held.go.set()
    assert all(outcome(slow))
    assert f.add("z")
    assert f.contains("x") == (arrives == "after the clear")


class Beside(LosingClient):
    """A client that runs another action with its next command."""

    def __init__(self, client: redis.Redis) -> None:
        super().__init__(client)
        self.first: Callable[[], object] | None = None

    def execute_command(self, *command: Any, **options: Any) -> Any:
        first, self.first = self.first, None
        if first is not None:
            first()
        return super().execute_command(*command, **options)


INFORMED: dict[str, tuple[Any, dict[str, Any]]] = {
    "blocked": (BloomFilter, {}),
    "counting": (CountingBloomFilter, {}),
    "scaling": (bloomredis.ScalingBloomFilter, {}),
    "rotating": (bloomredis.RotatingBloomFilter, {"window": 60}),
    "sharded": (bloomredis.ShardedBloomFilter, {}),
    "module": (BloomFilter, {"layout": "module"}),
}


@for_each("kind", INFORMED)
def test_info_beside_a_clear_of_the_same_object(any_client: redis.Redis, kind: str) -> None:
    """It describes the empty filter, and reports no loss."""
    if kind == "module":
        needs_module(any_client)
    made, options = INFORMED[kind]
    client: Any = Beside(any_client)
    f: Any = made(client, "seen", **SIZE, **options)
    f.add("a")
    client.first = f.clear
    assert f.info().count == 0
    assert f.add("a")


def test_a_call_that_opens_the_filter_during_a_clear(any_proxy: Proxy) -> None:
    """The call sees the filter from before the clear, and the next call on the object succeeds too."""
    f = BloomFilter(any_proxy.client(), "seen", **SIZE)
    f.add("warm")
    f.clear()
    cleared = Held()
    coming = Held(cleared, executed=False)
    any_proxy.plan("clear", coming)
    clearing = started(f.clear)
    coming.wait()
    assert started(lambda: f.add("x")).result(PATIENCE)
    coming.go.set()
    cleared.wait()
    told = outcome(started(lambda: f.add("y")))
    cleared.go.set()
    clearing.result(PATIENCE)
    assert told is True
    assert f.contains_many(["x", "y"]) == [False, True]


@sized("count", make_test=40, make_test_all=100)
def test_a_clear_fails_no_call_of_many_threads(any_proxy: Proxy, count: int) -> None:
    """Threads that share a filter get no error while one of them clears it after each answer."""
    f = BloomFilter(any_proxy.client(), "seen", **SIZE)
    f.add("warm")
    stop, answers = threading.Event(), threading.Semaphore(0)

    def clear() -> None:
        while not stop.is_set():
            f.clear()
            answers.acquire(timeout=PATIENCE)

    clearing = started(clear)

    def add(worker: int) -> list[bool]:
        told = []
        for i in range(count):
            told.append(f.add(f"{worker}/{i}"))
            answers.release()
        return told

    adding = [started(partial(add, worker)) for worker in range(6)]
    told = [outcome(each) for each in adding]
    stop.set()
    answers.release()
    clearing.result(PATIENCE)
    assert told == [[True] * count] * 6


def test_a_clear_by_a_task_fails_no_other_call(any_proxy: Proxy) -> None:
    """The same holds for tasks."""

    async def main() -> None:
        async with any_proxy.asyncio_client() as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", **SIZE)
            await f.add("warm")
            held = Held(executed=False)
            any_proxy.plan("add", held)
            slow = asyncio.create_task(f.add("x"))
            await asyncio.to_thread(held.wait)
            waiting = [asyncio.create_task(f.add(item)) for item in "ab"]
            await f.clear()
            held.go.set()
            assert await asyncio.gather(slow, *waiting) == [True] * 3
            assert await f.add("z")

    asyncio.run(main())


def test_a_clear_by_another_is_a_loss(any_proxy: Proxy, other: BloomFilter) -> None:
    """The call in flight raises the loss; the next one goes on, since the filter was cleared on purpose."""
    f = BloomFilter(any_proxy.client(), "seen", **SIZE)
    f.add("warm")
    held = Held(executed=False)
    any_proxy.plan("add", held)
    slow = started(lambda: f.add("x"))
    held.wait()
    other.clear()
    held.go.set()
    assert isinstance(outcome(slow), FilterLostError)
    assert [f.add("x"), f.add("y")] == [True, True]


@pytest.mark.parametrize("when", [1, 2, 5])
def test_a_loss_is_told_once(
    any_proxy: Proxy, any_client: redis.Redis, bloom: Any, when: int, losses: Callable[[], list[str]]
) -> None:
    """A batch of many scripts that finds one loss warns once, and answers all its items."""
    f = bloom(any_proxy.client(), "seen", on_lost="recreate", **LARGE)
    f.add("warm")
    any_proxy.plan("add", *[passed] * (when - 1), once_executed(lambda: any_client.delete("seen"), passed))
    items = [f"{i}" for i in range(5000)]
    assert f.add_many(items) == [True] * len(items)
    assert len(losses()) == 1


def test_a_loss_is_told_once_to_threads(
    any_proxy: Proxy, any_client: redis.Redis, losses: Callable[[], list[str]]
) -> None:
    """One warning, however many threads find the loss at the same time."""
    f = BloomFilter(any_proxy.client(), "seen", on_lost="recreate", **SIZE)
    f.add("warm")
    together = threading.Barrier(8)

    def arrive() -> None:
        if together.wait(PATIENCE) == 0:
            any_client.delete("seen")
        together.wait(PATIENCE)

    any_proxy.plan("add", *[after(arrive, passed)] * 8)
    adding = [started(partial(f.add, f"{w}")) for w in range(8)]
    assert [outcome(each) for each in adding] == [True] * 8
    assert len(losses()) == 1
    assert f.info().count == 8


def test_a_loss_is_told_once_to_tasks(
    any_proxy: Proxy, any_client: redis.Redis, losses: Callable[[], list[str]]
) -> None:
    """One warning, however many tasks find the loss."""

    async def main() -> None:
        async with any_proxy.asyncio_client() as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", on_lost="recreate", **SIZE)
            await f.add("warm")
            any_client.delete("seen")
            told = await asyncio.gather(*(f.add(f"{i}") for i in range(500)))
            assert told == [True] * 500
            assert (await f.info()).count == 500

    asyncio.run(main())
    assert len(losses()) == 1


def test_each_loss_is_told(any_client: redis.Redis, bloom: Any, losses: Callable[[], list[str]]) -> None:
    """Each of several losses is reported once."""
    f, before = bloom(any_client, "seen", on_lost="recreate", **SIZE), len(losses())
    for count in range(3):
        assert f.add("x")
        assert len(losses()) == before + count
        any_client.delete("seen")


@for_each("call", [lambda f: f.add("x"), lambda f: f.contains("x"), lambda f: f.info()])
def test_a_loss_that_was_raised_leaves_the_object_lost(
    any_client: redis.Redis, bloom: Any, call: Callable[[Any], object]
) -> None:
    """Every further call raises, until the caller handles the loss."""
    f = bloom(any_client, "seen", **SIZE)
    f.add("x")
    any_client.delete("seen")
    for _ in range(3):
        with pytest.raises(FilterLostError):
            call(f)
    assert not any_client.exists("seen")
    with pytest.raises(FilterLostError):  # also if only `info()` has raised it, which tells nobody
        f.add("x")
    f.acknowledge()
    assert f.add("x")
