"""Filters that do not fit into the memory of a server: nothing is created, and nobody's keys go."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import redis

import bloomredis
from bloomredis import BloomError, BloomFilter, ServerRefusedError
from tests.support.modules import needs_module
from tests.support.servers import Server, running
from tests.support.values import for_each
from tests.support.verbs import FIRST_CALLS

LIMIT = 5 << 20
LARGE: dict[str, Any] = {"capacity": 100_000_000, "error_rate": 0.01}
OTHERS = [f"of another program {number}" for number in range(200)]
REFUSED = r"OOM \d+ bytes are wanted at once, and \d+ of maxmemory \(5242880\) are left.*begins small"
POLICIES = ("noeviction", "volatile-lru", "allkeys-lru")

KINDS: list[tuple[str, dict[str, Any]]] = [
    ("BloomFilter", {}),
    ("CountingBloomFilter", {}),
    ("ScalingBloomFilter", {}),
    ("RotatingBloomFilter", {"window": 3600}),
]


@pytest.fixture
def small(any_server: Server) -> Iterator[redis.Redis]:
    """A client of a server with little memory, and with keys of other programs that may be evicted."""
    with running(any_server.binary, *any_server.options) as server:
        client = server.client()
        client.config_set("maxmemory", LIMIT)
        client.mset(dict.fromkeys(OTHERS, "x" * 1000))
        yield client


def check_others(client: redis.Redis) -> None:
    """Check that nothing was created or evicted, and that other programs may write."""
    assert sorted(client.keys()) == sorted(map(str.encode, OTHERS))
    assert client.set(OTHERS[0], "y" * 1000)
    BloomFilter(client, "small", capacity=1000, error_rate=0.01).add("a")
    for key in client.scan_iter("*small*"):
        client.delete(key)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_does_not_fit_is_refused_before_it_is_made(bloom: Any, small: redis.Redis, policy: str) -> None:
    """By each verb as the first call of a filter, under every policy."""
    small.config_set("maxmemory-policy", policy)
    for kind, options in KINDS:
        f = bloom(small, "f", kind=kind, **LARGE, **options)
        for call in FIRST_CALLS.values():
            with pytest.raises(ServerRefusedError, match=REFUSED) as met:
                call(f)
            assert met.value.word == "OOM"
    check_others(small)


def test_a_filter_of_the_module_that_does_not_fit_is_refused(bloom: Any, small: redis.Redis) -> None:
    """Its size is estimated."""
    needs_module(small)
    small.config_set("maxmemory-policy", "allkeys-lru")
    f = bloom(small, "f", layout="module", **LARGE)
    for call in FIRST_CALLS.values():
        with pytest.raises(ServerRefusedError, match=REFUSED):
            call(f)
    check_others(small)


def test_a_shard_that_does_not_fit_is_refused(small: redis.Redis) -> None:
    """Its bits are made by its first write, which is refused; then the shard is its header alone."""
    small.config_set("maxmemory-policy", "allkeys-lru")
    f: Any = bloomredis.ShardedBloomFilter(small, "f", shards=2, **LARGE)
    for call in (f.add, lambda item: f.add_many([item]), lambda item: f.update([item])):
        with pytest.raises(BloomError, match=REFUSED):
            call("a")
    assert sum(small.strlen(key) for key in small.scan_iter("*f:*")) < 1000
    assert small.exists(*OTHERS) == len(OTHERS)


def test_a_restored_filter_that_does_not_fit_is_refused(any_server: Server, small: redis.Redis) -> None:
    """Before its bits are sent."""
    saved = io.BytesIO()
    f = BloomFilter(any_server.client(), "f", capacity=10_000_000, error_rate=0.01)
    f.add("a")
    f.save(saved)
    saved.seek(0)
    small.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(BloomError, match=REFUSED):
        BloomFilter.restore(small, "f", saved)
    check_others(small)


def test_the_next_layer_that_does_not_fit_is_refused(small: redis.Redis) -> None:
    """The filter keeps what it has, and goes on when there is room."""
    f = bloomredis.ScalingBloomFilter(small, "f", capacity=1_000_000, error_rate=0.01, expansion=4)
    f.update(range(999_000))
    with pytest.raises(BloomError, match=REFUSED):
        f.add_many(range(1_000_000, 1_050_000))
    assert all(small.exists(key) for key in OTHERS)
    assert all(f.contains_many(range(1000)))
    small.config_set("maxmemory", 10 * LIMIT)
    f.add_many(range(1_000_000, 1_050_000))
    assert all(f.contains_many(range(1_000_000, 1_050_000)))


def test_clear_needs_no_more_memory(small: redis.Redis) -> None:
    """It frees the old bits first, so it works where a second filter would not fit."""
    f = BloomFilter(small, "f", capacity=2_000_000, error_rate=0.01)
    f.add("a")
    f.clear()
    assert f.add("a")
    with pytest.raises(ServerRefusedError):
        BloomFilter(small, "g", capacity=2_000_000, error_rate=0.01).create()


@for_each(("policy", "ttl", "warned"), [
    ("noeviction", None, 0), ("allkeys-lru", None, 1), ("volatile-lru", None, 0), ("volatile-lru", 60, 1)
])  # fmt: skip
def test_a_large_filter_that_may_be_evicted_warns(
    small: redis.Redis, caplog: pytest.LogCaptureFixture, policy: str, ttl: int | None, warned: int
) -> None:
    """Once, when it is created."""
    caplog.clear()
    caplog.set_level(logging.WARNING, "bloomredis")
    small.flushall()
    small.config_set("maxmemory", 8 * LIMIT)
    small.config_set("maxmemory-policy", policy)
    for kind in ("BloomFilter", "ScalingBloomFilter"):
        for _ in range(2):
            made: Any = getattr(bloomredis, kind)(small, kind, capacity=900_000, error_rate=0.01, ttl=ttl)
            made.add("a")
    assert caplog.text.count(f"evicts keys when its memory is full (maxmemory-policy {policy})") == 2 * warned


def test_a_user_without_the_right_to_ask_is_not_hindered(small: redis.Redis) -> None:
    """Then nothing is known about the server's memory."""
    small.acl_setuser("u", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-info"])
    options = small.connection_pool.connection_kwargs
    user = redis.Redis(unix_socket_path=options["path"], username="u", password="any")  # noqa: S106 - any does
    assert BloomFilter(user, "f", capacity=1_000_000, error_rate=0.01).add("a")
    user.close()
