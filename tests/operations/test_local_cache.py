"""Copies of a filter in this process: snapshots, and the local cache."""

from __future__ import annotations

import pickle
import time
from datetime import timedelta
from typing import Any

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from bloomredis import BloomFilter, FilterLostError, LocalFilter
from bloomredis.arguments import cache_seconds
from bloomredis.bits.bitmap import Bits
from bloomredis.operations.items import local_cache
from bloomredis.protocol.pieces import PIECE_BYTES
from bloomredis.stored import planning
from tests.support.clock import Clock
from tests.support.inside import inside
from tests.support.servers import Server
from tests.support.values import for_each
from tests.support.waiting import wait_until

ITEMS = [f"item-{i}" for i in range(3000)]


def make(bloom: Any, client: redis.Redis, **options: Any) -> Any:
    return bloom(client, "seen", capacity=10_000, error_rate=0.001, **options)


def calls(client: redis.Redis) -> int:
    """Return how many scripts the server has run."""
    stats: Any = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))


@settings(max_examples=30)  # tests/bits has the hashes of any bytes, singly and in batches
@given(items=st.lists(st.text(st.characters(codec="utf-8"))), others=st.lists(st.binary()))
def test_one_and_many_agree(items: list[str], others: list[bytes]) -> None:
    """Single items and batches set and test the same bits."""
    layout = planning.plan_layout("classic", 100, 0.01)
    one, many = Bits(layout), Bits(layout)
    encoded = [item.encode() for item in items]
    for item in encoded:
        one.add(item)
    if encoded:
        many.add_many(encoded)
    assert one.bytes == many.bytes
    asked = [*encoded, *others]
    assert many.has_many(asked).tolist() == [one.has(item) for item in asked]


def test_a_snapshot_answers_as_the_filter_did(bloom: Any, client: redis.Redis) -> None:
    """It gives the filter's answers, singly and in batches, without the server or later items."""
    f = make(bloom, client)
    f.add_many(ITEMS[:1500])
    snapshot = f.snapshot()
    assert isinstance(snapshot, LocalFilter)
    assert {each for each in dir(snapshot) if each[0] != "_"} == {
        *("contains", "contains_many", "info"),
        *("name", "open"),  # of a saved file
    }
    expected = f.contains_many(ITEMS)
    info = f.info()
    f.add_many(ITEMS)
    assert snapshot.contains_many(ITEMS) == expected
    assert [snapshot.contains(item) for item in ITEMS[:50]] == expected[:50]
    assert ITEMS[0] in snapshot
    assert snapshot.info() == info
    assert snapshot.contains_many([]) == []


def test_a_snapshot_of_many_pieces(any_server: Server) -> None:
    """A filter larger than one script reads is copied completely."""
    with any_server.client() as client:
        f = BloomFilter(client, "large", capacity=1_000_000, error_rate=0.001)
        f.add_many(ITEMS)
        snapshot = f.snapshot()
        assert snapshot.info() == f.info()
        assert all(snapshot.contains_many(ITEMS))


def test_a_snapshot_pickles(any_server: Server) -> None:
    """A snapshot can be sent to other processes."""
    with any_server.client() as client:
        f = make(BloomFilter, client)
        f.add("a")
        copy = pickle.loads(pickle.dumps(f.snapshot()))  # noqa: S301 - its own pickle
        assert copy.contains_many(["a", "b"]) == [True, False]


def test_a_snapshot_of_a_lost_filter_is_refused(bloom: Any, any_client: redis.Redis) -> None:
    """A missing filter does not count as an empty one."""
    f = make(bloom, any_client)
    f.add("a")
    any_client.delete("seen")
    with pytest.raises(FilterLostError):
        f.snapshot()


def test_known_items_need_no_server(bloom: Any, server: Server) -> None:
    """Added or found items are answered from the cache, alone and in batches."""
    with server.client() as client:
        f = make(bloom, client, local_cache=100)
        assert all(f.add_many(ITEMS[:10]))
        assert f.add("alone")
        before = calls(client)
        assert not f.add(ITEMS[0])
        assert f.contains("alone")
        assert f.add_many([*ITEMS[:10], "alone"]) == [False] * 11
        assert f.contains_many(ITEMS[:10]) == [True] * 10
        assert calls(client) == before


def test_unknown_items_are_asked_about(bloom: Any, any_client: redis.Redis) -> None:
    """In a batch of known and unknown items each answer is in order; equal ones are new once."""
    f, other = make(bloom, any_client, local_cache=True), make(bloom, any_client)
    f.add_many(["a", "b"])
    other.add("c")
    assert f.contains_many(["x", "a", "c", "b"]) == [False, True, True, True]
    assert f.add_many(["a", "d", "c", "d", "b", "e"]) == [False, True, False, False, False, True]
    assert f.contains_many(["d", "e", "f"]) == [True, True, False]


