"""Filters of asyncio: shared round trips, cancellation, event loops."""

from __future__ import annotations

import asyncio
import inspect
import random
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import fakeredis
import pytest
import redis
import redis.asyncio
import valkey.asyncio

import bloomredis
from bloomredis import FilterLostError, OutcomeUnknownError
from bloomredis.asyncio import BloomFilter
from tests.support.servers import Server, running
from tests.support.sizes import sized

Use = Callable[[Any, BloomFilter], Awaitable[Any]]


def with_filter(server: Server, use: Use) -> Any:
    """Run `use(client, filter)` in a new event loop."""

    async def main() -> Any:
        async with redis.asyncio.Redis(unix_socket_path=server.socket) as client:
            return await use(client, BloomFilter(client, "seen", capacity=100_000, error_rate=1e-9))

    return asyncio.run(main())


def test_both_drivers_have_the_same_face() -> None:
    """Both drivers have equal names, signatures and docstrings, up to what the language requires."""

    def face(cls: type) -> dict[str, Any]:
        return {name: member for name, member in vars(cls).items() if not name.startswith("_")}

    ours, theirs = face(bloomredis.BloomFilter), face(BloomFilter)
    assert set(ours) == set(theirs)
    for name in set(ours) - {"dedupe", "update", "open", "from_url"}:
        assert inspect.getdoc(ours[name]) == inspect.getdoc(theirs[name])
        signatures = inspect.signature(ours[name]), inspect.signature(theirs[name])
        assert signatures[0].parameters == signatures[1].parameters
        assert signatures[0] == signatures[1] or name == "claim"  # `claim` can be entered as well as awaited
    assert (
        inspect.signature(bloomredis.BloomFilter).parameters.keys()
        == inspect.signature(BloomFilter).parameters.keys()
    )
    assert bloomredis.BloomFilter.__doc__ == BloomFilter.__doc__


def test_every_public_name_is_documented() -> None:
    """Every public name has a docstring."""
    for name, member in vars(bloomredis.BloomFilter).items():
        assert name.startswith("_") or inspect.getdoc(member)


def test_concurrent_calls_share_round_trips(any_server: Server) -> None:
    """1,000 concurrent adds get correct answers with a handful of script calls."""

    async def use(client: Any, f: BloomFilter) -> int:
        await f.create()
        await client.config_resetstat()
        told = await asyncio.gather(*(f.add(f"{i % 500}") for i in range(1000)))
        assert told == [True] * 500 + [False] * 500
        stats = await client.info("commandstats")
        return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))

    assert with_filter(any_server, use) < 30


def test_tasks_that_are_told_together_travel_together(any_server: Server) -> None:
    """With few tasks no batch is sent while another is in flight: each call carries all of them."""

    async def use(client: Any, f: BloomFilter) -> int:
        async def work(worker: int) -> None:
            for i in range(5):
                assert await f.add(f"{worker}-{i}")

        await f.add_many(["the server learns", "the script"])
        await client.config_resetstat()
        await asyncio.gather(*map(work, range(24)))
        calls: int = (await client.info("commandstats"))["cmdstat_evalsha"]["calls"]
        return calls

    assert with_filter(any_server, use) <= 1 + 5 + 1  # the first is sent alone, and is one call behind


def test_equal_items_are_answered_in_the_order_of_their_calls(any_server: Server) -> None:
    """The first of many equal calls gets True, and a test after an add finds the item."""

    async def use(_: Any, f: BloomFilter) -> None:
        for i in range(50):
            told = await asyncio.gather(f.add("a" * i), *(f.add("a" * i) for _ in range(20)), f.add(f"b{i}"))
            assert told == [True, *[False] * 20, True]

    with_filter(any_server, use)


def test_batches_share_round_trips_too(any_server: Server) -> None:
    """Each caller of a shared batch gets its own answers, in the order of its items."""

    async def use(_: Any, f: BloomFilter) -> None:
        batches = [[f"{i}", f"{i}", f"{i + 1}", f"x{i}"] for i in range(0, 200, 2)]
        told = await asyncio.gather(*(f.add_many(batch) for batch in batches), f.add_many([]))
        assert told == [*[[True, False, True, True]] * 100, []]
        assert all(map(all, await asyncio.gather(*map(f.contains_many, batches))))

    with_filter(any_server, use)


