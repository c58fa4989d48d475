"""Bulk load: the same bits as single adds, whatever the source and whatever happens meanwhile."""

from __future__ import annotations

import itertools
import random
import sys
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from bloomredis import BatchInterruptedError, BloomFilter, ConnectionFailedError, OutcomeUnknownError
from bloomredis.bits import encoding
from bloomredis.bits.bitmap import Bits
from bloomredis.bits.hashing import Digests
from bloomredis.bits.picked import Picked
from bloomredis.operations.whole import loading
from bloomredis.stored import planning
from tests.support.losing import losing
from tests.support.replicas import attach, replicated
from tests.support.servers import Server
from tests.support.values import for_each

ITEMS = [f"item-{i:04}" for i in range(6000)]


def make(bloom: Any, client: redis.Redis, name: str = "seen", **options: Any) -> Any:
    return bloom(client, name, capacity=20_000, error_rate=0.001, **options)


def bits(client: redis.Redis, name: str = "seen") -> Any:
    return client.getrange(name, 64, -1)


@pytest.fixture
def in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make batches, windows and segments small, so that there are several of each."""
    for name, module in list(sys.modules.items()):
        if name.startswith("bloomredis.") and hasattr(module, "LOAD_ITEMS"):
            monkeypatch.setattr(module, "LOAD_ITEMS", 1000)
    monkeypatch.setattr(loading, "HASHED_AT_ONCE", 300)
    monkeypatch.setattr(loading, "SEGMENT_BYTES", 2048)
    monkeypatch.setattr(loading, "FEWEST_BYTES", 1)
    monkeypatch.setattr(loading, "DENSE", 100)


@pytest.fixture
def by_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat no batch as dense, so that every item is sent as probes."""
    monkeypatch.setattr(loading, "DENSE", 1 << 40)


@pytest.mark.parametrize("way", [None, "in_small_batches", "by_probes"])
def test_the_bits_are_those_of_add(
    bloom: Any, client: redis.Redis, way: str | None, request: pytest.FixtureRequest
) -> None:
    """The bits are those of adds, on top of existing ones; the count is exact."""
    if way:
        request.getfixturevalue(way)
    f, g = make(bloom, client), make(bloom, client, "other")
    for each in (f, g):
        each.add_many(ITEMS[:500])
    done: list[int] = []
    assert f.update(iter([*ITEMS, *ITEMS[:100]]), done.append) == len(ITEMS) + 100
    assert done[-1] == len(ITEMS) + 100
    assert done == sorted(set(done))
    g.add_many(ITEMS)
    assert bits(client) == bits(client, "other")
    assert f.info().count == pytest.approx(g.info().count, abs=len(ITEMS) * 0.001)
    assert not client.keys("*segment*")


def test_a_load_can_be_repeated(bloom: Any, client: redis.Redis) -> None:
    """A repeated load changes neither bits nor count; it returns and reports what it has read."""
    f = make(bloom, client)
    f.update(ITEMS)
    before, done = (bits(client), f.info().count), list[int]()
    assert f.update(reversed(ITEMS), done.append) == done[-1] == len(ITEMS)
    assert (bits(client), f.info().count) == before


def test_nothing_to_load(bloom: Any, any_client: redis.Redis) -> None:
    """It returns 0 and creates the filter."""
    assert make(bloom, any_client).update([]) == 0
    assert any_client.exists("seen")


@for_each("items", ["text", b"bytes"])
def test_one_string_is_no_iterable_of_items(bloom: Any, any_client: redis.Redis, items: Any) -> None:
    """A string is refused: it would be loaded letter by letter."""
    with pytest.raises(TypeError, match="not one"):
        make(bloom, any_client).update(items)


def test_a_bad_item_is_named(bloom: Any, any_client: redis.Redis) -> None:
    """The error names its type, also if a thread hashes it."""
    with pytest.raises(TypeError, match="float"):
        make(bloom, any_client).update(["a", 1.5])


SOURCES: dict[str, Callable[[], Any]] = {
    "text of numpy": lambda: np.array(ITEMS),
    "bytes of numpy": lambda: np.array(ITEMS, dtype="S"),
    "objects of numpy": lambda: np.array(ITEMS, dtype=object),
    "a column of pandas": lambda: pd.Series(ITEMS, index=range(len(ITEMS), 0, -1)),
    "an array of Arrow": lambda: pa.array(ITEMS),
    "a chunked array of Arrow": lambda: pa.chunked_array([ITEMS[:7], ITEMS[7:]]),
    "a generator": lambda: (item for item in ITEMS),
    "a set": lambda: set(ITEMS),
}


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_of_items(source: str, any_server: Server, in_small_batches: None) -> None:
    """Arrays and columns give the same bits as a list."""
    with any_server.client() as client:
        assert make(BloomFilter, client).update(SOURCES[source]()) == len(ITEMS)
        make(BloomFilter, client, "other").update(ITEMS)
        assert bits(client) == bits(client, "other")


@for_each("numbers", [np.arange(5000), pd.Series(range(5000)), pa.array(range(5000)), range(5000)])
def test_numbers_are_their_decimal_text(numbers: Any, any_server: Server) -> None:
    """Numbers are their decimal text, in every container."""
    with any_server.client() as client:
        f = make(BloomFilter, client)
        f.update(numbers)
        assert all(f.contains_many([str(i) for i in range(5000)]))
        assert f.info().count == pytest.approx(5000, abs=5)


