"""Races: of any number of concurrent callers exactly one gets True."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import pytest
import redis
import redis.asyncio

import bloomredis.asyncio
from bloomredis import BloomFilter
from tests.support.racing import flushing_scripts, race_processes, race_threads, winners
from tests.support.servers import Server
from tests.support.sizes import long, short, sized

ITEMS = [f"https://example.org/page/{i}" for i in range(20_000)]


def adds_all(url: str, items: Sequence[str], worker: int, *, batch: int) -> list[bool]:
    """Add all items, one by one or in batches; return this worker's answers."""
    with redis.Redis.from_url(url) as client:
        f = BloomFilter(client, "race", capacity=100_000, error_rate=1e-9)
        if batch == 1:
            return [f.add(item) for item in items]
        return [
            new for start in range(0, len(items), batch) for new in f.add_many(items[start : start + batch])
        ]


@pytest.mark.parametrize("batch", [1, 100])
@pytest.mark.parametrize(("count", "workers"), [short(1000, 4), long(20_000, 8)])
def test_processes_have_one_winner_an_item(server: Server, count: int, workers: int, batch: int) -> None:
    """Every process adds all items while SCRIPT FLUSH runs in a loop."""
    items = ITEMS[:count]
    with server.client() as client, flushing_scripts(client) as flushes:
        told = race_processes(partial(adds_all, batch=batch), server.url, items, workers)
        assert flushes() > 10
    assert winners(told, items) == {1: count}


def test_threads_have_one_winner_an_item(client: redis.Redis) -> None:
    """Threads that share one filter object race as fairly as processes."""
    f = BloomFilter(client, "race", capacity=10_000, error_rate=1e-9)
    items = ITEMS[:200]
    told = race_threads(lambda worker: [f.add(item) for item in items], 8)
    assert winners(told, items) == {1: len(items)}


def test_creation_has_one_winner(server: Server) -> None:
    """Filters created by many workers at once are one filter."""
    f = [BloomFilter(server.client(), "race", capacity=1000, error_rate=0.01) for _ in range(8)]
    race_threads(lambda worker: [f[worker].add(f"{worker}")], 8)
    assert f[0].info().count == 8
    assert len({each.info().generation for each in f}) == 1


def adds_every_way(url: str, items: Sequence[str], worker: int, *, name: str) -> list[bool]:
    """Add all items by threads of this process or by its asyncio tasks, depending on the worker's number."""
    if worker % 2:
        return asyncio.run(_adds_with_tasks(url, items, name))
    with redis.Redis.from_url(url) as client:
        f = BloomFilter(client, name, capacity=100_000, error_rate=1e-9)
        told = race_threads(lambda _: [f.add(item) for item in items], 4)
    return [any(answers) for answers in zip(*told, strict=True) if _at_most_one(answers)]


async def _adds_with_tasks(url: str, items: Sequence[str], name: str) -> list[bool]:
    async with redis.asyncio.Redis.from_url(url) as client:
        f = bloomredis.asyncio.BloomFilter(client, name, capacity=100_000, error_rate=1e-9)

        async def adds() -> list[bool]:
            return [await f.add(item) for item in items]

        told = await asyncio.gather(*(adds() for _ in range(8)))
    return [any(answers) for answers in zip(*told, strict=True) if _at_most_one(answers)]


def _at_most_one(answers: Sequence[bool]) -> bool:
    assert sum(answers) <= 1
    return True


@sized("count", make_test=300, make_test_all=3000)
def test_threads_tasks_and_processes_race_fairly(server: Server, count: int) -> None:
    """Mixed on one filter, they have one winner for every item."""
    items = ITEMS[:count]
    told = race_processes(partial(adds_every_way, name="mixed"), server.url, items, 4)
    assert winners(told, items) == {1: count}