def test_a_bad_item_fails_its_own_caller_alone(any_server: Server) -> None:
    """A bad item fails its own caller; the other callers of the batch get their answers."""

    async def use(_: Any, f: BloomFilter) -> None:
        items: list[Any] = ["a", 1.5, "b", "\udcff", b"c", None]
        told = await asyncio.gather(*map(f.add, items), return_exceptions=True)
        assert [told[i] for i in (0, 2, 4)] == [True] * 3
        assert [type(told[i]) for i in (1, 3, 5)] == [TypeError, ValueError, TypeError]

    with_filter(any_server, use)


def test_a_lost_filter_is_told_to_every_caller(any_server: Server) -> None:
    """Each caller gets its own error."""

    async def use(client: Any, f: BloomFilter) -> None:
        await f.create()
        await client.delete("seen")
        told = await asyncio.gather(*(f.add(f"{i}") for i in range(50)), return_exceptions=True)
        assert {type(error) for error in told} == {FilterLostError}
        assert len({id(error) for error in told}) == 50

    with_filter(any_server, use)


def test_cancelled_callers_disturb_nobody(any_server: Server) -> None:
    """With tasks cancelled at random no item has two winners, and every other caller gets an answer."""

    async def use(_: Any, f: BloomFilter) -> None:
        dice = random.Random(5)
        for round_ in range(30):
            items = [f"{round_}-{i % 40}" for i in range(120)]
            tasks = [asyncio.ensure_future(f.add(item)) for item in items]
            for task in dice.sample(tasks, 40):
                asyncio.get_running_loop().call_later(dice.random() * 0.002, task.cancel)
            told = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(answer, bool | asyncio.CancelledError) for answer in told)
            for item in set(items):
                wins = [answer for name, answer in zip(items, told, strict=True) if name == item]
                assert wins.count(True) <= 1
                assert True in wins or any(isinstance(answer, asyncio.CancelledError) for answer in wins)
            assert all(await f.contains_many([i for i, a in zip(items, told, strict=True) if a is True]))

    with_filter(any_server, use)


def test_a_queue_of_cancelled_callers_is_no_obstacle(any_server: Server) -> None:
    """Callers queued behind a whole batch of cancelled calls get their answers."""

    async def use(_: Any, f: BloomFilter) -> None:
        await f.create()
        gone = [asyncio.ensure_future(f.add(f"gone-{i}")) for i in range(2000)]
        stays = [asyncio.ensure_future(f.add(f"stays-{i}")) for i in range(20)]
        await asyncio.sleep(0)
        for task in gone:
            task.cancel()
        assert await asyncio.wait_for(asyncio.gather(*stays), 10) == [True] * 20

    with_filter(any_server, use)


def test_a_cancelled_lone_call_may_be_made_again(any_server: Server) -> None:
    """A retry after a cancellation in flight still reports the item as new."""

    async def use(client: Any, f: BloomFilter) -> None:
        await f.add("warm")
        for i in range(200):
            task = asyncio.ensure_future(f.add(f"{i}"))
            for _ in range(i % 7):
                await asyncio.sleep(0)
            task.cancel()
            try:
                answer = await task
            except asyncio.CancelledError:
                answer = await f.add(f"{i}")
            assert answer

    with_filter(any_server, use)


@sized("tasks", make_test=10_000, make_test_all=100_000)
def test_waiting_calls_are_small(any_server: Server, tasks: int) -> None:
    """Tasks that wait in add() take less than 1.5 KB each, and all get their answers."""

    async def use(_: Any, f: BloomFilter) -> None:
        await f.create()
        items = [f"{i}" for i in range(tasks)]
        tracemalloc.start()
        waiting = [asyncio.ensure_future(f.add(item)) for item in items]
        await asyncio.sleep(0)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak / len(items) < 1500
        assert sum(await asyncio.gather(*waiting)) == tasks

    with_filter(any_server, use)


def test_a_dead_server_fails_every_caller(servers: Callable[[str], Server], any_server: Server) -> None:
    """Every caller gets an error with its own token, within the client's timeout."""

    async def use(server: Server) -> None:
        async with redis.asyncio.Redis(
            unix_socket_path=server.socket, socket_timeout=1, retry=redis.asyncio.retry.Retry(_NO_BACKOFF, 0)
        ) as client:
            f = BloomFilter(client, "seen", capacity=1000, error_rate=0.01)
            await f.create()
            server.stop()
            calls = (f.add(f"{i}") for i in range(500))
            told = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 10)
            assert {type(error) for error in told} == {OutcomeUnknownError}
            assert len({error.token for error in told if isinstance(error, OutcomeUnknownError)}) == 500

    with running(any_server.binary) as own:
        asyncio.run(use(own))


