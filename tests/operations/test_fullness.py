"""A plain filter past its capacity: a warning, an error, or a call of the caller's function."""

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
    """Each object warns once, before item 101 is added, and not before."""
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
        lambda f: f.update(range(105)),
        lambda f: list(f.dedupe(range(105))),
        lambda f: f.load(range(105)),
        lambda f: [f._claim_and_commit(i) for i in range(105)],
        lambda f: [f.add(str(i)) for i in range(60)] + f.add_many(range(60, 105)),
    ],
    ids=["add_many", "update", "dedupe", "load", "claims", "both"],
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
    make(BloomFilter, any_client, on_full=lambda _: None).add_many(range(200))
    assert not f.add("own")
    assert warned() == []
    assert f.add("another")
    assert f.add("and another")
    assert len(warned()) == 1


def test_a_load_past_the_capacity_warns(any_client: redis.Redis, warned: Callable[[], list[str]]) -> None:
    """Also if it sent segments of bits, which no script stops."""
    f = make(BloomFilter, any_client, capacity=10_000)
    f.load(range(50_000))
    assert f.info().count > 10_000
    assert len(warned()) == 1
    f.add("more")
    assert len(warned()) == 1


def test_a_full_filter_raises(bloom: Any, client: redis.Redis) -> None:
    """Exactly the capacity is added; each later new item is refused, and a known one is answered."""
    f = make(bloom, client, on_full="raise")
    assert [f.add(str(i)) for i in range(100)] == [True] * 100
    for call, argument in ((f.add, "more"), (f.add_many, ["more"]), (f.load, ["more"]), (f.claim, "more")):
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


def test_a_function_is_told_once(bloom: Any, client: redis.Redis) -> None:
    """It is called before the add that would pass the capacity; if it returns, adds continue."""
    told: list[FilterFullError] = []
    f = make(bloom, client, on_full=told.append)
    f.add_many(range(100))
    assert told == []
    assert [f.add(str(i)) for i in range(100, 110)] == [True] * 10
    assert [type(error) for error in told] == [FilterFullError]


def test_what_others_add_after_a_clear_is_seen(bloom: Any, any_client: redis.Redis) -> None:
    """An object that reported a full filter reports again when it is full again, whoever filled it."""
    told: list[FilterFullError] = []
    f = make(bloom, any_client, on_full=told.append)
    f.add_many(range(101))
    f.add("x")
    assert len(told) == 1
    f.clear()
    make(BloomFilter, any_client, on_full=lambda _: None).add_many(range(200))
    for item in "xyz":
        f.add(item)
    assert len(told) == 2


def test_a_function_may_raise(bloom: Any, any_client: redis.Redis) -> None:
    """Its error reaches the caller, and nothing was added."""

    def refuse(error: FilterFullError) -> None:
        raise KeyError(str(error))

    f = make(bloom, any_client, on_full=refuse)
    f.add_many(range(100))
    with pytest.raises(KeyError, match="capacity 100"):
        f.add("more")
    assert not f.contains("more")


def test_a_function_that_raised_is_not_called_again(any_client: redis.Redis) -> None:
    """The call after its error goes on without a limit."""
    told: list[FilterFullError] = []

    def refuse(error: FilterFullError) -> None:
        told.append(error)
        raise KeyError

    f = make(BloomFilter, any_client, on_full=refuse)
    f.add_many(range(100))
    with pytest.raises(KeyError):
        f.add("more")
    assert [f.add("more"), len(told)] == [True, 1]


def test_a_function_may_use_the_filter(any_client: redis.Redis) -> None:
    """Its own add of the same object passes the capacity."""
    added: list[bool] = []
    f: Any = make(BloomFilter, any_client, on_full=lambda _: added.append(f.add("its own")))
    f.add_many(range(100))
    assert [f.add("more"), *added] == [True, True]


def test_a_bitmap_of_another_system_is_not_counted() -> None:
    """Without a header `on_full` is refused."""
    layout: Any = compat.go_zero(1000)
    BloomFilter(redis.Redis(), "g", layout=layout)
    with pytest.raises(ValueError, match="does not count"):
        BloomFilter(redis.Redis(), "g", layout=layout, on_full="raise")
