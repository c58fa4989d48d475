"""A counting filter: an item is found until it has been removed as often as it was added."""

from __future__ import annotations

import inspect
from collections import Counter
from typing import Any

import pytest
import redis
import redis.asyncio

import bloomredis
import bloomredis.asyncio
from bloomredis import CountingBloomFilter, FilterLostError, FilterMismatchError
from bloomredis.stored import planning
from tests.support.counting import MOST, expected_counters, make, store_earlier, stored_counters
from tests.support.servers import Server
from tests.support.values import for_each


def test_an_item_is_in_until_it_is_removed(bloom: Any, client: redis.Redis) -> None:
    """An item that was added once can be removed once; a second removal is refused."""
    f = make(bloom, client)
    assert f.add("a")
    assert f.remove("a")
    assert "a" not in f
    assert not f.remove("a")
    assert f.add("a")


def test_every_add_counts(bloom: Any, client: redis.Redis) -> None:
    """An item that was added twice and removed once is in; info counts adds minus removals."""
    f = make(bloom, client)
    assert f.add_many(["a", "b", "a"]) == [True, True, False]
    assert not f.add("a")
    assert f.info().count == 4
    assert [f.remove("a") for _ in range(4)] == [True, True, True, False]
    assert f.contains_many(["a", "b"]) == [False, True]
    assert f.info().count == 1


def test_a_refused_removal_changes_nothing(bloom: Any, client: redis.Redis) -> None:
    """Removing an item that is not in leaves every byte unchanged."""
    f = make(bloom, client)
    f.add("a")
    before = client.get("seen")
    assert not f.remove("b")
    assert client.get("seen") == before


def test_a_full_counter_stays(bloom: Any, client: redis.Redis) -> None:
    """Beyond 15 the true count is unknown, so the counter stays, and no item that shares it is missed."""
    store_earlier(client, capacity=1, error_rate=0.5, num_bits=2, num_hashes=1)
    f = make(bloom, client, capacity=1, error_rate=0.5)
    assert f.info().num_bits == 2
    f.add_many(["a"] * 20 + ["b"] * 20 + ["c"])
    assert all(f.remove("a") for _ in range(30))
    assert f.contains_many(["a", "b", "c"]) == [True] * 3
    assert set(stored_counters(client).values()) == {MOST}
    assert f.info().count == 11


def test_the_count_never_goes_below_nothing(bloom: Any, client: redis.Redis) -> None:
    """A full counter allows more removals than adds; the count does not fall below 0 for them."""
    f = make(bloom, client, capacity=1, error_rate=0.5)
    f.add_many(["a"] * 20)
    assert all(f.remove("a") for _ in range(25))
    assert f.info().count == 0


def test_fourteen_adds_are_the_most_that_can_be_undone(bloom: Any, client: redis.Redis) -> None:
    """After 14 adds the last of 14 removals removes the item, since a counter at 15 never falls."""
    f = make(bloom, client)
    f.add_many(["a"] * 14)
    assert all(f.remove("a") for _ in range(14))
    assert stored_counters(client) == {}


def test_repeated_probes_are_one_counter(bloom: Any, client: redis.Redis) -> None:
    """An item whose probes share a counter raises and lowers it once."""
    f = make(bloom, client, capacity=2, error_rate=0.001)
    layout = planning.plan_counting(2, 0.001)
    items = [i for i in range(50) if len(set(layout.offsets(i))) < layout.num_hashes]
    assert items
    f.add(items[0])
    assert stored_counters(client) == expected_counters(layout, Counter([items[0]]))
    assert f.remove(items[0])
    assert stored_counters(client) == {}


def test_info_describes_the_filter(bloom: Any, client: redis.Redis) -> None:
    """Fill and estimate are computed from the share of non-zero counters."""
    f = make(bloom, client, capacity=1000, error_rate=0.01)
    f.add_many([*range(1000), *range(1000)])
    info = f.info()
    assert (info.layout, info.num_bits, info.num_hashes) == ("classic", 9586, 7)
    assert info.size_bytes == client.strlen("seen") == 64 + 9586 // 2
    assert info.count == 2000
    assert info.fill_ratio == len(stored_counters(client)) / 9586 == pytest.approx(0.518, abs=0.02)
    assert info.approximate_count == pytest.approx(1000, rel=0.03)
    assert info.estimated_error_rate == pytest.approx(0.01, rel=0.3)


def test_info_of_a_large_filter(client: redis.Redis) -> None:
    """The counters are read in pieces, also on a client that decodes replies."""
    f = CountingBloomFilter(client, "seen", capacity=100_000, error_rate=0.01)
    f.add_many(range(500))
    assert f.info().approximate_count == pytest.approx(500, rel=0.03)
    client.connection_pool.connection_kwargs["decode_responses"] = True
    client.connection_pool.disconnect()
    try:
        assert f.info().approximate_count == pytest.approx(500, rel=0.03)
    finally:
        client.connection_pool.connection_kwargs["decode_responses"] = False
        client.connection_pool.disconnect()


