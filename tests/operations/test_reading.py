"""`update`, `dedupe` and `load` with iterators and errors."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import pytest
import redis

import bloomredis
from bloomredis import BatchInterruptedError, BloomFilter, ConnectionFailedError
from tests.support.losing import LosingClient
from tests.support.values import for_each

ITEMS = [f"item-{i}" for i in range(20_000)]


def make(bloom: Any, client: Any, **options: Any) -> Any:
    return bloom(client, "seen", **{"capacity": 100_000, "error_rate": 1e-6} | options)


def test_update_counts_the_new(bloom: Any, client: redis.Redis) -> None:
    """It counts the new items of any iterable, over several batches."""
    f = make(bloom, client, capacity=1_000_000, error_rate=0.01)
    assert f.update(ITEMS[:8_500]) == 8_500
    assert f.update(iter(ITEMS[:17_000])) == 8_500
    assert f.update(()) == f.update({"item-1"}) == 0


def test_dedupe_by_a_key(bloom: Any, client: redis.Redis) -> None:
    """Items are yielded unchanged, once for each key."""
    f = make(bloom, client)
    rows = [{"id": i % 1500, "n": i} for i in range(3000)]
    assert list(f.dedupe(iter(rows), key=itemgetter("id"))) == rows[:1500]
    assert f.contains(1499)


def test_what_nobody_asks_for_is_kept_by_its_key(any_client: redis.Redis) -> None:
    """After a break the rest of the batch is new to the next call on the object, by key."""
    f = make(BloomFilter, any_client)
    rows = [{"id": i} for i in range(10)]
    left = f.dedupe(rows, key=itemgetter("id"))
    assert next(left) == rows[0]
    del left
    assert list(f.dedupe(rows, key=itemgetter("id"))) == rows[1:]


class Failing(LosingClient):
    """A client that fails once, before it sends the call with that number."""

    def __init__(self, client: redis.Redis, at: int) -> None:
        super().__init__(client)
        self.lose = ["answer"] * at + ["never"]

    def __enter__(self) -> Any:
        return self


@pytest.mark.parametrize("kind", ["BloomFilter", "CountingBloomFilter"])
def test_an_interrupted_update_goes_on(any_client: redis.Redis, kind: str, seed: int) -> None:
    """As its message says, the rest comes first, then the iterator's remaining items."""
    client = Failing(any_client, 38)
    client.lose[-1] = ("never", "lost")[seed % 2]
    f = make(getattr(bloomredis, kind), client)
    source = iter(ITEMS)
    with pytest.raises(BatchInterruptedError, match=r"update\(error\.rest\) .* update\(iterator\)") as caught:
        f.update(source)
    f.update(caught.value.rest)
    f.update(source)
    assert f.contains_many(ITEMS) == [True] * len(ITEMS)
    assert f.info().count == len(ITEMS)


@pytest.mark.parametrize(
    ("kind", "capacity"),
    [("BloomFilter", 4_000_000), ("CountingBloomFilter", 100_000), ("ScalingBloomFilter", 4_000_000)],
)
def test_an_interrupted_load_goes_on(any_client: redis.Redis, kind: str, capacity: int, seed: int) -> None:
    """The same holds for a load, however many batches it had collected."""
    client = Failing(any_client, (3, 38)[seed % 2])
    f = make(getattr(bloomredis, kind), client, capacity=capacity)
    source = iter(ITEMS)
    with pytest.raises(BatchInterruptedError, match=r"load\(error\.rest\) .* load\(iterator\)") as caught:
        f.load(source)
    f.load(caught.value.rest)
    f.load(source)
    assert f.contains_many(ITEMS) == [True] * len(ITEMS)
    assert f.info().count == len(ITEMS)


@for_each("at", [1, 5, 12])
def test_an_interrupted_dedupe_goes_on(any_client: redis.Redis, at: int) -> None:
    """Every item is yielded once, even if its batch failed before it was sent."""
    f = make(BloomFilter, Failing(any_client, at))
    rows: Iterator[dict[str, str]] = iter([{"id": item} for item in ITEMS])
    out: list[Any] = []
    with pytest.raises(BatchInterruptedError, match=r"dedupe\(error\.rest\) .* dedupe\(iterator\)") as caught:
        out.extend(f.dedupe(rows, key=itemgetter("id")))
    for source in (caught.value.rest, rows):
        out += f.dedupe(source, key=itemgetter("id"))
    assert sorted(map(itemgetter("id"), out)) == sorted(ITEMS)


def test_a_list_can_be_given_again(any_client: redis.Redis) -> None:
    """Nothing was executed, so the error is ConnectionFailedError."""
    f = make(BloomFilter, Failing(any_client, 0))
    with pytest.raises(ConnectionFailedError):
        f.update(ITEMS)
    assert f.update(ITEMS) == len(ITEMS)
