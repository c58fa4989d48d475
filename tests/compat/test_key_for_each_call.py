"""Programs that use a key for each call, as classes of other systems do: one kept object a key."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest
import redis

from bloomredis import BloomFilter, FilterMismatchError, compat
from tests.support.losing import LosingClient

LAYOUT = compat.jedis(1000, 0.01, insert_ttl=1000)


def filter_of(client: Any, key: str) -> BloomFilter:
    return BloomFilter(client, key, layout=LAYOUT)


def receipts(client: redis.Redis) -> int:
    return sum(1 for _ in client.scan_iter("*:receipt:*"))


def test_a_kept_object_leaves_one_receipt_a_key(any_client: redis.Redis) -> None:
    """10,000 calls over 100 keys leave 100 receipts."""
    kept = lru_cache(maxsize=200)(filter_of)
    for i in range(10_000):
        kept(any_client, f"key-{i % 100}").add(f"item-{i}")
    assert receipts(any_client) == 100
    assert len(any_client.keys("bf:key-*")) == 100


def test_an_object_for_each_call_leaves_a_receipt_each(any_client: redis.Redis) -> None:
    """It has a session of its own, and nobody uses that again."""
    for i in range(50):
        filter_of(any_client, f"key-{i % 5}").add(f"item-{i}")
    assert receipts(any_client) == 50


def test_the_first_use_of_a_key_is_one_call(any_client: redis.Redis) -> None:
    """There is no look at the key before; a key of another type is refused by the call itself."""
    client: Any = LosingClient(any_client)
    filter_of(client, "first").add("a")
    client.sent.clear()
    filter_of(client, "second").add("a")
    assert [command[0] for command in client.sent] == ["EVALSHA"]
    any_client.rpush("bf:third", "x")
    with pytest.raises(FilterMismatchError):
        filter_of(client, "third").add("a")
    with pytest.raises(FilterMismatchError):
        filter_of(client, "third").create()
