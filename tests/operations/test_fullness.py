"""A plain filter past its capacity: a warning or an error."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import redis

from bloomredis import BatchInterruptedError, BloomFilter, FilterFullError, FilterLostError, compat


def make(bloom: Any, client: Any, **options: Any) -> Any:
    return bloom(client, "seen", **{"capacity": 100, "error_rate": 1e-6} | options)


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "bloomredis")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "bloomredis"]


def test_the_first_add_past_the_capacity_warns(
    bloom: Any, client: redis.Redis, warned: Callable[[], list[str]]
) -> None:
    """A process warns once, before item 101 is added, and not before."""
    f = make(bloom, client)
    for i in range(100):
        f.add(i)
        f.add(i)
    assert warned() == []
    for i in range(100, 130):
        assert f.add(str(i))
    (message,) = warned()
    assert "'seen' is full and was made for capacity 100" in message
    assert "ScalingBloomFilter" in message


@pytest.mark.parametrize(
    "fill",
    [
        lambda f: f.add_many(range(105)),
        lambda f: list(f.dedupe(range(105))),
        lambda f: f.update(range(105)),
        lambda f: [f._claim_and_commit(i) for i in range(105)],
        lambda f: [f.add(str(i)) for i in range(60)] + f.add_many(range(60, 105)),
    ],
    ids=["add_many", "dedupe", "update", "claims", "both"],
)
def test_every_way_to_add_counts(
    any_client: redis.Redis, warned: Callable[[], list[str]], fill: Callable[[Any], object]
) -> None:
    """Batches, loads and commits count as well."""

    class Claiming(BloomFilter):
        def _claim_and_commit(self, item: int) -> None:
            self.claim(item).commit()

    fill(make(Claiming, any_client))
    assert len(warned()) == 1


def test_what_others_add_is_seen(
    bloom: Any, any_client: redis.Redis, warned: Callable[[], list[str]]
) -> None:
    """The script counts the items of all."""
    f = make(bloom, any_client)
    f.add("own")
    make(BloomFilter, any_client).add_many(range(200))
    assert len(warned()) == 1  # that of the object that filled it
    assert not f.add("own")
    assert len(warned()) == 1
    assert f.add("another")
    assert f.add("and another")
    assert len(warned()) == 1  # this process has been told
    f.clear()
    f.add_many(range(105))
    assert len(warned()) == 2  # of another generation


def test_a_load_past_the_capacity_warns(any_client: redis.Redis, warned: Callable[[], list[str]]) -> None:
    """Also if it sent segments of bits, which no script stops."""
    f = make(BloomFilter, any_client, capacity=10_000)
    f.update(range(50_000))
    assert f.info().count > 10_000
    assert len(warned()) == 1
    f.add("more")
    assert len(warned()) == 1


def test_a_full_filter_raises(bloom: Any, client: redis.Redis) -> None:
    """Exactly the capacity is added; each later new item is refused, and a known one is answered."""
    f = make(bloom, client, on_full="raise")
    assert [f.add(str(i)) for i in range(100)] == [True] * 100
    for call, argument in ((f.add, "more"), (f.add_many, ["more"]), (f.update, ["more"]), (f.claim, "more")):
        with pytest.raises(FilterFullError, match="is full and was made for capacity 100"):
            bloom.wait(call(argument))
    assert f.add("0") is False
    assert f.claim("0").state == "done" if bloom is BloomFilter else True
    assert f.contains_many(["0", "more"]) == [True, False]
    assert f.info().count == 100
    with pytest.raises(FilterFullError):
        make(bloom, client, on_full="raise").add("more")


def test_a_claim_is_committed_to_a_full_filter(any_client: redis.Redis) -> None:
    """A commit is accepted, since its work is done."""
    f = make(BloomFilter, any_client, on_full="raise")
    claim = f.claim("a")
    f.add_many(range(100))
    claim.commit()
    assert "a" in f


def test_a_full_filter_that_is_emptied_goes_on(bloom: Any, any_client: redis.Redis) -> None:
    """Its own `clear()` makes room; that of another counts as a loss."""
    f = make(bloom, any_client, on_full="raise")
    f.add_many(range(100))
    f.clear()
    assert f.add("a")
    with pytest.raises(BatchInterruptedError):
        f.add_many(range(100))
    make(bloom, any_client).clear()
    with pytest.raises(FilterLostError):
        f.add("b")


def test_what_others_add_after_a_clear_is_seen(
    bloom: Any, any_client: redis.Redis, warned: Callable[[], list[str]]
) -> None:
    """A process that reported a full filter reports again when it is full again, whoever filled it."""
    f = make(bloom, any_client)
    f.add_many(range(101))
    f.add("x")
    assert len(warned()) == 1
    f.clear()
    make(BloomFilter, any_client).add_many(range(200))
    assert len(warned()) == 2  # that of the object that filled it
    for item in "xyz":
        f.add(item)
    assert len(warned()) == 2


def test_a_bitmap_of_another_system_is_not_counted() -> None:
    """Without a header `on_full` is refused."""
    layout: Any = compat.go_zero(1000)
    BloomFilter(redis.Redis(), "g", layout=layout)
    with pytest.raises(ValueError, match="does not count"):
        BloomFilter(redis.Redis(), "g", layout=layout, on_full="raise")
