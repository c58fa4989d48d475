"""Filters during and after a rebuild: saved, copied, merged, adopted."""

from __future__ import annotations

import io
from typing import Any

import pytest
import redis

from bloomredis import BloomFilter, FilterLostError, FilterMismatchError, ScalingBloomFilter
from tests.support.values import for_each

SIZE: dict[str, Any] = {"capacity": 1000, "error_rate": 0.01}
ITEMS = range(500)


def made(client: redis.Redis, name: str = "seen") -> BloomFilter[Any]:
    f = BloomFilter[Any](client, name, **SIZE)
    f.add_many(ITEMS)
    return f


@for_each("done", [False, True])
def test_a_copy_is_a_filter_like_others(any_client: redis.Redis, *, done: bool) -> None:
    """A copy has the filter's answers, none of a successor, and no marks of a rebuild."""
    f, file = made(any_client), io.BytesIO()
    with f.rebuild(capacity=2000) as new:
        new.load(ITEMS)
        if not done:
            f.save(file)
            copied = f.copy(any_client, "copied")
    if done:
        f.save(file)
        copied = f.copy(any_client, "copied")
    file.seek(0)
    restored = BloomFilter[Any].restore(any_client, "restored", file)
    capacity = 2000 if done else 1000
    for each in (copied, restored):
        assert all(each.contains_many(ITEMS))
        assert each.info().capacity == capacity
        assert BloomFilter(any_client, each.name, capacity=capacity, error_rate=0.01).contains(5)
        with pytest.raises(FilterMismatchError):
            BloomFilter(any_client, each.name, capacity=capacity + 1, error_rate=0.01).contains(5)


def test_a_rebuild_in_the_middle_ends_a_save(any_client: redis.Redis) -> None:
    """A save fails if a rebuild ends during it: its pieces would belong to two filters."""
    f, large = BloomFilter[Any](any_client, "seen", capacity=2_000_000, error_rate=0.01), io.BytesIO()
    f.add_many(ITEMS)

    def rebuild(done: int, total: int) -> None:
        if done < total:
            with f.rebuild(capacity=1000):
                pass

    with pytest.raises(FilterLostError, match="rebuilt or lost while it was read"):
        f.save(large, progress=rebuild)


def test_nothing_is_merged_into_a_filter_without_its_successor(any_client: redis.Redis) -> None:
    """A merge is refused during a rebuild and works afterwards."""
    f, other = made(any_client), made(any_client, "other")
    other.add("x")
    local = other.snapshot()
    with f.rebuild():
        for source in (other, local):
            with pytest.raises(FilterMismatchError, match="being rebuilt"):
                f.merge(source)
    assert not f.contains("x")
    f.merge(other)
    assert f.contains("x")


def test_a_filter_that_is_being_rebuilt_is_not_adopted(any_client: redis.Redis) -> None:
    """It is refused during a rebuild and works afterwards."""
    f = made(any_client)
    with f.rebuild() as new:
        new.load(ITEMS)
        with pytest.raises(FilterMismatchError, match="being rebuilt"):
            ScalingBloomFilter.adopt(any_client, "seen")
    grown = ScalingBloomFilter[Any].adopt(any_client, "seen")
    grown.add_many(range(500, 3000))
    assert all(grown.contains_many(range(3000)))
