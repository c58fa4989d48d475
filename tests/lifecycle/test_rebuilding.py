"""Rebuilds: a successor gets all items from the beginning, and replaces the filter at the end."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import redis

from bloomredis import (
    BloomFilter,
    FilterLostError,
    FilterMismatchError,
    OutcomeUnknownError,
    ServerRefusedError,
    compat,
)
from tests.support.values import for_each

LAYOUTS = ("blocked", "classic")
OLD: Any = {"capacity": 1000, "error_rate": 0.01}
KEY, SUCCESSOR = b"seen", b"{seen}:successor"
ENDED = (None, None, None)
FAILED = (ZeroDivisionError, ZeroDivisionError(), None)
ITEMS = [f"item {number}" for number in range(500)]


@for_each("layout", LAYOUTS)
def test_what_was_loaded_and_added_is_in(client: redis.Redis, bloom: Any, layout: Any) -> None:
    """The loaded items and those added during the rebuild are found afterwards, and no others."""
    seen = bloom(client, "seen", layout=layout, **OLD)
    seen.add_many(["old", "kept"])
    with seen.rebuild(capacity=50_000, error_rate=0.001) as new:
        assert new.load(["kept", *ITEMS]) == len(ITEMS) + 1
        assert seen.add("meanwhile")
    assert seen.contains_many(["old", "kept", "meanwhile"]) == [False, True, True]
    assert all(seen.contains_many(ITEMS))
    about = seen.info()
    assert (about.capacity, about.error_rate, about.layout) == (50_000, 0.001, layout)
    assert about.count == len(ITEMS) + 2
    assert not client.exists(SUCCESSOR)


@for_each("layout", LAYOUTS)
@for_each("capacity", [40, 100_000, None])
def test_the_filter_answers_meanwhile(
    client: redis.Redis, bloom: Any, layout: Any, capacity: int | None
) -> None:
    """During a rebuild adds and tests, single and in batches, use the filter; its count grows."""
    seen, other = (bloom(client, "seen", layout=layout, **OLD) for _ in range(2))
    other.add_many(["a", "b"])
    with seen.rebuild(capacity=capacity):
        for each in (seen, other):
            assert each.contains_many(["a", "b", "c"]) == [True, True, False]
            assert each.contains("a")
            assert not each.add("a")
        assert other.add_many(["a", "c", "d", "c"]) == [False, True, True, False]
        assert not seen.add("d")
        assert seen.info().count == other.info().count == 4
    assert other.contains_many(["a", "b", "c", "d"]) == [True, False, True, True]
    assert seen.info().count == 3


def test_an_item_that_is_in_goes_to_the_successor_too(client: redis.Redis, bloom: Any) -> None:
    """An add that gets "already there" puts the item into the successor all the same."""
    seen = bloom(client, "seen", **OLD)
    seen.add("known")
    with seen.rebuild():
        assert not seen.add("known")
    assert not seen.add("known")


def test_the_time_to_live_is_kept(client: redis.Redis) -> None:
    """The successor takes over the filter's time to live: none, or one that was set during the rebuild."""
    seen = BloomFilter(client, "seen", **OLD)
    with seen.rebuild(timeout=1000):
        assert 0 < client.ttl(SUCCESSOR) <= 1000
    assert client.ttl(KEY) == -1
    with seen.rebuild():
        seen.expire(5000)
    assert 4000 < client.ttl(KEY) <= 5000


def test_an_exception_leaves_the_filter_as_it_was(client: redis.Redis, bloom: Any) -> None:
    """Items added during the rebuild are in the filter; the successor is gone.

    Only its identity changes: a late copy of a call that was refused meanwhile must not be executed.
    """
    seen, other = (bloom(client, "seen", **OLD) for _ in range(2))
    other.add("before")
    header = client.getrange(KEY, 0, 55)
    rebuild = seen.rebuild(capacity=7)
    rebuild.__enter__()
    other.add("meanwhile")
    assert not rebuild.__exit__(*FAILED)
    now = client.getrange(KEY, 0, 55)
    assert (now[:13], now[16:]) == (header[:13], header[16:])
    assert now[13:16] != header[13:16]
    assert not client.exists(SUCCESSOR)
    assert seen.contains_many(["before", "meanwhile"]) == [True, True]
    assert other.contains_many(["before", "meanwhile"]) == [True, True]


def test_the_old_parameters_fit_what_was_rebuilt(client: redis.Redis, bloom: Any) -> None:
    """Programs with the old parameters accept the rebuilt filter; another layout is refused."""
    seen = bloom(client, "seen", **OLD)
    with seen.rebuild(capacity=5000):
        seen.add("meanwhile")
        assert not bloom(client, "seen", **OLD).add("meanwhile")
    late = bloom(client, "seen", **OLD)
    assert not late.add("meanwhile")
    assert late.info().capacity == 5000
    with pytest.raises(FilterMismatchError, match="layout"):
        bloom(client, "seen", layout="classic", **OLD).reserve()


