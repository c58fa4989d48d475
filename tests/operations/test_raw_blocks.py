"""Tests of many items read the raw blocks of a blocked filter, and are as right as tests of one item."""

from __future__ import annotations

import random
from typing import Any

import pytest
import redis

from bloomredis import BloomFilter, FilterLostError, FilterMismatchError
from bloomredis.bits.blocked import FEWEST_OF_NUMPY
from tests.support.values import for_each

MANY = 3 * FEWEST_OF_NUMPY


def scripts_called(client: redis.Redis) -> int:
    """Return how many scripts the server has executed."""
    stats: Any = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))


@for_each("error_rate", [0.3, 0.01, 1e-3, 1e-6, 1e-9, 1e-12])
def test_the_answers_are_those_of_one_item(bloom: Any, client: redis.Redis, error_rate: float) -> None:
    """With blocks of both sizes, one or several an item; also while the filter is empty."""
    f = bloom(client, f"f {error_rate}", capacity=500, error_rate=error_rate)
    items = random.Random(error_rate).sample(range(2000), 1200)
    assert f.contains_many(items) == [False] * len(items)
    f.add_many(range(500))
    expected = [f.contains(item) for item in items]
    assert expected.count(True) >= sum(item < 500 for item in items)
    assert f.contains_many(items) == expected


def test_a_batch_is_one_script(any_client: redis.Redis) -> None:
    """Of at most 1,000 blocks."""
    f = BloomFilter(any_client, "f", capacity=500, error_rate=0.01)
    f.add_many(range(500))
    assert all(f.contains_many(range(500)))
    before = scripts_called(any_client)
    assert all(f.contains_many(range(500)))
    assert scripts_called(any_client) == before + 1


def test_a_client_that_decodes(any_client: redis.Redis) -> None:
    """Blocks are no text."""
    options = any_client.connection_pool.connection_kwargs
    decoding = redis.Redis(unix_socket_path=options["path"], decode_responses=True)
    f = BloomFilter(decoding, "f", capacity=500, error_rate=1e-6)
    f.add_many(range(500))
    assert f.contains_many(range(500)) == [True] * 500
    decoding.close()


def test_a_lost_filter(bloom: Any, client: redis.Redis) -> None:
    """Its loss is detected in the same step."""
    f = bloom(client, "f", capacity=500, error_rate=0.01)
    f.add_many(range(MANY))
    client.delete("f")
    with pytest.raises(FilterLostError, match="vanished"):
        f.contains_many(range(MANY))
    f.acknowledge()
    bloom(client, "f", capacity=500, error_rate=0.01).clear()
    with pytest.raises(FilterLostError, match="replaced"):
        f.contains_many(range(MANY))


def test_a_cut_string(bloom: Any, any_client: redis.Redis) -> None:
    """Missing blocks are no answer."""
    f = bloom(any_client, "f", capacity=500, error_rate=0.01)
    f.add_many(range(MANY))
    stored: Any = any_client.get("f")
    any_client.set("f", stored[:-100])
    with pytest.raises(FilterMismatchError, match="ends before its bits"):
        f.contains_many(range(500))


def test_the_shards_of_a_new_filter(bloom: Any, client: redis.Redis) -> None:
    """A shard without bits has no item."""
    f = bloom(client, "f", kind="ShardedBloomFilter", shards=2, capacity=500, error_rate=0.01)
    f.add("a")
    assert f.contains_many(["a", *range(MANY)]) == [True] + [False] * MANY
