"""`dedupe` of sources that wait: nothing that has come waits with them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import numpy as np
import pytest
import redis
import redis.asyncio

import bloomredis
from bloomredis import BatchInterruptedError, BloomFilter
from bloomredis.drivers import streams
from tests.drivers.test_asyncio import with_filter
from tests.support.servers import Server
from tests.support.values import for_each

SIZE: dict[str, Any] = {"capacity": 100_000, "error_rate": 1e-9}


class Failing(redis.asyncio.Redis):
    """A client that fails in the next calls before it sends them."""

    fails = 0

    async def execute_command(self, *command: Any, **options: Any) -> Any:
        if self.fails:
            self.fails -= 1
            raise redis.ConnectionError("Connection closed before sending")
        return await super().execute_command(*command, **options)  # type: ignore[no-untyped-call]


class Clock:
    """A clock that only the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(streams, "perf_counter", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> list[int]:
    """The sizes of the batches that were sent; each takes a millisecond of the test's clock."""
    sizes: list[int] = []
    add_many: Callable[..., list[bool]] = BloomFilter.add_many

    def counted(self: BloomFilter[Any], items: list[Any]) -> list[bool]:
        sizes.append(len(items))
        clock.now += 0.001
        return add_many(self, items)

    monkeypatch.setattr(BloomFilter, "add_many", counted)
    return sizes


def test_each_item_of_a_slow_source_comes_out_before_the_next_is_asked_for(
    any_client: redis.Redis, clock: Clock, sent: list[int]
) -> None:
    """An item that takes longer to come than the last sending took is sent at once."""
    out: list[int] = []

    def slow() -> Iterator[int]:
        for i in range(20):
            assert out == list(range(i))
            clock.now += 0.05
            yield i

    out.extend(BloomFilter(any_client, "seen", **SIZE).dedupe(slow()))
    assert out == list(range(20))
    assert sent == [1] * 20


def test_only_the_last_burst_is_held(any_client: redis.Redis, clock: Clock) -> None:
    """While a source waits after a burst, the items that came slowly before it are out."""
    out: list[int] = []
    waits: list[int] = []

    def bursts() -> Iterator[int]:
        for i in range(100):
            if i % 10 == 0:
                waits.append(i - len(out))
                clock.now += 1
            yield i

    out.extend(BloomFilter(any_client, "seen", **SIZE).dedupe(bursts()))
    assert out == list(range(100))
    assert max(waits) < 10


def test_batches_of_a_fast_source_are_full(any_client: redis.Redis, sent: list[int]) -> None:
    """They have `batch` items, 1,000 unless the caller says otherwise; only the first has one."""
    f = BloomFilter(any_client, "seen", **SIZE)
    assert list(f.dedupe(iter(range(3000)))) == list(range(3000))
    assert sent == [1, 1000, 1000, 999]
    sent.clear()
    assert not list(f.dedupe(iter(range(20)), batch=5))
    assert sent == [1, 5, 5, 5, 4]


def test_no_batch_collects_for_longer_than_the_last_one_took(
    any_client: redis.Redis, clock: Clock, sent: list[int]
) -> None:
    """A source that is nearly as slow as the server does not fill a batch of 1,000."""

    def steady() -> Iterator[int]:
        for i in range(50):
            clock.now += 0.0003
            yield i

    list(BloomFilter(any_client, "seen", **SIZE).dedupe(steady()))
    assert sum(sent) == 50
    assert max(sent) == 4


def test_a_collection_is_sent_in_full_batches(any_client: redis.Redis, sent: list[int]) -> None:
    """What has a length cannot wait."""
    f = BloomFilter(any_client, "seen", **SIZE)
    given: list[Any] = [range(2500), list(range(2500, 5000)), set(range(5000, 7500)), np.arange(7500, 10_000)]
    for items in given:
        assert len(list(f.dedupe(items))) == 2500
    assert sent == [1000, 1000, 500] * len(given)


def test_items_before_an_error_of_the_source_are_added(bloom: Any, any_client: redis.Redis) -> None:
    """They are yielded too; then the error of the source is raised."""
    f = bloom(any_client, "seen", **SIZE)

    def source() -> Iterator[int]:
        yield from range(1500)
        raise RuntimeError("the source")

    got: list[int] = []
    with pytest.raises(RuntimeError, match="the source"):
        got.extend(f.dedupe(source()))
    assert got == list(range(1500))
    assert f.contains_many(range(1500)) == [True] * 1500


def test_items_of_an_async_source_before_an_error_are_added(any_server: Server) -> None:
    """`dedupe` adds them; then the error of the source is raised."""

    async def source(begin: int) -> AsyncIterator[int]:
        for i in range(begin, begin + 1500):
            yield i
        raise RuntimeError("the source")

    async def use(_: Any, f: bloomredis.asyncio.BloomFilter[int]) -> None:
        with pytest.raises(RuntimeError, match="the source"):
            assert [item async for item in f.dedupe(source(0))]
        assert all(await f.contains_many(range(1500)))

    with_filter(any_server, use)


@for_each("batch", [0, -1, True, 1.5, "5"])
def test_a_batch_is_a_positive_number(any_client: redis.Redis, batch: Any) -> None:
    """Any other is an error before the source is read."""
    source = iter("ab")
    with pytest.raises((TypeError, ValueError), match="batch must be"):
        list(BloomFilter(any_client, "seen", **SIZE).dedupe(source, batch=batch))
    assert list(source) == ["a", "b"]


def test_asyncio_sends_what_is_there_as_soon_as_the_source_waits(any_server: Server) -> None:
    """The source waits until the caller has all items that it gave before."""

    async def use(_: Any, f: bloomredis.asyncio.BloomFilter[int]) -> None:
        out: list[int] = []
        taken = asyncio.Condition()

        async def live() -> AsyncIterator[int]:
            for burst in range(20):
                for i in range(7):
                    yield burst * 7 + i
                async with taken:
                    await taken.wait_for(lambda: len(out) == burst * 7 + 7)  # noqa: B023 - waits here

        async for item in f.dedupe(live()):
            async with taken:
                out.append(item)
                taken.notify()
        assert out == list(range(140))

    with_filter(any_server, use)


def test_asyncio_reads_while_it_sends_and_rests_while_the_caller_works(any_server: Server) -> None:
    """A source that yields to the loop at each item fills batches; while the caller works it rests."""

    async def use(_: Any, f: bloomredis.asyncio.BloomFilter[int]) -> None:
        asked, sizes = 0, list[int]()
        add_many = f.add_many

        async def counted(items: Any) -> list[bool]:
            sizes.append(len(items))
            return await add_many(items)

        f.add_many = counted  # type: ignore[method-assign] # counts the batches

        async def source() -> AsyncIterator[int]:
            nonlocal asked
            for i in range(500):
                asked += 1
                yield i
                await asyncio.sleep(0)

        got = 0
        async for _item in f.dedupe(source()):
            begun = asked
            for _ in range(5):
                await asyncio.sleep(0)
            assert asked <= begun + 1
            got += 1
        assert got == sum(sizes) == 500
        assert len(sizes) < 250

    with_filter(any_server, use)


def test_an_asyncio_batch_has_at_most_batch_items(any_server: Server) -> None:
    """A source that never waits is read no further than that before a batch is sent."""

    async def use(_: Any, f: bloomredis.asyncio.BloomFilter[int]) -> None:
        sizes, add_many = list[int](), f.add_many

        async def counted(items: Any) -> list[bool]:
            sizes.append(len(items))
            return await add_many(items)

        f.add_many = counted  # type: ignore[method-assign] # counts the batches

        async def source() -> AsyncIterator[int]:
            for i in range(12):
                yield i

        assert [item async for item in f.dedupe(source(), batch=5)] == list(range(12))
        assert sizes == [5, 5, 2]

    with_filter(any_server, use)


def test_asyncio_cancels_a_source_that_waits_when_the_caller_stops(any_server: Server) -> None:
    """No task is left, and the source has run to its end."""

    async def use(_: Any, f: bloomredis.asyncio.BloomFilter[int]) -> None:
        ended = asyncio.Event()

        async def endless() -> AsyncIterator[int]:
            try:
                yield 1
                await asyncio.Event().wait()
            finally:
                ended.set()

        async for _item in f.dedupe(endless()):
            break
        gc.collect()  # the loop closes the abandoned generator
        await asyncio.wait_for(ended.wait(), 10)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if left:
            await asyncio.wait(left, timeout=10)
        assert all(task.done() for task in left)

    with_filter(any_server, use)


def test_asyncio_gives_back_what_it_has_read_ahead(any_server: Server) -> None:
    """After an interrupted batch, `rest` has the items that were read while it was sent, too."""

    async def main() -> None:
        async with Failing(unix_socket_path=any_server.socket) as client:
            f = bloomredis.asyncio.BloomFilter[int](client, "given back", **SIZE)
            got: list[int] = []

            async def source() -> AsyncIterator[int]:
                for i in range(300):
                    if i == 100:
                        client.fails = 1
                    yield i
                    await asyncio.sleep(0)

            async def take() -> None:
                async for item in f.dedupe(source()):
                    got.append(item)  # noqa: PERF401 - keeps what came before the error

            with pytest.raises(BatchInterruptedError) as raised:
                await take()
            rest = list(raised.value.rest)
            assert rest[-1] >= 100
            got.extend([item async for item in f.dedupe(rest)])
            assert got == list(range(len(got)))

    asyncio.run(main())