def test_an_async_source(server: Server) -> None:
    """The asyncio filter loads an async iterable."""
    import asyncio

    import redis.asyncio

    import bloomredis.asyncio

    async def source() -> AsyncIterator[str]:
        for item in ITEMS:
            yield item

    async def main() -> None:
        async with redis.asyncio.Redis(unix_socket_path=server.socket) as client:
            f = make(bloomredis.asyncio.BloomFilter, client)  # type: ignore[arg-type]  # of the same kind
            assert await f.update(source()) == len(ITEMS)
            assert all(await f.contains_many(ITEMS))

    asyncio.run(main())


def test_others_may_add_meanwhile(server: Server, in_small_batches: None) -> None:
    """No bit of concurrent adds or of the load is lost."""
    others = [f"other-{i}" for i in range(3000)]
    stop = threading.Event()

    def add() -> None:
        f = make(BloomFilter, server.client())
        for item in itertools.islice(itertools.cycle(others), 20_000):
            f.add(item)
            if stop.is_set():
                return

    thread = threading.Thread(target=add)
    thread.start()
    f = make(BloomFilter, server.client())
    for _ in range(5):
        f.update(ITEMS)
    stop.set()
    thread.join()
    f.add_many(others)
    assert all(f.contains_many([*ITEMS, *others]))
    assert f.info().count == pytest.approx(len(ITEMS) + len(others), rel=0.01)


def test_a_lost_reply_loses_nothing(server: Server, in_small_batches: None) -> None:
    """After any number of interruptions, a repeated load ends with every item in."""
    with losing(server.socket, share=0.01) as proxy:
        f = make(BloomFilter, server.client())
        f.create()
        f = f.with_client(redis.Redis(port=proxy.port, retry=Retry(NoBackoff(), 0)))
        interruptions = 0
        while True:
            try:
                assert f.update(ITEMS) == len(ITEMS)
                break
            except (OutcomeUnknownError, ConnectionFailedError, BatchInterruptedError):
                interruptions += 1
        assert interruptions
    assert all(make(BloomFilter, server.client()).contains_many(ITEMS))


def test_a_segment_is_replicated_once() -> None:
    """Segments are copied only where bits are set, and the copies are not replicated."""
    with replicated() as (primary, replica), primary.client() as client, replica.client() as other:
        attach(primary, replica)
        f = BloomFilter(client, "seen", capacity=200_000, error_rate=0.01)
        f.create()
        size = f.info().size_bytes
        for first, copies in (0, False), (100_000, True):
            client.config_resetstat()
            info: Any = client.info("replication")
            f.update(f"item-{i}" for i in range(first, first + 100_000))
            after: Any = client.info("replication")
            assert after["master_repl_offset"] - info["master_repl_offset"] < 1.1 * size + 2000
            stats: Any = client.info("commandstats")
            assert ("cmdstat_bitop" in stats) == copies
        assert client.wait(1, 5000) == 1
        assert bits(other) == bits(client)
        assert client.dbsize() == other.dbsize() == 2  # the filter and the receipt of its count


@pytest.mark.parametrize("name", planning.NAMES)
@pytest.mark.parametrize("count", [1, 2, 500])
@pytest.mark.parametrize("kinds", [1, 3, 400])
def test_the_new_items_of_a_batch(
    name: str, count: int, kinds: int, in_small_batches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An item is new if it was absent and has no equal before it, also when the batch is sent twice."""
    monkeypatch.setattr(loading, "DENSE", 0)
    dice = random.Random(count * kinds)
    layout = planning.plan_layout(name, 10_000, 1e-4)
    there, drawn = Bits(layout), [f"item-{dice.randrange(kinds)}" for _ in range(count)]
    there.add_many([f"item-{i}" for i in range(0, kinds, 3)])
    load = loading.Load(layout, encoding)
    load.append_items(drawn)
    for _ in range(2):
        for segment in load.segments():
            load.record_previous(segment, there.bytes[segment.first : segment.first + len(segment.data)])
    assert load.finish_batch() == len(set(drawn) - {f"item-{i}" for i in range(0, kinds, 3)})
    assert load.items == 0


def test_items_of_a_part_keep_no_others_alive() -> None:
    """Items that wait in one part of a filter are copied out of the batch that all parts had items of."""
    load = loading.Load(planning.plan_layout("blocked", 10_000_000, 0.01), encoding)
    picked = Picked(ITEMS, np.arange(0, 6000, 1000))
    load.append(loading.WaitingItems(picked, picked, Digests.of(picked)))
    assert [type(each.items) for each in load.waiting] == [list]
    assert load.waiting[0].items == load.waiting[0].encoded == ITEMS[::1000]


@pytest.mark.parametrize("capacity", [100_000, 10_000_000])
def test_a_batch_keeps_less_than_the_filter_has(capacity: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kept bytes of a full batch are between a third of the filter's bytes and about all of them."""
    monkeypatch.setattr(loading, "FEWEST_BYTES", 100_000)
    layout = planning.plan_layout("blocked", capacity, 1e-2)
    load, size = loading.Load(layout, encoding), layout.num_bits // 8
    numbers = itertools.count()
    while not load.is_full:
        load.append_items([str(i) for i in itertools.islice(numbers, 16_384)])
    kept = 10 * load.items
    assert size / 3 < kept < size + 10 * 16_384


def test_a_filter_that_is_too_large_is_loaded_probe_by_probe(
    any_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bits would need too much memory in the client."""
    monkeypatch.setattr(loading, "MOST_BYTES", 10)
    with any_server.client() as client:
        f = make(BloomFilter, client)
        client.config_resetstat()
        assert f.update(ITEMS) == len(ITEMS)
        assert all(f.contains_many(ITEMS))
        assert "cmdstat_bitop" not in client.info("commandstats")
