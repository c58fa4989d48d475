"""A filter that vanishes as fast as it is made ends a call with an error; no call repeats itself for ever."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import redis

import bloomredis
from bloomredis import FilterLostError
from bloomredis.protocol import clock
from tests.support.background import outcome, started
from tests.support.proxy import Proxy, after, once_executed, passed
from tests.support.servers import binaries, running
from tests.support.values import for_each

Verb = Callable[[Any], object]

KINDS: dict[str, dict[str, Any]] = {
    "BloomFilter": {"capacity": 1000, "error_rate": 0.01},
    "CountingBloomFilter": {"capacity": 1000, "error_rate": 0.01},
    "ScalingBloomFilter": {"capacity": 1000, "error_rate": 0.01},
    "RotatingBloomFilter": {"capacity": 1000, "error_rate": 0.01, "window": 3600},
    "ShardedBloomFilter": {"capacity": 1000, "error_rate": 0.01, "shards": 3},
}
VERBS: dict[str, Verb] = {
    "add": lambda f: f.add("x"),
    "add_many": lambda f: f.add_many(["x", "y"]),
    "claim": lambda f: f.claim("x"),
    "claim_many": lambda f: f.claim_many(["x", "y"]),
    "update": lambda f: f.update(map(str, range(500))),
    "expire": lambda f: f.expire(60) if hasattr(f, "expire") else f.add("x"),
}
CREATING = ("reserve", "add_layer", "settle_record")
"""The scripts that complete a new filter."""
MOST_TURNS = 2000
"""The times that a fault happens; a call without a bound then succeeds, which fails the test."""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the pauses between rounds short."""
    monkeypatch.setattr(clock, "_LONGEST", 0.001)


def often(act: Callable[[], object]) -> Callable[[], object]:
    """Return a function that acts, but not more than `MOST_TURNS` times."""
    turns = count()
    return lambda: next(turns) < MOST_TURNS and act()


@for_each("kind", KINDS)
@for_each("verb", VERBS)
def test_a_filter_that_vanishes_when_it_is_made(
    any_proxy: Proxy, any_client: redis.Redis, bloom: Any, kind: str, verb: str
) -> None:
    """Every call of an object that goes on after a loss ends soon, and the next one works again."""
    f = bloom(any_proxy.client(), "seen", kind=kind, on_lost="recreate", **KINDS[kind])
    f.add("warm")
    vanished = once_executed(often(any_client.flushall), passed)
    for script in CREATING:
        any_proxy.always(script, vanished)
    any_client.flushall()
    with pytest.raises(FilterLostError, match="16 times in a row"):
        VERBS[verb](f)
    any_proxy.calm()
    assert f.add("later")


@for_each("verb", ["create", "add", "clear"])
def test_shards_that_vanish_while_the_filter_is_made(
    any_proxy: Proxy, any_client: redis.Redis, bloom: Any, verb: str
) -> None:
    """A sharded filter whose ttl is shorter than its making is reported to its first caller too."""
    f = bloom(any_proxy.client(), "seen", kind="ShardedBloomFilter", **KINDS["ShardedBloomFilter"])
    any_proxy.always("reserve", once_executed(often(any_client.flushall), passed))
    with pytest.raises(FilterLostError, match="16 times in a row"):
        f.add("x") if verb == "add" else getattr(f, verb)()
    any_proxy.calm()
    assert f.add("later")


REPLACING = {
    "BloomFilter": {"clear": "clear", "delete": "delete"},
    "ScalingBloomFilter": {"clear": "add_layer", "delete": "delete"},
    "ShardedBloomFilter": {"clear": "reserve_record", "delete": "reserve_record"},
}
"""The script that replaces a filter of each kind, by verb."""


@for_each("kind, verb", [(kind, verb) for kind, verbs in REPLACING.items() for verb in verbs])
def test_a_filter_that_others_clear_all_the_time(
    any_proxy: Proxy, any_client: redis.Redis, bloom: Any, kind: str, verb: str
) -> None:
    """A clear() or delete() that never finds the filter that it has just read gives up."""
    f = bloom(any_proxy.client(), "seen", kind=kind, **KINDS[kind])
    f.add("x")
    other = getattr(bloomredis, kind)(any_client, "seen", **KINDS[kind])
    any_proxy.always(REPLACING[kind][verb], after(often(other.clear), passed))
    with pytest.raises(FilterLostError, match="16 times in a row"):
        getattr(f, verb)()
    any_proxy.calm()
    getattr(f, verb)()
    assert f.add("x")


@pytest.mark.every_server
@for_each("kind", ["BloomFilter", "ScalingBloomFilter", "CountingBloomFilter"])
def test_a_server_with_too_little_memory(server_name: str, bloom: Any, kind: str) -> None:
    """A server that evicts the filter as soon as it is made: the error names the cause.

    A user who may ask for the server's memory does not get that far.
    """
    options = ("--maxmemory", "4mb", "--maxmemory-policy", "allkeys-lru")
    with running(binaries()[server_name], *options) as small, small.client() as client:
        client.execute_command("ACL", "SETUSER", "default", "-info")
        f = bloom(client, "seen", kind=kind, capacity=4_000_000, error_rate=0.01, on_lost="recreate")
        found = outcome(started(lambda: f.add("x")))
        assert isinstance(found, FilterLostError)
        assert "raise maxmemory if the server evicts it" in str(found)


@pytest.mark.every_server
def test_a_ttl_that_ends_while_the_shards_are_made(server_name: str, bloom: Any) -> None:
    """The error names the cause, and the object works with a longer ttl."""
    size: dict[str, Any] = {"kind": "ShardedBloomFilter", "capacity": 100, "error_rate": 0.01, "shards": 100}
    with running(binaries()[server_name]) as server, server.client() as client:
        f = bloom(client, "seen", ttl=0.001, **size)
        found = outcome(started(lambda: f.add("x")))
        assert isinstance(found, FilterLostError)
        assert "give it a longer ttl" in str(found)
        assert bloom(client, "seen", ttl=600, **size).add("x")
