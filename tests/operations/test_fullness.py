"""A plain filter past its capacity: a warning, an error, or a call of the caller's function."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import redis

from bloomredis import BloomFilter, FilterFullError, FilterLostError, compat
from tests.support.clock import Clock


def make(bloom: Any, client: Any, **options: Any) -> Any:
    return bloom(client, "seen", **{"capacity": 100, "error_rate": 1e-6} | options)


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "bloomredis")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "bloomredis"]


def test_the_first_add_past_the_capacity_warns(
    bloom: Any, client: redis.Redis, warned: Callable[[], list[str]]
) -> None:
    """Each object warns once, when item 101 is new, and not before."""
    f = make(bloom, client)
    for i in range(100):
        f.add(i)
        f.add(i)
    assert warned() == []
    for i in range(100, 130):
        assert f.add(str(i))
    (message,) = warned()
    assert "'seen' has 101 items and was made for capacity 100" in message
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
    bloom: Any, any_client: redis.Redis, warned: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check, sent with a call once a second, counts the items of others."""
    f = make(bloom, any_client)
    f.add("own")
    make(BloomFilter, any_client, on_full=lambda _: None).add_many(range(200))
    f.add("at once")
    assert warned() == []
    f._operations.capacity_watch.next_check = 0.0  # a second later
    f.add("own")
    f.add("another")
    assert len(warned()) == 1


def test_a_look_takes_no_round_trip(any_client: redis.Redis) -> None:
    """The check shares the call's round trip."""
    f = make(BloomFilter, any_client)
    f.add("a")
    before = any_client.info("commandstats")
    f._operations.capacity_watch.next_check = 0.0
    sent = Counting(any_client)
    assert f.with_client(sent).add("b")
    assert sent.trips == 1
    after = any_client.info("commandstats")
    assert after["cmdstat_getrange"]["calls"] - before["cmdstat_getrange"]["calls"] >= 1


class Counting:
    """A client that counts its round trips."""

    def __init__(self, client: redis.Redis) -> None:
        self.client: Any = client
        self.trips = 0

    def __enter__(self) -> Any:
        return self

    def execute_command(self, *command: Any, **options: Any) -> Any:
        self.trips += 1
        return self.client.execute_command(*command, **options)

    def pipeline(self, *, transaction: bool) -> Any:
        self.trips += 1
        return self.client.pipeline(transaction=transaction)


def test_a_full_filter_raises(bloom: Any, client: redis.Redis) -> None:
    """Exactly the capacity is added; each later add is refused and changes nothing."""
    f = make(bloom, client, on_full="raise")
    assert [f.add(str(i)) for i in range(100)] == [True] * 100
    for call, argument in ((f.add, "more"), (f.add, "0"), (f.add_many, ["more"]), (f.load, ["more"])):
        with pytest.raises(FilterFullError, match=r"capacity 100.* nothing was added by this call"):
            call(argument)
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


def test_what_others_add_after_a_clear_is_seen(bloom: Any, any_client: redis.Redis, clock: Clock) -> None:
    """An object that reported a full filter reports again when it is full again, whoever filled it."""
    told: list[FilterFullError] = []
    f = make(bloom, any_client, on_full=told.append)
    f.add_many(range(101))
    f.add("x")
    assert len(told) == 1
    f.clear()
    make(BloomFilter, any_client, on_full=lambda _: None).add_many(range(200))
    for item in "xyz":
        clock.advance(2)
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


def test_an_interrupted_update_of_a_full_filter(any_client: redis.Redis) -> None:
    """The batch that fills the filter is added, and the next one is refused."""
    f = make(BloomFilter, any_client, on_full="raise")
    with pytest.raises(FilterFullError):
        f.update(range(40_000))
    assert f.info().count >= 100


def test_a_pickled_filter_looks_anew(any_client: redis.Redis, warned: Callable[[], list[str]]) -> None:
    """The copy checks the count again, since the original's count may be old."""
    f = make(BloomFilter, any_client)
    f.add("a")
    copy = pickle.loads(pickle.dumps(f)).with_client(any_client)  # noqa: S301 - its own pickle
    copy.add("b")
    f.add_many(range(100))
    copy._operations.capacity_watch.next_check = 0.0
    copy.add("c")
    copy.add("d")
    assert len(warned()) == 2


def test_a_bitmap_of_another_system_is_not_counted() -> None:
    """Without a header `on_full` is refused."""
    layout: Any = compat.go_zero(1000)
    BloomFilter(redis.Redis(), "g", layout=layout)
    with pytest.raises(ValueError, match="does not count"):
        BloomFilter(redis.Redis(), "g", layout=layout, on_full="raise")
