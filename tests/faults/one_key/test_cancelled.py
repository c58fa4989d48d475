"""A cancelled task loses no answer: a retry on the same object gets it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any
from unittest.mock import Mock

import pytest
import redis

import bloomredis.asyncio
from bloomredis import BloomFilter, ShardedBloomFilter
from bloomredis.drivers.aio_running import drive
from bloomredis.drivers.sharing.batch import MOST_ITEMS
from tests.support.proxy import Held, Proxy, passed
from tests.support.values import for_each
from tests.support.wrapping import wrapped

SIZE: dict[str, Any] = {"capacity": 100_000, "error_rate": 1e-6}
ITEMS = [f"{i}" for i in range(2500)]

Filter = Any
Scene = Callable[[Filter], Coroutine[Any, Any, None]]


def play(proxy: Proxy, scene: Scene, kind: str = "BloomFilter", **options: Any) -> None:
    """Run a scene with an open filter."""

    async def main() -> None:
        async with proxy.asyncio_client() as client:
            f = getattr(bloomredis.asyncio, kind)(client, "seen", **{**SIZE, **options})
            await f.add("warm")
            await asyncio.wait_for(scene(f), 60)

    asyncio.run(main())


async def cancelled_at(held: Held, call: Awaitable[Any]) -> None:
    """Cancel a call when its request has reached `held`, and let the request continue."""
    task = asyncio.ensure_future(call)
    await asyncio.to_thread(held.wait)
    await _sent()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    held.go.set()


async def _sent() -> None:
    """Let the client finish sending: the wait_for() of Python 3.11 may swallow an earlier cancellation."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("executed", [True, False])