def test_a_rebuilt_filter_is_rebuilt_again(client: redis.Redis) -> None:
    """Each rebuild has its own successor; an abandoned rebuild leaves the last filter."""
    seen = BloomFilter(client, "seen", **OLD)
    for capacity in (2000, 3000):
        with seen.rebuild(capacity=capacity) as new:
            new.add("x")
    rebuild = seen.rebuild(capacity=4000)
    rebuild.__enter__()
    assert not rebuild.__exit__(*FAILED)
    assert BloomFilter.open(client, "seen").info().capacity == 3000
    assert not seen.add("x")


def test_clear_ends_a_rebuild(client: redis.Redis, bloom: Any) -> None:
    """The filter is empty and works; the rebuild raises, and leaves no key behind."""
    seen, other = (bloom(client, "seen", **OLD) for _ in range(2))
    rebuild = seen.rebuild()
    rebuild.__enter__().add("x")
    other.clear()
    assert not client.exists(SUCCESSOR)
    assert other.add("x")
    with pytest.raises(FilterLostError, match="while it was being rebuilt"):
        rebuild.__exit__(*ENDED)
    assert not other.add("x")


def test_delete_ends_a_rebuild(client: redis.Redis, bloom: Any) -> None:
    """After a delete no key remains."""
    seen, other = (bloom(client, "seen", **OLD) for _ in range(2))
    rebuild = seen.rebuild()
    rebuild.__enter__()
    assert other.delete()
    assert not client.exists(KEY, SUCCESSOR)
    with pytest.raises(FilterLostError, match="while it was being rebuilt"):
        rebuild.__exit__(*ENDED)
    assert not client.exists(KEY, SUCCESSOR)


@for_each("verb", ["add", "contains"])
def test_whoever_comes_after_a_dead_process_ends_its_rebuild(
    client: redis.Redis, bloom: Any, verb: str
) -> None:
    """After the successor expires, old and new objects use the filter without an error."""
    seen, other = (bloom(client, "seen", **OLD) for _ in range(2))
    other.add("before")
    rebuild = seen.rebuild()
    rebuild.__enter__()
    other.add("meanwhile")
    client.delete(SUCCESSOR)
    assert getattr(other, verb)("meanwhile") is (verb == "contains")
    assert bloom.open(client, "seen").contains_many(["before", "meanwhile"]) == [True, True]
    with pytest.raises(FilterLostError, match="while it was being rebuilt"):
        rebuild.__exit__(*ENDED)
    assert seen.contains_many(["before", "meanwhile"]) == [True, True]


def test_one_rebuild_at_a_time(client: redis.Redis) -> None:
    """A second rebuild is refused, or replaces the first, which raises at its end."""
    seen, other = (BloomFilter(client, "seen", **OLD) for _ in range(2))
    rebuild = seen.rebuild(capacity=2000)
    rebuild.__enter__()
    with pytest.raises(FilterMismatchError, match="already"):
        other.rebuild().__enter__()
    with other.rebuild(capacity=3000, take_over=True) as new:
        new.add("x")
        assert seen.add("y")
    with pytest.raises(FilterLostError, match="while it was being rebuilt"):
        rebuild.__exit__(*ENDED)
    assert seen.contains_many(["x", "y"]) == [True, True]
    assert seen.info().capacity == 3000


@for_each("layout", LAYOUTS)
def test_loads_meanwhile_go_to_both(client: redis.Redis, layout: Any) -> None:
    """Another client's load goes to both, even one large enough for segments."""
    seen, other = (BloomFilter(client, "seen", layout=layout, **OLD) for _ in range(2))
    items = [f"load {number}" for number in range(2000)]
    with seen.rebuild(capacity=5000):
        other.load(items)
    assert all(other.contains_many(items))


def test_a_load_that_is_overtaken_is_to_be_made_again(client: redis.Redis) -> None:
    """The load fails, since its bits do not fit the successor: no item is lost without an error."""
    seen, other = (BloomFilter(client, "seen", **OLD) for _ in range(2))
    items = [f"load {number}" for number in range(2000)]
    other.reserve()
    rebuild = seen.rebuild(capacity=5000)

    def overtaken() -> Any:
        yield from items[:1000]
        rebuild.__enter__()
        yield from items[1000:]

    with pytest.raises(OutcomeUnknownError, match="rebuilt"):
        other.load(overtaken())
    other.load(items)
    rebuild.__exit__(*ENDED)
    assert all(seen.contains_many(items))


def test_a_copy_in_the_process_is_not_asked_meanwhile(client: redis.Redis, bloom: Any) -> None:
    """An item in the local cache goes to the successor, and the old cache gives no answers later."""
    seen = bloom(client, "seen", **OLD)
    other = bloom(client, "seen", local_cache=True, local_cache_check=3600, **OLD)
    other.add_many(["known", "forgotten"])
    assert not other.add("known")
    with seen.rebuild():
        assert other.add("meanwhile")  # detects the rebuild
        assert other.add_many(["known", "meanwhile"]) == [False, False]
        assert not other.add("known")
        assert other.contains_many(["known", "no"]) == [True, False]
    assert other.contains_many(["known", "meanwhile"]) == [True, True]
    assert other.add("forgotten")


