"""Planned sizes are compared with those of created filters."""

from __future__ import annotations

from typing import Any

import pytest
import redis

import bloomredis
from bloomredis import CountingBloomFilter, RotatingBloomFilter, ScalingBloomFilter, ShardedBloomFilter
from tests.support.values import for_each

SIZE: dict[str, Any] = {"capacity": 5000, "error_rate": 0.001}


@for_each("layout", ["blocked", "classic"])
def test_one_key(any_client: redis.Redis, layout: Any) -> None:
    """Bits, hashes and bytes are those of the filter, also for one that counts."""
    made = bloomredis.BloomFilter(any_client, f"n-{layout}", **SIZE, layout=layout)
    counting = CountingBloomFilter(any_client, f"c-{layout}", **SIZE)
    for seen, planned in (
        (made, bloomredis.plan(**SIZE, layout=layout)),
        (counting, bloomredis.plan(**SIZE, kind="counting")),
    ):
        seen.create()
        found = seen.info()
        assert (planned.num_bits, planned.num_hashes, planned.size_bytes, planned.layout) == (
            *(found.num_bits, found.num_hashes, found.size_bytes, found.layout),
        )
    assert bloomredis.plan(**SIZE).expected_error_rate == pytest.approx(0.001, rel=0.01)


def test_one_that_grows(any_client: redis.Redis) -> None:
    """A growing filter has the planned layers and bytes for that many items."""
    seen = ScalingBloomFilter(any_client, "seen", **SIZE)
    seen.add_many(range(14_000))
    found, planned = seen.info(), bloomredis.plan(**SIZE, kind="scaling", grown_to=14_000)
    assert (len(found.layers), found.size_bytes) == (planned.layers, planned.size_bytes)
    assert found.capacity == planned.room


def test_one_that_forgets(any_client: redis.Redis) -> None:
    """Each layer of a rotating filter has the planned size."""
    seen = RotatingBloomFilter(any_client, "seen", **SIZE, window=3600, slices=6)
    seen.add("x")
    (layer,), planned = seen.info().layers, bloomredis.plan(**SIZE, kind="rotating", slices=6)
    assert planned.layers == 7
    assert planned.num_bits == 7 * layer.num_bits
    assert planned.num_hashes == layer.num_hashes


def test_one_in_shards(any_client: redis.Redis) -> None:
    """The shards are as planned; the numbers for a node are those of the fullest one."""
    seen = ShardedBloomFilter(any_client, "seen", **SIZE)
    seen.create()
    found = seen.info()
    planned = bloomredis.plan(**SIZE, kind="sharded", nodes=3)
    assert (found.shards, found.num_bits) == (planned.shards, planned.num_bits)
    assert planned.bytes_per_node == 6 * (planned.bytes_per_shard or 0)


@for_each(
    ("options", "words"),
    [
        ({"kind": "plain"}, "kind must be one of 'fixed', "),
        ({"slices": 3}, "slices is for kind='rotating', not for kind='fixed'"),
        ({"kind": "counting", "layout": "blocked"}, "one layout only"),
        ({"error_rate": 1}, "error_rate must lie strictly between"),
        ({"capacity": 0}, "capacity must be at least 1"),
        ({"capacity": 10**12}, "one key holds at most"),
        ({"layout": "bloked"}, "layout must be None, 'classic', 'blocked', or for BloomFilter 'module'"),
    ],
)
def test_bad_arguments(options: dict[str, Any], words: str) -> None:
    """The message has the value and says what to do."""
    with pytest.raises(ValueError, match=words):
        bloomredis.plan(**(SIZE | options))
