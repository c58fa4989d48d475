"""Of any number of callers of a sharded filter, one is told that an item is new."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import redis

import bloomredis.asyncio
from bloomredis import (
    ShardedBloomFilter,
)
from tests.support.inside import inside
from tests.support.racing import race_processes, race_threads, winners
from tests.support.servers import Server
from tests.support.sharding import ITEMS, OPTIONS


def test_one_winner_among_threads(server: Server) -> None:
    """Threads that start without a filter have one winner for each item."""

    def work(worker: int) -> list[bool]:
        with server.client() as client:
            f = ShardedBloomFilter(client, "seen", **OPTIONS)
            return [f.add(item) for item in ITEMS[:40]] + f.add_many(ITEMS[40:])

    assert winners(race_threads(work, 6), ITEMS) == {1: 400}


def test_one_winner_among_threads_that_share_a_filter(server: Server) -> None:
    """The same holds for threads of one object."""
    f = ShardedBloomFilter(server.client(), "seen", **OPTIONS)
    told = race_threads(lambda worker: [f.add(item) for item in ITEMS], 6)
    assert winners(told, ITEMS) == {1: 400}


def add_all(url: str, items: Sequence[str], worker: int) -> list[bool]:
    with redis.Redis.from_url(url) as client:
        f = ShardedBloomFilter(client, "seen", **OPTIONS)
        return [new for start in range(0, len(items), 50) for new in f.add_many(items[start : start + 50])]


def test_one_winner_among_processes(any_server: Server) -> None:
    """Processes that create the filter at the same time agree on it."""
    assert winners(race_processes(add_all, any_server.url, ITEMS, 3), ITEMS) == {1: 400}


def test_one_winner_among_tasks(any_server: Server) -> None:
    """The same holds for tasks that share round trips."""

    async def main() -> list[list[bool]]:
        async with redis.asyncio.Redis(unix_socket_path=any_server.socket) as client:
            f = bloomredis.asyncio.ShardedBloomFilter(client, "seen", **OPTIONS)
            told = await asyncio.gather(*(f.add(item) for item in ITEMS * 3))
            return [told[:400], told[400:800], told[800:]]

    assert winners(asyncio.run(main()), ITEMS) == {1: 400}


def test_a_shard_that_comes_while_answers_are_kept(any_client: redis.Redis) -> None:
    """Another thread's first item of a shard does not disturb a loop over all shards."""
    f = ShardedBloomFilter(any_client, "seen", capacity=1000, error_rate=1e-6, shards=8)
    f.create()
    f.add("a")
    operations: Any = inside(f)
    ((_, part),) = operations.items.parts()
    usual = part.answer_store

    def meanwhile() -> Any:
        f.add_many(f"{i}" for i in range(50))
        return usual()

    part.answer_store = meanwhile
    keep = operations.answer_store()
    assert len(operations.items.parts()) == 8
    keep([b"a"], [True])
    assert [f.add("a"), f.add("a")] == [True, False]
