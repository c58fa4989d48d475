"""Many threads and processes add to and remove from one filter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import redis
import redis.asyncio

from bloomredis import CountingBloomFilter
from tests.support.counting import PLANNED, counting, expected_counters, stored_counters
from tests.support.racing import race_processes, race_threads
from tests.support.servers import Server

ITEMS = [f"item-{i}" for i in range(200)]


def add_and_remove(f: CountingBloomFilter, items: Sequence[str], worker: int) -> list[bool]:
    """Add all items in this worker's order; remove some of them one by one."""
    turned = [*items[worker * 30 :], *items[: worker * 30]]
    new = dict(zip(turned, f.add_many(turned), strict=True))
    assert all(f.remove(item) for item in turned[worker::3])
    return [new[item] for item in items]


def in_a_process(url: str, items: Sequence[str], worker: int) -> list[bool]:
    with redis.Redis.from_url(url) as client:
        return add_and_remove(counting(client), items, worker)


def left(items: Sequence[str], workers: int) -> Counter[str]:
    """Return the items that those workers leave in."""
    found = Counter(dict.fromkeys(items, workers))
    for worker in range(workers):
        found.subtract([*items[worker * 30 :], *items[: worker * 30]][worker::3])
    return found


def test_threads_add_and_remove(server: Server) -> None:
    """Threads that share a filter leave their adds minus their removals."""
    with server.client() as client:
        f = counting(client)
        race_threads(lambda worker: add_and_remove(f, ITEMS, worker), 4)
        assert stored_counters(client) == expected_counters(PLANNED, left(ITEMS, 4))


def test_processes_add_and_remove(server: Server) -> None:
    """The same holds for processes; each item was new at least once."""
    with server.client() as client:
        counting(client).create()
        told = race_processes(in_a_process, server.url, ITEMS, 3)
        assert all(map(any, zip(*told, strict=True)))
        assert stored_counters(client) == expected_counters(PLANNED, left(ITEMS, 3))


def test_one_of_many_adds_is_new(server: Server) -> None:
    """Of concurrent adds of an item one is told that it is new."""
    with server.client() as client:
        f = counting(client)
        told = race_threads(lambda _: f.add_many(ITEMS), 4)
        assert all(sum(answers) == 1 for answers in zip(*told, strict=True))