_NO_BACKOFF = redis.backoff.NoBackoff()


def test_dedupe_takes_any_iterable(any_server: Server) -> None:
    """`dedupe` takes iterables and async iterables, and keeps their order."""

    async def stream() -> AsyncIterator[int]:
        for i in range(2500):
            yield i % 2000

    async def use(_: Any, f: BloomFilter) -> None:
        assert [item async for item in f.dedupe(stream())] == list(range(2000))
        mixed: list[int | str] = [1, "new", 2]
        assert [item async for item in f.dedupe(mixed)] == ["new"]

    with_filter(any_server, use)


def test_a_second_event_loop_is_told_what_to_do(any_server: Server) -> None:
    """While the first loop is open the filter belongs to it, and the error in the second says what to do."""
    client = redis.asyncio.Redis(unix_socket_path=any_server.socket)
    f = BloomFilter(client, "loops", capacity=100, error_rate=0.01)
    first = asyncio.new_event_loop()
    first.run_until_complete(f.add("a"))

    async def second() -> bool:
        with pytest.raises(RuntimeError, match="with_client"):
            await f.add("b")
        async with redis.asyncio.Redis(unix_socket_path=any_server.socket) as other:
            return await f.with_client(other).add("a")

    assert asyncio.run(second()) is False
    first.run_until_complete(client.aclose())
    first.close()


def test_one_loop_after_the_other(any_server: Server) -> None:
    """A filter whose client was closed with its loop works in the next loop."""
    client = redis.asyncio.Redis(unix_socket_path=any_server.socket)
    f = BloomFilter(client, "loops-in-turn", capacity=100, error_rate=0.01)

    async def main(item: str) -> bool:
        async with client:
            return await f.add(item)

    assert [asyncio.run(main(item)) for item in ("a", "a", "b")] == [True, False, True]


def test_valkeys_asyncio_client(any_server: Server) -> None:
    """The asyncio client of the valkey package works too."""

    async def main() -> list[bool]:
        client = valkey.asyncio.Valkey(unix_socket_path=any_server.socket)
        f = BloomFilter(client, "valkey", capacity=100, error_rate=0.01)
        await client.script_flush()
        told = await f.add_many(["a", "b", "a"])
        await client.aclose()
        return told

    assert asyncio.run(main()) == [True, True, False]


def test_fakeredis() -> None:
    """A fakeredis client works, alone and in a pipeline, also after SCRIPT FLUSH."""

    async def main() -> list[Any]:
        async with fakeredis.FakeAsyncRedis(server=fakeredis.FakeServer()) as client:
            f = BloomFilter(client, "fake", capacity=100, error_rate=0.01)
            told: list[Any] = await f.add_many(["a", "b", "a"])
            await client.script_flush()
            pipe = client.pipeline()
            for item in ("b", "c"):
                await f.queue_add(pipe, item)
            return [*told, await f.contains("a"), *await pipe.execute()]

    assert asyncio.run(main()) == [True, True, False, True, 0, 1]


def test_a_sync_client_is_refused() -> None:
    """The message names the class that takes the client."""
    with pytest.raises(TypeError, match=r"bloomredis\.BloomFilter"):
        BloomFilter(redis.Redis(), "f")  # type: ignore[arg-type]  # tested on purpose


@pytest.mark.parametrize("many", [False, True])
def test_a_cancellation_that_the_client_loses(
    any_server: Server,
    monkeypatch: pytest.MonkeyPatch,
    many: bool,  # noqa: FBT001 - a parameter
) -> None:
    """No answer is lost if the client swallows a cancellation, as `wait_for` of Python 3.11 may do."""

    async def check() -> tuple[bool, bool]:
        async with redis.asyncio.Redis(unix_socket_path=any_server.socket) as client:
            f = BloomFilter(client, "seen", capacity=1000, error_rate=1e-9)
            await f.add("warm")
            execute: Any = client.execute_command
            sent = asyncio.Event()

            async def losing(*args: Any, **options: Any) -> Any:
                call = asyncio.ensure_future(execute(*args, **options))
                sent.set()
                try:
                    return await asyncio.shield(call)
                except asyncio.CancelledError:
                    return await call

            with monkeypatch.context() as patch:
                patch.setattr(client, "execute_command", losing)
                adding: asyncio.Future[Any] = asyncio.ensure_future(
                    f.add_many(["a", "b"]) if many else f.add("a")
                )
                await sent.wait()
                adding.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await adding
            return await f.add("a"), await f.add("a")

    assert asyncio.run(check()) == (True, False)
