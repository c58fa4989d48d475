"""A filter from a URL in several event loops: each loop has its own client."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import Any

import pytest
import redis

from bloomredis import BloomError
from bloomredis.asyncio import BloomFilter, connect
from tests.support.servers import Server
from tests.support.values import for_each
from tests.support.verbs import CALLS
from tests.support.waiting import wait_until


@for_each("url", ["memory://", "embedded://", "of the server"])
def test_one_loop_after_another(any_server: Server, url: str) -> None:
    """A filter works in one loop after another, as under a test client with a loop for each request."""
    url = any_server.url if url == "of the server" else url
    seen = BloomFilter.from_url(url, "seen", capacity=1000, error_rate=0.01)

    async def add(item: int) -> bool:
        gc.collect()  # frees what only the last loop referred to
        return await seen.add(item)

    assert [asyncio.run(add(i % 2)) for i in range(4)] == [True, True, False, False]
    assert asyncio.run(seen.contains_many(range(3))) == [True, True, False]


def test_two_loops_at_once(any_server: Server) -> None:
    """Two threads add an item, each in its own loop: exactly one add is the first."""
    seen = BloomFilter.from_url(any_server.url, "seen", capacity=1000, error_rate=0.01)
    answers: list[bool] = []

    async def adds() -> None:
        answers.extend(await asyncio.gather(*(seen.add(i % 10) for i in range(100))))

    threads = [threading.Thread(target=lambda: asyncio.run(adds())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(answers), sum(answers)) == (200, 10)


def test_loops_that_have_ended_are_forgotten(any_server: Server) -> None:
    """A filter keeps clients only for open loops."""
    seen = BloomFilter.from_url(any_server.url, "seen", capacity=1000, error_rate=0.01)
    loops = weakref.WeakSet[asyncio.AbstractEventLoop]()

    async def add(item: int) -> None:
        loops.add(asyncio.get_running_loop())
        await seen.add(item)

    for i in range(5):
        asyncio.run(add(i))
    gc.collect()
    assert len(loops) == 1


def test_a_filter_is_a_context_manager(any_server: Server, any_client: redis.Redis) -> None:
    """`async with` closes the connections of the filter's own client; the filter can be used again."""

    async def main() -> None:
        seen = BloomFilter.from_url(any_server.url, "seen", capacity=1000, error_rate=0.01)
        before = len(any_client.client_list())
        async with seen as same:
            assert await same.add("x")
            assert len(any_client.client_list()) == before + 1
        wait_until("it is closed", lambda: len(any_client.client_list()) == before)
        assert not await seen.add("x")
        await seen.aclose()

    asyncio.run(main())


@for_each("verb", [*CALLS, "shared adds"])
def test_a_client_in_a_second_loop(any_server: Server, verb: str) -> None:
    """A connection of an ended loop fails once, with an error of this library; the repeat has the answer."""
    outcomes: list[str] = []

    async def call(seen: BloomFilter) -> object:
        if verb == "shared adds":
            return await asyncio.gather(*(seen.add(i) for i in range(5)))
        return await (anext(seen.dedupe(["a"])) if verb == "dedupe" else CALLS[verb](seen))

    for i in range(20):
        client = redis.asyncio.Redis.from_url(any_server.url)
        seen = BloomFilter(client, f"seen{i}", capacity=1000, error_rate=0.01)
        asyncio.run(seen.create())
        try:
            asyncio.run(call(seen))
        except BloomError as error:
            outcomes.append(str(error))
            answer = asyncio.run(call(seen))
            assert verb != "add" or answer is True, "the repeat answers as the first attempt"
    assert outcomes
    assert all("connections of another event loop: make a client in each loop" in each for each in outcomes)


@for_each("is_own", [True, False])
@for_each("verb", CALLS)
def test_another_library_than_asyncio_is_refused(verb: str, *, is_own: bool) -> None:
    """Trio runs a coroutine without a loop of asyncio, as this test does; the error names asyncio."""
    client: Any = "memory://" if is_own else connect("redis://localhost:1")
    make = BloomFilter.from_url if is_own else BloomFilter
    seen = make(client, "seen", capacity=1000, error_rate=0.01)

    async def call() -> object:
        return await (anext(seen.dedupe(["a"])) if verb == "dedupe" else CALLS[verb](seen))

    with pytest.raises(RuntimeError, match="needs a running event loop of asyncio"):
        call().send(None)