@pytest.mark.parametrize("script", [1, 2, 4])
def test_a_batch(any_proxy: Proxy, script: int, executed: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Whichever script is cancelled, a retry of the batch reports each of its items as new."""

    async def scene(f: Filter) -> None:
        held = Held(executed=executed)
        any_proxy.plan("add", *[passed] * (script - 1), held)
        await cancelled_at(held, f.add_many(ITEMS))
        assert await f.add_many(ITEMS) == [True] * len(ITEMS)
        assert not any(await f.add_many(ITEMS))

    play(any_proxy, scene)


def test_a_batch_of_a_filter_in_layers(any_proxy: Proxy) -> None:
    """The same holds for a filter that grows during the batch."""

    async def scene(f: Filter) -> None:
        held = Held()
        any_proxy.plan("add", passed, passed, passed, held)
        await cancelled_at(held, f.add_many(ITEMS))
        assert await f.add_many(ITEMS) == [True] * len(ITEMS)

    play(any_proxy, scene, "ScalingBloomFilter", capacity=1000)


def test_a_batch_of_a_sharded_filter(any_proxy: Proxy) -> None:
    """The same holds for a call to several shards."""

    async def scene(f: Filter) -> None:
        await f.add_many([f"warm {i}" for i in range(100)])
        held = Held()
        any_proxy.plan("add", passed, held)
        await cancelled_at(held, f.add_many(ITEMS))
        assert await f.add_many(ITEMS) == [True] * len(ITEMS)

    play(any_proxy, scene, "ShardedBloomFilter", shards=4)


@pytest.mark.parametrize("executed", [True, False])
def test_an_item_alone(any_proxy: Proxy, executed: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Cancelled during its own call, an item is new on retry."""

    async def scene(f: Filter) -> None:
        held = Held(executed=executed)
        any_proxy.plan("add", held)
        await cancelled_at(held, f.add("x"))
        assert [await f.add("x"), await f.add("x")] == [True, False]

    play(any_proxy, scene)


async def _claims(f: Filter, item: str) -> bool:
    return bool((await f.claim(item)).state == "claimed")


async def _claims_many(f: Filter, items: list[str]) -> list[bool]:
    return [claim.state == "claimed" for claim in await f.claim_many(items)]


_ALONE_AFTER: dict[str, Any] = {
    "add": (lambda f, item: f.add(item), lambda f, items: f.add_many(items)),
    "claim": (_claims, _claims_many),
}


@pytest.mark.parametrize("verb", [*_ALONE_AFTER])
def test_an_item_in_company_and_then_in_a_large_batch(any_proxy: Proxy, verb: str) -> None:
    """A batch that shares no calls waits for a shared one whose caller is gone, and gets its answer."""
    one, many = _ALONE_AFTER[verb]

    async def scene(f: Filter) -> None:
        await one(f, "warmer")
        first, shared = Held(), Held()
        any_proxy.plan(verb, first, shared)
        alone = asyncio.ensure_future(one(f, "alone"))
        await asyncio.to_thread(first.wait)
        mine = asyncio.ensure_future(one(f, "x"))
        await asyncio.sleep(0)
        first.go.set()
        await asyncio.to_thread(shared.wait)
        mine.cancel()
        with pytest.raises(asyncio.CancelledError):
            await mine
        large = asyncio.ensure_future(many(f, ["x", *ITEMS[: MOST_ITEMS + 1]]))
        await _sent()
        shared.go.set()
        assert await alone
        assert all(await large)
        assert not await one(f, "x")

    play(any_proxy, scene)


@pytest.mark.parametrize("call", [lambda f: f.add("x"), lambda f: f.add_many(["x"])])
def test_an_item_in_company(any_proxy: Proxy, call: Callable[[Filter], Awaitable[Any]]) -> None:
    """Cancelled during a shared call, an item is new on retry."""

    async def scene(f: Filter) -> None:
        first, shared = Held(), Held()
        any_proxy.plan("add", first, shared)
        alone = asyncio.create_task(f.add("alone"))
        await asyncio.to_thread(first.wait)
        mine = asyncio.ensure_future(call(f))
        company = asyncio.create_task(f.add("company"))
        await asyncio.sleep(0)
        first.go.set()
        await cancelled_at(shared, mine)
        assert [await alone, await company] == [True, True]
        assert [await f.add("x"), await f.add("x")] == [True, False]

    play(any_proxy, scene)


def test_an_item_whose_answer_has_just_arrived(any_proxy: Proxy) -> None:
    """Cancelled between its reply and its task's turn, an item is new on retry."""

    async def scene(f: Filter) -> None:
        held = Held()
        any_proxy.plan("add", held)
        alone = asyncio.create_task(f.add("alone"))
        await asyncio.to_thread(held.wait)
        mine = asyncio.create_task(f.add("x"))
        company = asyncio.create_task(f.add("company"))
        company.add_done_callback(lambda _: mine.cancel())
        await asyncio.sleep(0)
        held.go.set()
        results = await asyncio.gather(alone, mine, company, return_exceptions=True)
        if isinstance(results[1], asyncio.CancelledError):
            assert await f.add("x")
        else:
            assert results[1] is True
        assert not await f.add("x")

    play(any_proxy, scene)


def test_an_item_in_the_queue(any_proxy: Proxy) -> None:
    """Cancelled before it was sent, an item is not added, and is new on retry."""

    async def scene(f: Filter) -> None:
        held = Held()
        any_proxy.plan("add", held)
        alone = asyncio.create_task(f.add("alone"))
        await asyncio.to_thread(held.wait)
        mine, other = asyncio.create_task(f.add("x")), asyncio.create_task(f.add("other"))
        await asyncio.sleep(0)
        mine.cancel()
        held.go.set()
        assert [await alone, await other] == [True, True]
        assert not await f.contains("x")
        assert await f.add("x")

    play(any_proxy, scene)


def test_all_in_company(any_proxy: Proxy) -> None:
    """If every task of a shared call is cancelled, each item is new on retry."""

    async def scene(f: Filter) -> None:
        first, shared = Held(), Held()
        any_proxy.plan("add", first, shared)
        alone = asyncio.create_task(f.add("alone"))
        await asyncio.to_thread(first.wait)
        tasks = [asyncio.create_task(f.add(f"{i}")) for i in range(5)]
        await asyncio.sleep(0)
        first.go.set()
        await asyncio.to_thread(shared.wait)
        await _sent()
        for task in tasks:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in found)
        shared.go.set()
        assert await alone
        assert [await f.add(f"{i}") for i in range(5)] == [True] * 5

    play(any_proxy, scene)


