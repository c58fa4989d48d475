"""The helpers for users' own tests."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
import redis

import bloomredis.asyncio
from bloomredis import BloomFilter, ConnectionFailedError, FilterLostError, RotatingBloomFilter, connect
from bloomredis.testing import bloom_client, later, lose, unreachable
from tests.support.values import for_each
from tests.test_startup import lines

SIZE: dict[str, Any] = {"capacity": 100, "error_rate": 0.01}
__all__ = ["bloom_client"]


@pytest.mark.parametrize("run", range(2))
def test_each_test_has_a_server_of_its_own(bloom_client: redis.Redis, run: int) -> None:
    """Each test has its own, empty server."""
    assert BloomFilter(bloom_client, "seen", **SIZE).add("x")


def test_time(bloom_client: redis.Redis) -> None:
    """When time passes, a window passes and a lease expires."""
    recent = RotatingBloomFilter(bloom_client, "recent", **SIZE, window=3600)
    recent.add("x")
    claim = recent.claim("y", lease=30, renew=False)
    with later(20):
        assert 9 < claim.remaining <= 10
        assert 9 < recent.claim("y").remaining <= 10
    with later(timedelta(hours=2)):
        assert claim.lost
        assert not recent.contains("x")
        assert recent.claim("y").state == "claimed"
    assert claim.state == "claimed"


def test_a_loss_is_that_of_one_filter(bloom_client: redis.Redis) -> None:
    """The keys of a filter whose name begins with the lost one's stay."""
    others = [
        bloomredis.ScalingBloomFilter(bloom_client, name, **SIZE) for name in ("user:visits", "user:1:2")
    ]
    seen = bloomredis.ShardedBloomFilter(bloom_client, "user", **SIZE)
    for each in (seen, *others):
        each.add("x")
    before = len(bloom_client.keys())
    assert before - lose(seen) == len(bloom_client.keys())
    assert [each.contains("x") for each in others] == [True, True]


@for_each("kind", ["BloomFilter", "ScalingBloomFilter", "ShardedBloomFilter", "CountingBloomFilter"])
def test_a_loss(kind: str) -> None:
    """After a simulated loss no key of the filter remains, and its object raises an error."""
    with connect("memory://") as client:
        seen = getattr(bloomredis, kind)(client, "se*n", **SIZE)
        seen.add_many(range(50))
        BloomFilter(client, "seen", **SIZE).add("x")
        assert lose(seen) > 0
        with pytest.raises(FilterLostError):
            seen.add("x")
        assert BloomFilter(client, "seen", **SIZE).contains("x")


def test_a_server_that_is_away(bloom_client: redis.Redis) -> None:
    """Calls to a server that is away fail and do nothing; later calls succeed."""
    seen = BloomFilter(bloom_client, "seen", **SIZE)
    seen.add("x")
    for target in (bloom_client, seen):
        with unreachable(target), pytest.raises(ConnectionFailedError):
            seen.contains("x")
        assert seen.contains("x")


@for_each("target", [redis.Redis(), BloomFilter(redis.Redis(), "seen"), "seen", None])
def test_a_server_that_cannot_be_away(target: Any) -> None:
    """Only the server in this process can be made unreachable; the error says what it takes."""
    with pytest.raises(TypeError, match="this takes a filter"), unreachable(target):
        pass


def test_what_cannot_be_lost() -> None:
    """`lose` takes a filter, not its client and name."""
    with pytest.raises(TypeError, match="this takes a filter, such as a BloomFilter, not"):
        lose(redis.Redis())


def test_without_pytest() -> None:
    """All but the fixture is there without pytest."""
    program = """
import sys
sys.modules["pytest"] = None
from bloomredis import BloomFilter, ConnectionFailedError, FilterLostError
from bloomredis.testing import *
seen = BloomFilter.from_url("memory://", "seen", capacity=100, error_rate=0.01)
assert seen.add("x")
with later(60): assert seen.contains("x")
with unreachable(seen):
    try: seen.contains("x")
    except ConnectionFailedError: print("away")
print(lose(seen))
try: seen.contains("x")
except FilterLostError: print("lost")
"""
    assert lines(program) == ["away", "2", "lost"]


def test_asyncio() -> None:
    """The server of an asyncio client can be away, too."""

    async def main() -> None:
        client = bloomredis.asyncio.connect("memory://")
        seen = bloomredis.asyncio.BloomFilter(client, "seen", **SIZE)
        assert await seen.add("x")
        for target in (client, seen):
            with unreachable(target), pytest.raises(ConnectionFailedError):
                await seen.contains("x")
        assert lose(seen) > 0
        with pytest.raises(FilterLostError):
            await seen.contains("x")
        await client.aclose()

    asyncio.run(main())
