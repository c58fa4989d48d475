"""A plain filter past its capacity: a warning or an error."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import redis

from bloomredis import BatchInterruptedError, BloomFilter, FilterFullError, FilterLostError, compat
from bloomredis.stored.planning import expected_error_rate, new_header
from tests.support.proxy import lost, proxied
from tests.support.servers import Server


def make(bloom: Any, client: Any, **options: Any) -> Any:
    return bloom(client, "seen", **{"capacity": 100, "error_rate": 1e-6} | options)


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "bloomredis")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "bloomredis"]


def test_the_first_add_past_the_capacity_warns(
    bloom: Any, client: redis.Redis, warned: Callable[[], list[str]]
) -> None:
    """A process warns before item 101 is added, and not before."""
    f = make(bloom, client)
    for i in range(100):
        f.add(i)
        f.add(i)
    assert warned() == []
    for i in range(100, 110):
        assert f.add(str(i))
    (message,) = warned()
    assert "'seen' is full and was made for capacity 100" in message
    assert "ScalingBloomFilter" in message


@pytest.mark.parametrize("layout", ["blocked", "classic"])
def test_each_doubling_of_the_error_rate_warns(
    bloom: Any, client: redis.Redis, caplog: pytest.LogCaptureFixture, layout: str
) -> None:
    """The object reads the count after each tenth of the capacity; ten times the rate is an error."""
    caplog.set_level(logging.WARNING, "bloomredis")
    f, others = (make(bloom, client, error_rate=0.01, layout=layout) for _ in range(2))
    head, number, added = new_header(100, 0.01, layout), 0, 0
    while added < 300:
        number, added = number + 1, added + f.add(number)
    doublings = []
    for record in caplog.records[1:]:
        found = re.search(r"has (\d+) items .* probability (\S+), not 0.01", record.getMessage())
        assert found
        count, rate = int(found[1]), float(found[2])
        assert rate == float(f"{expected_error_rate(head, count):.2g}")
        assert record.levelno == (logging.ERROR if rate >= 0.1 else logging.WARNING)
        doublings.append(int(math.log2(expected_error_rate(head, count) / 0.01)))
        assert expected_error_rate(head, count - 11) < 0.01 * 2 ** doublings[-1]
    assert doublings == sorted({*doublings})
    assert doublings[-1] in (4, 5)
    lines = len(caplog.records)
    others.add_many(range(-9, 0))  # this process has been told
    assert len(caplog.records) == lines


@pytest.mark.parametrize(
    "fill",
    [
        lambda f: f.add_many(range(1000)),
        lambda f: list(f.dedupe(range(1000), batch=1000)),
        lambda f: f.update(range(1000)),
        lambda f: f.commit_many(f.claim_many(range(300))) and [f.claim(item) for item in range(-9, 0)],
    ],
    ids=["add_many", "dedupe", "update", "claims"],
)
def test_a_batch_far_past_the_capacity_is_an_error(
    any_client: redis.Redis, caplog: pytest.LogCaptureFixture, fill: Callable[[Any], object]
) -> None:
    """The count is read at the end of a batch, too; held claims are counted as they are committed."""
    fill(make(BloomFilter, any_client))
    last = caplog.records[-1]
    assert (last.name, last.levelno) == ("bloomredis", logging.ERROR)
    assert "items and was made for capacity 100: it takes a new item for a known one" in last.getMessage()


def test_a_look_that_fails_stops_no_call(any_server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """The item is added, and the next item lets the count be read again."""
    with proxied(any_server.socket) as proxy:
        f = make(BloomFilter, proxy.client(retries=0))
        f.add_many(range(100))
        proxy.plan("describe", lost)
        assert f.add("more")
        assert caplog.records == []
        assert f.add("and more")
        assert "is full" in caplog.records[0].getMessage()


@pytest.mark.parametrize(
    "fill",
    [
        lambda f: f.add_many(range(101)),
        lambda f: list(f.dedupe(range(101))),
        lambda f: f.update(range(101)),
        lambda f: [f.claim_and_commit(i) for i in range(101)],
        lambda f: [f.add(str(i)) for i in range(60)] + f.add_many(range(60, 101)),
    ],
    ids=["add_many", "dedupe", "update", "claims", "both"],
)
def test_every_way_to_add_counts(
    any_client: redis.Redis, warned: Callable[[], list[str]], fill: Callable[[Any], object]
) -> None:
    """Batches, loads and commits count as well."""

    class Claiming(BloomFilter):
        def claim_and_commit(self, item: int) -> None:
            self.claim(item).commit()

    fill(make(Claiming, any_client))
    assert len(warned()) == 1


def test_what_others_add_is_seen(
    bloom: Any, any_client: redis.Redis, warned: Callable[[], list[str]]
) -> None:
    """The script counts the items of all."""
    f = make(bloom, any_client)
    f.add("own")
    make(BloomFilter, any_client).add_many(range(105))
    assert len(warned()) == 1  # that of the object that filled it
    assert not f.add("own")
    assert len(warned()) == 1
    assert f.add("another")
    assert f.add("and another")
    assert len(warned()) == 1  # this process has been told
    f.clear()
    f.add_many(range(101))
    assert len(warned()) == 2  # of another generation


def test_a_load_past_the_capacity_warns(any_client: redis.Redis, warned: Callable[[], list[str]]) -> None:
    """Also if it sent segments of bits, which no script stops."""
    f = make(BloomFilter, any_client, capacity=10_000)
    f.update(range(11_000))
    assert f.info().count > 10_000
    assert len(warned()) == 1
    f.add("more")
    assert len(warned()) == 1
    f.update(range(11_000, 21_000))
    assert len(warned()) == 2
    f.update(range(8_000))
    assert len(warned()) == 2


def test_a_full_filter_raises(bloom: Any, client: redis.Redis) -> None:
    """Exactly the capacity is added; each later new item is refused, and a known one is answered."""
    f = make(bloom, client, on_full="raise")
    assert [f.add(str(i)) for i in range(100)] == [True] * 100
    for call, argument in ((f.add, "more"), (f.claim, "more")):
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
    make(BloomFilter, any_client).add_many(range(105))
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