@pytest.mark.parametrize("executed", [True, False])
def test_a_removal(any_proxy: Proxy, executed: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """The item is removed once, and the retry gets the answer."""

    async def scene(f: Filter) -> None:
        await f.add_many(["x", "x", "y"])
        await f.remove("y")
        held = Held(executed=executed)
        any_proxy.plan("remove", held)
        await cancelled_at(held, f.remove("x"))
        assert await f.remove("x")
        assert (await f.info()).count == 2  # the warm item, and one of the two

    play(any_proxy, scene, "CountingBloomFilter", capacity=1000)


@pytest.mark.parametrize("executed", [True, False])
def test_a_claim(any_proxy: Proxy, executed: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """The worker that retries holds the item, and commits it."""

    async def claims(f: Filter) -> Any:
        return await f.claim("x", lease=60)

    async def scene(f: Filter) -> None:
        await (await f.claim("warmer")).commit()
        held = Held(executed=executed)
        any_proxy.plan("claim", held)
        await cancelled_at(held, claims(f))
        claim = await f.claim("x", lease=60)
        assert claim.state == "claimed"
        held = Held(executed=executed)
        any_proxy.plan("commit", held)
        await cancelled_at(held, claim.commit())
        await claim.commit()
        assert claim.state == "done"
        assert await f.contains("x")

    play(any_proxy, scene)


@pytest.mark.parametrize("script", [1, 2, 4])
def test_claims_of_a_batch(any_proxy: Proxy, script: int) -> None:
    """The worker that retries holds every item."""

    async def scene(f: Filter) -> None:
        await f.claim_many(["warmer"])
        held = Held()
        any_proxy.plan("claim", *[passed] * (script - 1), held)
        await cancelled_at(held, f.claim_many(ITEMS[:1000], lease=60))
        claims = await f.claim_many(ITEMS[:1000], lease=60)
        assert [claim.state for claim in claims] == ["claimed"] * 1000

    play(any_proxy, scene)


def test_an_add_with_a_local_cache(any_proxy: Proxy) -> None:
    """A cancellation while the cache is read, or in the add itself, loses no answer."""

    async def scene(f: Filter) -> None:
        for verb, item in (("add", "x"), ("read", "y")):
            held = Held()
            any_proxy.plan(verb, held)
            task = asyncio.create_task(f.add(item))
            while not held.reached.is_set() and not task.done():  # the cache is read only at its interval
                await asyncio.wait([task], timeout=0.001)
            task.cancel()
            held.go.set()
            found = (await asyncio.gather(task, return_exceptions=True))[0]
            assert found is True or await f.add(item)
            any_proxy.calm()

    play(any_proxy, scene, local_cache=True)


def test_a_shared_add_of_an_item_in_the_local_cache(any_proxy: Proxy) -> None:
    """A retry while the shared call is in flight waits for its answer."""

    async def scene(f: Filter) -> None:
        first, second = Held(), Held()
        any_proxy.plan("add", first, second)
        alone = asyncio.create_task(f.add("y"))
        await asyncio.to_thread(first.wait)
        shared = asyncio.create_task(f.add("x"))
        await _sent()
        first.go.set()
        await asyncio.to_thread(second.wait)
        shared.cancel()
        assert await f.contains("x")
        again = asyncio.create_task(f.add("x"))
        await _sent()
        second.go.set()
        assert await alone
        assert await again

    play(any_proxy, scene, local_cache=True)


async def _drained(items: AsyncIterator[str], into: list[str]) -> None:
    async for item in items:
        into.append(item)  # noqa: PERF401 - the list keeps its items when the task is cancelled


@pytest.mark.parametrize("script", [1, 2, 4])
def test_dedupe(any_proxy: Proxy, script: int) -> None:
    """Items not yielded before a cancellation are yielded on retry."""

    async def scene(f: Filter) -> None:
        got: list[str] = []
        held = Held()
        any_proxy.plan("add", *[passed] * (script - 1), held)
        await cancelled_at(held, _drained(f.dedupe(ITEMS), got))
        await _drained(f.dedupe(ITEMS), got)
        assert got == ITEMS

    play(any_proxy, scene)


def test_dedupe_that_is_left(any_proxy: Proxy) -> None:
    """Items with answers that a loop left early did not take are yielded again."""

    async def scene(f: Filter) -> None:
        got = []
        items = f.dedupe(ITEMS[:1500])
        async for item in items:
            got.append(item)
            if len(got) == 10:
                break
        await items.aclose()
        await _drained(f.dedupe(ITEMS[:1500]), got)
        assert got == ITEMS[:1500]

    play(any_proxy, scene)


def test_dedupe_that_is_left_by_a_thread(any_client: redis.Redis) -> None:
    """The same holds for the synchronous filter."""
    f = BloomFilter(any_client, "seen", **SIZE)
    got = []
    for item in f.dedupe(ITEMS[:1500]):
        got.append(item)
        if len(got) == 10:
            break
    got += f.dedupe(ITEMS[:1500])
    assert got == ITEMS[:1500]


@for_each("kind", [BloomFilter, ShardedBloomFilter])
def test_dedupe_that_is_left_after_a_clear(any_client: redis.Redis, kind: Any) -> None:
    """Its answers are about the cleared filter: another worker may have the items by now."""
    f = kind(any_client, "seen", **SIZE)
    new = f.dedupe(ITEMS[:100])
    assert next(new) == ITEMS[0]
    f.clear()
    assert all(kind(any_client, "seen", **SIZE).add_many(ITEMS[:100]))
    new.close()
    assert not any(f.add_many(ITEMS[:100]))


def test_dedupe_whose_source_fails(any_client: redis.Redis) -> None:
    """Items read before the source raised are yielded, or are new on retry."""
    f = BloomFilter(any_client, "seen", **SIZE)

    def source() -> Any:
        yield from ITEMS[:1500]
        raise RuntimeError("the source")

    got: list[str] = []
    with pytest.raises(RuntimeError, match="the source"):
        got.extend(f.dedupe(source()))
    got += f.dedupe(item for item in ITEMS[:1500])
    assert sorted(got) == sorted(ITEMS[:1500])


def test_wait_for_and_again(any_proxy: Proxy) -> None:
    """In a loop of `asyncio.wait_for` each item is new once, however often it timed out."""

    async def scene(f: Filter) -> None:
        slow = [Held() for _ in range(8)]
        any_proxy.plan("add", *[fate for held in slow for fate in (held, passed)])

        async def until_answered(item: str) -> bool:
            patience = 0.05
            while True:
                try:
                    return bool(await asyncio.wait_for(f.add(item), patience))
                except TimeoutError:
                    patience *= 2  # on a busy machine no call may end as soon
                    for held in slow:
                        held.go.set()

        told = await asyncio.gather(*(until_answered(item) for item in ITEMS[:200]))
        assert told == [True] * 200
        assert not any(await f.add_many(ITEMS[:200]))

    play(any_proxy, scene)


def test_a_cancellation_that_becomes_an_error_is_raised() -> None:
    """An asyncio.wait_for() whose inner call fails in the same turn raises that error."""

    async def failing() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise redis.ConnectionError("lost") from None

    def operation() -> Any:
        yield "a step"

    async def main() -> None:
        task = asyncio.ensure_future(drive(Mock(), operation(), lambda *_: failing()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


@pytest.mark.parametrize("as_given", [lambda client: client, wrapped], ids=["direct", "wrapped"])
def test_a_batch_that_is_closed_after_its_loop(any_proxy: Proxy, as_given: Any) -> None:
    """The batch's answers are repeated in the next loop, though the client cannot disconnect."""
    client = as_given(any_proxy.asyncio_client())
    f = bloomredis.asyncio.BloomFilter(client, "seen", **SIZE)
    held = Held()

    async def begin() -> asyncio.Task[list[bool]]:
        await f.add("warm")
        any_proxy.plan("add", passed, held)
        task = asyncio.ensure_future(f.add_many(ITEMS))
        await asyncio.to_thread(held.wait)
        await _sent()
        return task

    loop = asyncio.new_event_loop()
    task: Any = loop.run_until_complete(begin())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    task.get_coro().close()
    held.go.set()
    client.connection_pool.reset()
    assert asyncio.run(f.add_many(ITEMS)) == [True] * len(ITEMS)


@pytest.mark.parametrize("as_given", [lambda client: client, wrapped], ids=["direct", "wrapped"])
@pytest.mark.parametrize("kind", ["alone", "shared", "many"])
def test_a_call_that_its_loop_has_left(any_proxy: Proxy, kind: str, as_given: Any) -> None:
    """Its task is neither cancelled nor collected; a retry in the next loop gets its answer."""
    client = as_given(any_proxy.asyncio_client())
    f = bloomredis.asyncio.BloomFilter(client, "seen", **SIZE)
    first, held = Held(), Held()

    async def call() -> bool:
        return (await f.add_many(["new", "other"]))[0] if kind == "many" else await f.add("new")

    async def begin() -> list[asyncio.Task[Any]]:
        await f.add("warm")
        is_shared = kind == "shared"
        any_proxy.plan("add", *[first] * is_shared, held)
        calls = [*(f.add("first") for _ in range(is_shared)), call()]
        calls += [f.add(f"{i}") for i in range(40 * is_shared)]
        tasks = list(map(asyncio.ensure_future, calls))
        await asyncio.to_thread(held.wait)
        await _sent()
        return tasks

    loop = asyncio.new_event_loop()
    tasks = loop.run_until_complete(begin())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    first.go.set()
    held.go.set()
    client.connection_pool.reset()
    assert asyncio.run(call())
    assert not any(task.done() for task in tasks)
    for task in tasks:
        task.get_coro().close()
