"""A sharded filter knows of each shard whether it was lost or never made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
import redis

from bloomredis import (
    BatchInterruptedError,
    FilterLostError,
    ShardedBloomFilter,
)
from bloomredis.stored.shards import record as shard_record
from tests.support.servers import Server
from tests.support.sharding import ITEMS, OPTIONS, shard_keys
from tests.support.values import for_each


def lose_one(client: redis.Redis) -> str:
    """Delete a shard, return its key."""
    key = shard_keys(client)[3]
    client.delete(key)
    return key


CALLS: Final[dict[str, Callable[[Any], Any]]] = {
    "add_many": lambda f: f.add_many(ITEMS),
    "contains_many": lambda f: f.contains_many(ITEMS),
    "claim_many": lambda f: f.claim_many([f"x{i}" for i in range(100)]),
    "info": lambda f: f.info(),
    "load": lambda f: f.load(ITEMS),
    "expire": lambda f: f.expire(100),
}


def cause(error: BaseException) -> BaseException:
    return error.__cause__ if isinstance(error, BatchInterruptedError) and error.__cause__ else error


@for_each("call", CALLS.values())
def test_a_lost_shard_is_noticed(bloom: Any, client: redis.Redis, call: Callable[[Any], Any]) -> None:
    """By who used it, and then by each call; by who opens the filter, or never used that shard."""
    f = bloom.sharded(client, "seen", **OPTIONS)
    f.add_many(ITEMS)
    fresh = bloom.sharded(client, "seen", **OPTIONS)
    lose_one(client)
    for g in (f, fresh):
        with pytest.raises((FilterLostError, BatchInterruptedError)) as caught:
            call(g)
        assert isinstance(cause(caught.value), FilterLostError)
        with pytest.raises(FilterLostError):
            g.contains("anything")
    with pytest.raises(FilterLostError, match=r"shard 3 .* reserve\(\)"):
        bloom.open(client, "seen", "ShardedBloomFilter")


def test_reserve_takes_notice_of_a_lost_shard(bloom: Any, client: redis.Redis) -> None:
    """The shard is made anew, the others keep their items; and whoever used it has yet to take notice."""
    f, g = (bloom.sharded(client, "seen", **OPTIONS) for _ in range(2))
    f.add_many(ITEMS)
    g.contains_many(ITEMS)
    lost = client.strlen(lose_one(client)) or sum(
        shard_record.plan(10_000, 1e-6).number(i.encode()) == 3 for i in ITEMS
    )
    with pytest.raises(FilterLostError):
        f.reserve()
    f.reserve()
    assert sum(f.add_many(ITEMS)) == lost > 0
    with pytest.raises((FilterLostError, BatchInterruptedError)):
        g.add_many(ITEMS)
    g.reserve()
    assert not any(g.add_many(ITEMS))


@for_each("vanished", ["a shard", "the root", "everything"])
def test_recreate_goes_on(bloom: Any, client: redis.Redis, vanished: str) -> None:
    """The callable hears of it, and all answers are those of the filter that is left."""
    heard: list[FilterLostError] = []
    f = bloom.sharded(client, "seen", **OPTIONS, on_lost=heard.append)
    f.add_many(ITEMS)
    if vanished == "a shard":
        lose_one(client)
    elif vanished == "the root":
        client.delete("seen", lose_one(client))
    else:
        client.flushdb()
    assert sum(f.add_many(ITEMS)) > 0
    assert heard
    f.add_many(ITEMS)  # without their root the other shards count for nothing from now on
    assert not any(f.add_many(ITEMS))
    assert not any(bloom.sharded(client, "seen", **OPTIONS).add_many(ITEMS))


def test_what_an_earlier_root_left_is_made_anew(bloom: Any, client: redis.Redis) -> None:
    """Shards without their root have no say in the next filter of that name."""
    f = bloom.sharded(client, "seen", **OPTIONS)
    f.add_many(ITEMS)
    client.delete("seen")
    g = bloom.sharded(client, "seen", **OPTIONS)
    assert not any(g.contains_many(ITEMS))
    assert all(g.add_many(ITEMS))
    with pytest.raises((FilterLostError, BatchInterruptedError)):
        f.add_many(ITEMS)


def test_a_shard_that_was_made_and_not_recorded_is_taken(any_server: Server) -> None:
    """A client that crashed in between has left it empty; the next one records it."""
    with any_server.client() as client:
        f = ShardedBloomFilter(client, "seen", **OPTIONS)
        f.reserve()
        number = shard_record.plan(10_000, 1e-6).number(b"a")
        operations: Any = f._operations
        opening = operations.stored.shard(number).open()
        step = next(opening)
        while not ((command := step.commands[0])[3] == b"seen" and command[6]):  # until it would record
            try:
                reply = client.execute_command(*command)
            except redis.exceptions.NoScriptError as error:
                step = opening.throw(error)
            else:
                step = opening.send(reply)
        opening.close()
        (left,) = shard_keys(client)
        header = client.getrange(left, 0, 55)
        assert "a" not in f
        assert f.add("a")
        assert client.getrange(left, 0, 55) == header


def test_clear_is_noticed(bloom: Any, client: redis.Redis) -> None:
    """Other objects are told; the filter keeps its expiry; all items are gone."""
    f, g = (bloom.sharded(client, "seen", **OPTIONS, ttl=100) for _ in range(2))
    f.add_many(ITEMS)
    g.contains_many(ITEMS)
    f.clear()
    assert 0 < client.pttl("seen") <= 100_000
    assert all(f.add_many(ITEMS))
    with pytest.raises((FilterLostError, BatchInterruptedError)):
        g.add_many(ITEMS)


def test_expire_and_delete_cover_everything(bloom: Any, client: redis.Redis) -> None:
    """Root, shards, and shards made later; delete leaves nothing but receipts."""
    f = bloom.sharded(client, "seen", **OPTIONS)
    f.add_many(ITEMS[:5])
    f.expire(1000)
    f.add_many(ITEMS)
    for key in ["seen", *shard_keys(client)]:
        assert 990_000 < client.pttl(key) <= 1_000_000
    assert f.delete()
    assert not f.delete()
    assert not client.exists("seen", *shard_keys(client))
    assert f.add("a")


def test_ttl_is_that_of_all_parts(bloom: Any, client: redis.Redis) -> None:
    """The root and every shard expire with it."""
    f = bloom.sharded(client, "seen", **OPTIONS, ttl=50)
    f.add_many(ITEMS)
    assert all(40_000 < client.pttl(key) <= 50_000 for key in ["seen", *shard_keys(client)])