def test_the_cache_answers_as_the_server_does(bloom: Any, any_client: redis.Redis) -> None:
    """This holds for repeats, mixed calls, and another client's adds."""
    f, plain = (
        make(bloom, any_client, local_cache=True),
        bloom(any_client, "plain", capacity=10_000, error_rate=0.001),
    )
    other, plain_other = (
        make(bloom, any_client),
        bloom(any_client, "plain", capacity=10_000, error_rate=0.001),
    )
    for i in range(400):
        item = ITEMS[i * 7 % 40]
        assert f.add(item) == plain.add(item)
        batch = [ITEMS[(i * j) % 60] for j in range(5)]
        assert f.add_many(batch) == plain.add_many(batch)
        assert other.add(ITEMS[i]) == plain_other.add(ITEMS[i])
        assert f.contains_many(ITEMS[i : i + 5]) == plain.contains_many(ITEMS[i : i + 5])


def test_what_others_added_is_read(bloom: Any, server: Server) -> None:
    """After a while the items of others need no server either."""
    with server.client() as client:
        make(bloom, client).add_many(ITEMS)
        f = make(bloom, client, local_cache=100)
        deadline = time.monotonic() + 20
        while not all(inside(f).in_local_cache(item) for item in ITEMS):
            f.add(f"another-{time.monotonic()}")
            assert time.monotonic() < deadline
        before = calls(client)
        assert f.add_many(ITEMS) == [False] * len(ITEMS)
        assert calls(client) == before


@pytest.mark.parametrize("seconds", [60.0, 0.0])
def test_a_copy_is_warm_at_once(
    bloom: Any, any_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """The first call reads pieces for some time, and at least one."""
    monkeypatch.setattr(local_cache, "_UNPAUSED_SECONDS", seconds)
    size = {"capacity": 1_000_000, "error_rate": 0.01}
    bloom(any_client, "seen", **size).add_many(ITEMS)
    f = bloom(any_client, "seen", local_cache=100, **size)
    f.create()
    pieces = -(-any_client.strlen("seen") // PIECE_BYTES) if seconds else 1
    any_client.config_resetstat()
    f.add("one more")
    assert any_client.info("commandstats")["cmdstat_evalsha"]["calls"] == pieces + 1
    assert all(inside(f).in_local_cache(item) for item in ITEMS) == (pieces > 1)


@pytest.mark.parametrize("layout", planning.NAMES)
@settings(deadline=None)
@given(items=st.lists(st.binary(), min_size=1, max_size=30))
def test_a_hit_has_all_bits(layout: str, items: list[bytes]) -> None:
    """An item is in the cache only if all of its bits are."""
    planned = planning.plan_layout(layout, 100, 1e-7)
    for item in items:
        bits = Bits(planned)
        offsets = sorted(set(planned.probes(item)))
        for offset in offsets:
            assert not bits.has(item)
            bits.bytes[offset // 8] |= 0x80 >> offset % 8
        assert bits.has(item)


def test_a_clear_by_another_is_noticed_within_the_check(bloom: Any, any_client: redis.Redis) -> None:
    """Until the check interval ends the cache answers; then the loss is raised."""
    f = make(bloom, any_client, local_cache=0.2)
    f.create()
    begin = time.monotonic()
    f.add("a")
    make(bloom, any_client).clear()

    with pytest.raises(FilterLostError):
        wait_until("the loss is noticed", lambda: f.add("a"))
    assert time.monotonic() >= begin + 0.2


def test_an_older_state_of_the_filter_does_not_empty_the_copy(
    bloom: Any, any_client: redis.Redis, clock: Clock
) -> None:
    """Cached items stay known until `info()` detects the older state; a new object reads the server."""
    f = make(bloom, any_client, local_cache=100)
    f.add("before")
    older: Any = any_client.dump("seen")
    assert f.add("after")
    assert f.info().count == 2
    any_client.restore("seen", 0, older, replace=True)
    clock.advance(100)  # the next call checks the generation, for another interval
    assert not f.contains("never")  # asks the primary, whose generation is the same
    assert (f.contains("after"), f.add("after")) == (True, False)
    assert make(bloom, any_client, local_cache=True).contains_many(["before", "after"]) == [True, False]
    for call in (f.info, f.create):  # the first tells nobody who adds or tests
        with pytest.raises(FilterLostError):
            call()
    f.acknowledge()
    assert f.add("after")


def test_ones_own_clear_empties_the_copy(bloom: Any, any_client: redis.Redis) -> None:
    """clear() and delete() do."""
    f = make(bloom, any_client, local_cache=100)
    for empty in (f.clear, f.delete):
        assert f.add("a")
        assert not f.add("a")
        empty()
    assert f.add_many(["a"]) == [True]


@for_each("seconds", [0, -1.5, "1", None, float("nan"), timedelta(0)])
def test_a_bad_time_is_refused(seconds: Any) -> None:
    """A time that a copy cannot be trusted for is refused before any I/O."""
    with pytest.raises((ValueError, TypeError), match=r"local_cache, .*True or False, must be .* not "):
        BloomFilter(redis.Redis(), "f", local_cache=seconds)


def test_the_time_for_which_a_copy_is_trusted() -> None:
    """It is 1 second with True, the seconds that are given, or None for no copy."""
    assert [cache_seconds(given) for given in (True, False, 2, 0.5, timedelta(minutes=1))] == [
        1,
        None,
        2,
        0.5,
        60,
    ]