def test_claims_outlast_the_swap(client: redis.Redis, bloom: Any) -> None:
    """A claim from before the swap is committed after it; an item done during the rebuild stays done."""
    seen, other = (bloom(client, "seen", **OLD) for _ in range(2))
    before, released = other.claim_many(["before", "released"], lease=60)
    with seen.rebuild(capacity=5000):
        meanwhile = other.claim("meanwhile", lease=60)
        assert seen.claim("before", lease=60).state == "busy"
        done = other.claim("done", lease=60)
        bloom.wait(done.commit())
        bloom.wait(released.release())
        assert seen.claim("done", lease=60).state == "done"
    for claim in (before, meanwhile):
        assert seen.claim(claim.item, lease=60).state == "busy"
        bloom.wait(claim.commit())
    assert seen.contains_many(["before", "meanwhile", "done"]) == [True, True, True]
    assert seen.claim("released", lease=60).state == "claimed"


def test_queued_calls(client: redis.Redis) -> None:
    """A call queued during a rebuild goes to both."""
    seen, other = (BloomFilter(client, "seen", **OLD) for _ in range(2))
    with seen.rebuild():
        pipe = client.pipeline(transaction=False)
        other.queue_add(pipe, "x")
        other.queue_add(pipe, "x")
        other.queue_contains(pipe, "x")
        assert pipe.execute() == [1, 0, 1]
    assert not other.add("x")


@pytest.mark.parametrize("end", [ENDED, FAILED])
def test_who_rebuilds_queues_calls_at_once(client: redis.Redis, end: Any) -> None:
    """The rebuilding object can queue calls directly, during the rebuild and afterwards."""
    seen = BloomFilter(client, "seen", **OLD)
    seen.add("x")

    def queued(item: str) -> Any:
        with client.pipeline(transaction=False) as pipe:
            seen.queue_add(pipe, item)
            return pipe.execute()

    rebuild = seen.rebuild()
    rebuild.__enter__()
    assert queued("meanwhile") == [1]
    rebuild.__exit__(*end)
    assert queued("y") == [1]
    assert not seen.add("y")


def test_a_copy_of_what_is_being_rebuilt(client: redis.Redis) -> None:
    """A snapshot has the filter's bits during the rebuild, and the successor's afterwards."""
    seen = BloomFilter(client, "seen", **OLD)
    seen.add("old")
    with seen.rebuild(capacity=5000):
        seen.add("meanwhile")
        assert seen.snapshot().contains_many(["old", "meanwhile"]) == [True, True]
    assert seen.snapshot().contains_many(["old", "meanwhile"]) == [False, True]


def test_an_object_is_pickled_meanwhile(client: redis.Redis) -> None:
    """A pickled copy of an object adds to both in another process."""
    seen = BloomFilter(client, "seen", **OLD)
    with seen.rebuild():
        seen.reserve()
        assert pickle.loads(pickle.dumps(seen)).with_client(client).add("x")  # noqa: S301 - its own pickle
    assert not seen.add("x")


def test_an_older_copy_is_a_loss(client: redis.Redis) -> None:
    """A restored copy from before the rebuild lacks later items, and counts as a loss."""
    seen = BloomFilter(client, "seen", **OLD)
    seen.add("x")
    backup: Any = client.dump(KEY)
    with seen.rebuild():
        pass
    seen.add("y")
    client.restore(KEY, 0, backup, replace=True)
    with pytest.raises(FilterLostError, match="replaced"):
        seen.add("z")


def test_what_has_no_header_is_not_rebuilt() -> None:
    """Layouts of other systems and of the server's module are refused before anything is sent."""
    nobody: Any = redis.Redis(port=1)
    for layout in ("module", compat.redisson(capacity=100, error_rate=0.01)):
        with pytest.raises(TypeError, match="no header"):
            BloomFilter(nobody, "seen", layout=layout).rebuild()


@for_each("options", [{"capacity": 0}, {"error_rate": 1.0}, {"timeout": 0}, {"take_over": None}])
def test_arguments_are_checked_before_anything_is_sent(options: dict[str, Any]) -> None:
    """Bad arguments raise at the call."""
    nobody: Any = redis.Redis(port=1)
    with pytest.raises((ValueError, TypeError)):
        BloomFilter(nobody, "seen", **OLD).rebuild(**options)


def test_a_full_memory_changes_nothing(server: Any) -> None:
    """If the server has no memory for the successor, the filter is unchanged."""
    with server.client() as client:
        seen = BloomFilter(client, "seen", **OLD)
        seen.add("x")
        header = client.getrange(KEY, 0, 63)
        client.config_set("maxmemory", 1)
        try:
            with pytest.raises(ServerRefusedError, match="maxmemory"), seen.rebuild():
                pass
        finally:
            client.config_set("maxmemory", 0)
        assert client.getrange(KEY, 0, 63) == header
        assert not client.exists(SUCCESSOR)
