"""The tasks that the library makes are cancelled, at every step and before the first: no call hangs."""

from __future__ import annotations

import asyncio
import gc
import io
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
import redis
import redis.asyncio

import bloomredis.asyncio
from bloomredis import BloomError, OutcomeUnknownError
from tests.support.own_tasks import own_tasks_cancelled
from tests.support.servers import Server
from tests.support.values import for_each

SIZE: dict[str, Any] = {"capacity": 1000, "error_rate": 1e-6}
CALLERS = 8
TURNS = 12
"""More turns of the loop than a shared call takes."""

Filter = Any


async def add(f: Filter, item: str) -> bool:
    return bool(await f.add(item))


async def contain(f: Filter, item: str) -> bool:
    return bool(await f.contains(item))


async def add_some(f: Filter, item: str) -> bool:
    return bool((await f.add_many([item]))[0])


async def claim(f: Filter, item: str) -> bool:
    return bool((await f.claim(item)).state == "claimed")


async def commit(f: Filter, item: str) -> bool:
    """Return True again for an item that this object has committed, as a retry of the commit does."""
    held = f.__dict__.setdefault("held", {})
    if item not in held:
        held[item] = await f.claim(item)
    await held[item].commit()
    return bool(await f.contains(item))


SHARED: dict[str, tuple[str, Callable[[Filter, str], Awaitable[bool]]]] = {
    "add": ("BloomFilter", add),
    "add_many": ("BloomFilter", add_some),
    "claim": ("BloomFilter", claim),
    "commit": ("BloomFilter", commit),
    "counted": ("CountingBloomFilter", add),
    "layers": ("ScalingBloomFilter", add),
    "shards": ("ShardedBloomFilter", claim),
}
"""Calls that share round trips: the kind of filter, and the call."""


async def answered(call: Callable[[], Awaitable[bool]]) -> bool:
    """Return the answer of a call, which is retried while its outcome is unknown."""
    while True:
        with suppress(OutcomeUnknownError):
            return await call()


@for_each("after", range(TURNS))
@for_each("verb", SHARED)
def test_calls_that_share_a_task(any_server: Server, verb: str, after: int) -> None:
    """Each caller gets its answer or an error, whose retry gets the answer; later calls are answered too."""
    kind, call = SHARED[verb]

    async def main() -> None:
        async with redis.asyncio.Redis(unix_socket_path=any_server.socket) as client:
            f = getattr(bloomredis.asyncio, kind)(client, "seen", **SIZE)
            await f.add("warm")
            for round_ in range(3):
                items = [f"{round_}:{i}" for i in range(CALLERS)]
                with own_tasks_cancelled(after, every=2):
                    callers = [answered(lambda item=item: call(f, item)) for item in items]  # type: ignore[misc]
                    assert await asyncio.gather(*callers) == [True] * CALLERS
                assert await call(f, f"{round_}:later")
            if kind == "CountingBloomFilter":
                assert (await f.info()).count == 3 * (CALLERS + 1) + 1

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_test_that_shares_a_task(any_server: Server) -> None:
    """Its callers get an error instead of waiting for ever."""

    async def main() -> None:
        async with redis.asyncio.Redis(unix_socket_path=any_server.socket) as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", **SIZE)
            await f.add("x")
            with own_tasks_cancelled(0) as cancelled:
                told = await asyncio.gather(*(contain(f, "x") for _ in range(5)), return_exceptions=True)
            assert told[0] is True
            assert [type(each) for each in told[1:]] == [OutcomeUnknownError] * 4
            assert cancelled
            assert await f.contains("x")

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_program_that_ends_in_the_middle(any_server: Server) -> None:
    """`asyncio.run` ends with a shared call in flight; the filter works in the next loop."""
    client: Any = redis.asyncio.Redis(unix_socket_path=any_server.socket)
    f = bloomredis.asyncio.BloomFilter(client, "seen", **SIZE)

    async def begin(items: list[str], turns: int) -> list[asyncio.Task[bool]]:
        await f.add("warm")
        tasks = [asyncio.ensure_future(f.add(item)) for item in items]
        for _ in range(turns):
            await asyncio.sleep(0)
        client.connection_pool.reset()
        return tasks

    async def go_on(items: list[str], begun: list[asyncio.Task[bool]]) -> list[bool]:
        calls = (f.add(item) for item, task in zip(items, begun, strict=True) if task.cancelled())
        told = await asyncio.gather(*calls)
        client.connection_pool.reset()
        return [*told, *(task.result() for task in begun if not task.cancelled())]

    for turns in range(TURNS):
        items = [f"{turns}:{i}" for i in range(CALLERS)]
        begun = asyncio.run(begin(items, turns))
        assert asyncio.run(asyncio.wait_for(go_on(items, begun), 60)) == [True] * CALLERS


def test_no_error_of_a_cancelled_task_is_logged(any_server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """The log has neither an exception that was never retrieved nor a coroutine that was never awaited."""
    gc.collect()  # what earlier tests have left is logged now
    caplog.clear()

    async def main() -> None:
        async with redis.asyncio.Redis(unix_socket_path=any_server.socket) as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", **SIZE)
            await f.add("warm")
            for after in range(TURNS):
                with own_tasks_cancelled(after):
                    calls = (add(f, f"{after}:{i}") for i in range(CALLERS))
                    await asyncio.gather(*calls, return_exceptions=True)
                    await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(main(), 60))
    gc.collect()
    assert not caplog.records


@for_each("verb", ["update", "save"])
def test_an_executor_that_is_shut_down(any_server: Server, verb: str) -> None:
    """A call that needs a thread says so."""

    async def main() -> None:
        async with redis.asyncio.Redis(unix_socket_path=any_server.socket) as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", **SIZE)
            await f.add("x")
            await asyncio.get_running_loop().shutdown_default_executor()
            call = f.update(["y"]) if verb == "update" else f.save(io.BytesIO())
            with pytest.raises(BloomError, match="shutdown_default_executor"):
                await call
            assert not await f.add("x")

    asyncio.run(main())
