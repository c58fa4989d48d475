"""`dedupe` and `update` with iterators and errors."""

from __future__ import annotations

import random
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


KEYLESS: dict[str, tuple[list[Any], Any]] = {
    "a missing field": ([{"id": "a"}, {}, {"id": "a"}, {"n": 1}, {"id": "b"}], lambda row: row.get("id")),
    "a null": (["a", None, "a", float("nan"), "b"], None),
}
"""Items of which the second and the fourth have no key, and the function that returns the keys."""


@for_each("keyless", KEYLESS)
@for_each(("missing", "kept"), [("keep", "0134"), ("drop", "04")])
def test_an_item_without_a_key(
    bloom: Any, any_client: redis.Redis, keyless: str, missing: str, kept: str
) -> None:
    """It is kept in its place or dropped; the others are compared by their keys."""
    f = make(bloom, any_client)
    items, key = KEYLESS[keyless]
    assert list(f.dedupe(items, key=key, missing=missing)) == [items[int(at)] for at in kept]
    assert f.contains_many(["a", "b"]) == [True, True]
    assert f.info().count == 2


@for_each("keyless", KEYLESS)
def test_an_item_without_a_key_is_refused(bloom: Any, any_client: redis.Redis, keyless: str) -> None:
    """The error names its place, and no item of its batch is added."""
    items, key = KEYLESS[keyless]
    f = make(bloom, any_client)
    with pytest.raises(TypeError, match=r"row 1: .*a null"):
        list(f.dedupe(items, key=key))
    with pytest.raises(ValueError, match='missing must be "keep", "drop" or "raise", not \'pass\''):
        list(f.dedupe(items, key=key, missing="pass"))
    assert any_client.keys() == []


@for_each("missing", ["keep", "drop"])
def test_a_bad_key_after_a_missing_one_has_its_place(
    bloom: Any, any_client: redis.Redis, missing: str
) -> None:
    """Rows are counted with the items that have no key."""
    with pytest.raises(TypeError, match=r"row 3: .*not float"):
        list(make(bloom, any_client).dedupe(["a", None, "b", 0.5], missing=missing))


@for_each("missing", ["keep", "drop"])
def test_items_that_nobody_took_are_new_again(any_client: redis.Redis, missing: str) -> None:
    """Also if items without a key are among them."""
    f = make(BloomFilter, any_client)
    items = ["a", None, "b", None, "c"]
    left = f.dedupe(items, missing=missing)
    got = [next(left)]
    left.close()
    got += f.dedupe(items[1:], missing=missing)
    assert got == (items if missing == "keep" else ["a", "b", "c"])


@pytest.mark.parametrize(
    ("kind", "capacity"),
    [("BloomFilter", 4_000_000), ("CountingBloomFilter", 100_000), ("ScalingBloomFilter", 4_000_000)],
)
def test_an_interrupted_load_goes_on(any_client: redis.Redis, kind: str, capacity: int, seed: int) -> None:
    """The same holds for a load, however many batches it had collected."""
    client = Failing(any_client, (3, 38)[seed % 2])
    f = make(getattr(bloomredis, kind), client, capacity=capacity)
    source = iter(ITEMS)
    with pytest.raises(BatchInterruptedError, match=r"update\(error\.rest\) .* update\(iterator\)") as caught:
        f.update(source)
    f.update(caught.value.rest)
    f.update(source)
    assert f.contains_many(ITEMS) == [True] * len(ITEMS)
    assert f.info().count == len(ITEMS)


@for_each(("at", "missing"), [(1, "keep"), (1, "drop"), (5, "raise"), (12, "keep"), (12, "drop")])
def test_an_interrupted_dedupe_goes_on(any_client: redis.Redis, at: int, missing: str) -> None:
    """Every item is yielded once, even if its batch failed before it was sent."""
    f = make(BloomFilter, Failing(any_client, at))
    nulls = 0 if missing == "raise" else len(ITEMS) // 3
    rows = [{"id": item} for item in ITEMS] + [{"id": None, "n": n} for n in range(nulls)]
    random.Random(at).shuffle(rows)
    wanted = [row for row in rows if missing == "keep" or row["id"] is not None]
    source: Iterator[Any] = iter(rows)
    out: list[Any] = []
    with pytest.raises(BatchInterruptedError, match=r"dedupe\(error\.rest\) .* dedupe\(iterator\)") as caught:
        out.extend(f.dedupe(source, key=itemgetter("id"), missing=missing))
    for left in (caught.value.rest, source):
        out += f.dedupe(left, key=itemgetter("id"), missing=missing)
    assert out == wanted


def test_a_list_can_be_given_again(any_client: redis.Redis) -> None:
    """Nothing was executed, so the error is ConnectionFailedError."""
    f = make(BloomFilter, Failing(any_client, 0))
    with pytest.raises(ConnectionFailedError):
        f.update(ITEMS)
    assert f.update(ITEMS) == len(ITEMS)