def test_the_other_calls(bloom: Any, client: redis.Redis) -> None:
    """Batches, dedupe, load, claims, pipelines, expiry and clearing work as for every filter."""
    f = make(bloom, client)
    assert list(f.dedupe(["a", "b", "a"])) == ["a", "b"]
    assert f.update(range(300)) == 300
    claim = f.claim("c")
    bloom.wait(claim.commit())
    assert f.claim("c").state == "done"
    with client.pipeline() as pipe:
        make(bloom, client)
        CountingBloomFilter(client, "seen").queue_add(pipe, "c")
        CountingBloomFilter(client, "seen").queue_contains(pipe, "x")
        assert pipe.execute() == [0, 0]
    assert [f.remove("c") for _ in range(3)] == [True, True, False]
    assert f.info().count == 303
    f.expire(100)
    assert 0 < f.info().ttl <= 100
    f.clear()
    assert f.info().count == 0
    assert not f.remove("a")
    assert f.delete()


def test_a_copy_is_refused(bloom: Any, any_client: redis.Redis) -> None:
    """A copy would still have items that were removed."""
    assert not hasattr(CountingBloomFilter, "snapshot")
    with pytest.raises(TypeError, match="local_cache"):
        make(bloom, any_client, local_cache=True)
    with pytest.raises(TypeError, match="layout"):
        make(bloom, any_client, layout="blocked")


def test_a_lost_filter_is_noticed(bloom: Any, client: redis.Redis) -> None:
    """A removal from a missing filter raises, instead of "was not in"."""
    f = make(bloom, client)
    f.add("a")
    client.delete("seen")
    with pytest.raises(FilterLostError):
        f.remove("a")


@for_each(("stored", "wanted"), [("BloomFilter", "Counting"), ("CountingBloomFilter", "")])
def test_another_kind_is_a_mismatch(bloom: Any, client: redis.Redis, stored: str, wanted: str) -> None:
    """The message names the class to use, and the filter stays unchanged."""
    size: dict[str, Any] = {"capacity": 100, "error_rate": 0.01}
    bloom(client, "seen", kind=stored, **size).add("a")
    before = client.get("seen")
    f = bloom(client, "seen", kind=f"{wanted}BloomFilter", **size)
    for call in (f.create, lambda: f.add("b"), f.clear, f.delete):
        with pytest.raises(FilterMismatchError, match=f"is a {stored}, not a {wanted}BloomFilter"):
            call()
    with pytest.raises(FilterMismatchError, match=f"is a {stored}, not a"):
        bloom.open(client, "seen", kind=f"{wanted}BloomFilter")
    assert client.get("seen") == before
    assert "a" in bloom.open(client, "seen", kind=stored)


def test_other_parameters_are_a_mismatch(bloom: Any, any_client: redis.Redis) -> None:
    """The message names the class that opens the stored filter."""
    make(bloom, any_client).add("a")
    with pytest.raises(FilterMismatchError, match=r"1000, not 2000.*CountingBloomFilter\.open"):
        make(bloom, any_client, capacity=2000).add("a")


def test_the_largest_filter() -> None:
    """A key holds a quarter as many counters as bits, and the message says so."""
    most = (2**32 - 512) // 4
    assert planning.plan_counting(most * 69 // 1000, 0.001).num_bits < most
    with pytest.raises(ValueError, match=rf"counters of 4 bits; one key holds at most {most}"):
        planning.plan_counting(most * 70 // 1000, 0.001)


def test_both_drivers_have_the_same_face() -> None:
    """Both drivers have equal names and docstrings."""
    ours, theirs = CountingBloomFilter, bloomredis.asyncio.CountingBloomFilter
    assert vars(ours).keys() == vars(theirs).keys()
    assert inspect.getdoc(ours) == inspect.getdoc(theirs)
    assert inspect.getdoc(ours.remove) == inspect.getdoc(theirs.remove)
    assert inspect.signature(ours.remove) == inspect.signature(theirs.remove)
    assert inspect.signature(ours).parameters.keys() == inspect.signature(theirs).parameters.keys()


def test_the_wrong_client_is_refused() -> None:
    """Each driver names the other's class."""
    with pytest.raises(TypeError, match=r"use bloomredis\.asyncio\.CountingBloomFilter"):
        CountingBloomFilter(redis.asyncio.Redis(), "seen")  # type: ignore[arg-type]  # tested on purpose
    with pytest.raises(TypeError, match=r"use bloomredis\.CountingBloomFilter"):
        bloomredis.asyncio.CountingBloomFilter(redis.Redis(), "seen")  # type: ignore[arg-type]  # the point


def test_the_rate_at_capacity(any_server: Server) -> None:
    """It is 0.9 to 1.1 times the configured rate, also after as many items were added and removed again."""
    false_positives = probes = 0
    with any_server.client() as client:
        for number in range(4):
            f = CountingBloomFilter(client, f"rate-{number}", capacity=1000, error_rate=0.01)
            f.add_many(f"{number}-{i}" for i in range(1500))
            assert all(f.remove(f"{number}-{i}") for i in range(500))
            false_positives += sum(f.contains_many(f"{number}-out-{i}" for i in range(40_000)))
            probes += 40_000
    assert 0.9 <= false_positives / probes / 0.01 <= 1.1
