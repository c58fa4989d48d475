"""Filters in use that become larger, smaller or cleaner: no item is lost, and no item has two winners."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import redis

from bloomredis import BloomFilter, FilterLostError, FilterMismatchError, ScalingBloomFilter
from tests.support.background import outcome, started

WORKERS = 6
ITEMS_OF_EACH = 300
SIZE: dict[str, Any] = {"capacity": 20_000, "error_rate": 1e-9}
"""A filter that mistakes no item of these tests for another."""


class Fleet:
    """Workers that get the same items, in different orders.

    :ivar done: how often the work of each item was done.
    :ivar version: does the work of one item that nobody has done.
    """

    def __init__(self, version: Callable[[int], bool]) -> None:
        self.done: Counter[int] = Counter()
        self.version = version
        self._handled = threading.Semaphore(0)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Let all workers handle all items during the block, and finish them after it."""
        running = [started(lambda first=first: self._work(first)) for first in range(WORKERS)]  # type: ignore[misc]
        yield
        assert [outcome(each) for each in running] == [None] * WORKERS

    def wait(self) -> None:
        """Wait until each worker has handled some more items, on average."""
        for _ in range(WORKERS * ITEMS_OF_EACH // 10):
            assert self._handled.acquire(timeout=20)

    def _work(self, first: int) -> None:
        for item in range(ITEMS_OF_EACH):
            each = (item * 7 + first * 50) % ITEMS_OF_EACH
            if self.version(each):
                self.done[each] += 1
            self._handled.release()


def claimed(f: BloomFilter[Any], item: int, work: Callable[[int], object] = bool) -> bool:
    """Claim an item, do its work if it is new, and commit; return whether the work was done."""
    with f.claim(item) as claim:
        if claim:
            work(item)
        return bool(claim)


def test_adopting_a_filter_in_use(client: redis.Redis) -> None:
    """A call of an object of the old class is executed before, or changes nothing and says so."""
    old = BloomFilter[Any](client, "seen", **SIZE)
    old.create()
    grown: list[ScalingBloomFilter[Any]] = []
    refused = itertools.count()

    def add(item: int) -> bool:
        for f in (*grown, old):
            try:
                return f.add(item)
            except (FilterLostError, FilterMismatchError):
                next(refused)
        return ScalingBloomFilter[Any].open(client, "seen").add(item)

    fleet = Fleet(add)
    with fleet.working():
        fleet.wait()
        made = ScalingBloomFilter[Any].adopt(client, "seen")
        fleet.wait()
        grown.append(made)
    assert dict(fleet.done) == dict.fromkeys(range(ITEMS_OF_EACH), 1)
    assert next(refused)
    assert all(made.contains_many(range(ITEMS_OF_EACH)))


def test_a_second_filter_beside_one_in_use(client: redis.Redis) -> None:
    """The first filter answers while programs use both; then the second has all items of its source."""
    first, second = (BloomFilter[Any](client, name, **SIZE) for name in ("visited", "visited-2"))
    first.add_many(["deleted", "kept"])

    fleet = Fleet(lambda item: bool(first.add(item)))
    with fleet.working():
        fleet.wait()
        fleet.version = lambda item: claimed(first, item, second.add)
        fleet.wait()
    source = ["kept", *range(ITEMS_OF_EACH)]
    assert second.update(source) == len(source)
    assert dict(fleet.done) == dict.fromkeys(range(ITEMS_OF_EACH), 1)

    fleet.version = lambda item: claimed(second, item)
    with fleet.working():
        fleet.wait()
    assert dict(fleet.done) == dict.fromkeys(range(ITEMS_OF_EACH), 1)
    assert second.contains_many(["kept", "deleted"]) == [True, False]


def test_programs_of_both_steps_side_by_side(client: redis.Redis) -> None:
    """Items that are new while old and new programs run may be done by both, and none is lost."""
    first, second = (BloomFilter[Any](client, name, **SIZE) for name in ("visited", "visited-2"))

    turns = itertools.count()

    def either(item: int) -> bool:
        return claimed(first, item, second.add) if next(turns) % 2 else claimed(second, item)

    fleet = Fleet(either)
    with fleet.working():
        fleet.wait()
    assert set(fleet.done) == set(range(ITEMS_OF_EACH))
    assert max(fleet.done.values()) <= 2
