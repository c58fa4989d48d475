"""A sharded filter distinguishes a lost shard from one that was never created."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
import redis
import redis.asyncio

import bloomredis.asyncio
from bloomredis import (
    BatchInterruptedError,
    FilterLostError,
    FilterMismatchError,
    OutcomeUnknownError,
    ServerRefusedError,
    ShardedBloomFilter,
)
from bloomredis.operations.kinds.sharded_items import merge_answers
from bloomredis.stored.shards import record as shard_record
from tests.support.inside import inside
from tests.support.losing import LosingClient
from tests.support.servers import Server
from tests.support.sharding import ITEMS, OPTIONS, shard_keys
from tests.support.values import for_each
from tests.support.waiting import wait_until


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
    "update": lambda f: f.update(ITEMS),
    "expire": lambda f: f.expire(100),
}


def cause(error: BaseException) -> BaseException:
    return error.__cause__ if isinstance(error, BatchInterruptedError) and error.__cause__ else error


@for_each("call", CALLS.values())
def test_a_lost_shard_is_noticed(bloom: Any, client: redis.Redis, call: Callable[[Any], Any]) -> None:
    """Objects that used it raise on every call; so do those that open the filter or never used the shard."""
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
    with pytest.raises(FilterLostError, match=r"shard 3 .* acknowledge\(\)"):
        bloom.open(client, "seen", "ShardedBloomFilter")


def test_a_lost_shard_is_made_anew_on_purpose(bloom: Any, client: redis.Redis) -> None:
    """The shard is recreated, the others keep their items; another object that used it raises once more."""
    f, g = (bloom.sharded(client, "seen", **OPTIONS) for _ in range(2))
    f.add_many(ITEMS)
    g.contains_many(ITEMS)
    lost = client.strlen(lose_one(client)) or sum(
        shard_record.plan_record(10_000, 1e-6).number(i.encode()) == 3 for i in ITEMS
    )
    with pytest.raises(FilterLostError):
        f.create()
    f.acknowledge()
    assert sum(f.add_many(ITEMS)) == lost > 0
    with pytest.raises((FilterLostError, BatchInterruptedError)):
        g.add_many(ITEMS)
    g.acknowledge()
    assert not any(g.add_many(ITEMS))


@for_each("vanished", ["a shard", "the root", "everything"])
def test_recreate_goes_on(
    bloom: Any, client: redis.Redis, vanished: str, losses: Callable[[], list[str]]
) -> None:
    """A warning is logged, and all answers are those of the remaining filter."""
    before = len(losses())
    f = bloom.sharded(client, "seen", **OPTIONS, on_lost="recreate")
    f.add_many(ITEMS)
    if vanished == "a shard":
        lose_one(client)
    elif vanished == "the root":
        client.delete("seen", lose_one(client))
    else:
        client.flushdb()
    assert sum(f.add_many(ITEMS)) > 0
    assert len(losses()) > before
    f.add_many(ITEMS)  # after the loss of the record the other shards do not count
    assert not any(f.add_many(ITEMS))
    assert not any(bloom.sharded(client, "seen", **OPTIONS).add_many(ITEMS))


@for_each("call", [*CALLS.values(), lambda f: f.contains("x"), lambda f: f.add("x")])
def test_the_shards_of_a_lost_record_tell_of_it(
    bloom: Any, client: redis.Redis, call: Callable[[Any], Any]
) -> None:
    """An object that never used them raises.

    The shards do not count in the next filter of that name.
    """
    f = bloom.sharded(client, "seen", **OPTIONS)
    f.add_many(ITEMS)
    client.delete("seen")
    new = bloom.sharded(client, "seen", **OPTIONS)
    for _ in range(2):
        with pytest.raises((FilterLostError, BatchInterruptedError)) as caught:
            call(new)
        assert "the record of 'seen' has vanished" in str(cause(caught.value))
    client.delete("seen")
    assert not any(f.add_many(ITEMS)), "who has it open goes on with the shards that are there"
    g = bloom.sharded(client, "seen", **OPTIONS, on_lost="recreate")
    assert not any(g.contains_many(ITEMS)), "it begins an empty filter"
    assert all(g.add_many(ITEMS))
    with pytest.raises((FilterLostError, BatchInterruptedError)):
        f.add_many(ITEMS)


def test_who_meets_the_shards_of_a_lost_record_leaves_no_other(bloom: Any, client: redis.Redis) -> None:
    """A new object of another capacity raises too, and programs that have the filter open go on."""
    f = bloom.sharded(client, "seen", **OPTIONS)
    f.add_many(ITEMS)
    client.delete("seen")
    for _ in range(2):
        with pytest.raises(FilterLostError):
            bloom.sharded(client, "seen", capacity=11_000, error_rate=1e-6).add("a")
        assert not client.exists("seen")
    assert not any(f.add_many(ITEMS))
    with pytest.raises(FilterLostError):
        bloom.sharded(client, "seen", **OPTIONS).add("a")


def test_a_token_of_a_lost_shard_is_void(any_client: redis.Redis) -> None:
    """Once the shard was made again, its receipts of before answer nobody: one call about an item is new."""
    losing = LosingClient(any_client)
    f = ShardedBloomFilter(losing, "seen", **OPTIONS)  # type: ignore[arg-type]  # it has what is used
    f.add_many(ITEMS)
    losing.lose = ["lost"]
    with pytest.raises(OutcomeUnknownError) as met:
        f.add("lost")
    operations: Any = inside(f)
    record = operations.stored.record
    any_client.delete(shard_record.key("seen", record.shards, record.number(b"lost")))
    g, other = (ShardedBloomFilter(any_client, "seen", **OPTIONS, on_lost="recreate") for _ in range(2))
    assert g.add("lost") is True
    assert other.add("lost", token=met.value.token) is False


def test_a_batch_tells_of_a_loss_whatever_else_has_failed() -> None:
    """Another part's error would hide the loss, and the next call would go on with what is there now."""
    lost, other = FilterLostError("lost"), OutcomeUnknownError("other")
    parts: list[list[tuple[list[int], list[bool] | Exception]]] = [
        [([0], other), ([1], lost)],
        [([0], lost), ([1], other)],
        [([0], [True]), ([1], other)],
    ]
    assert [merge_answers(2, each)[1] for each in parts] == [lost, lost, other]


def test_clear_is_noticed(bloom: Any, client: redis.Redis) -> None:
    """Other objects raise; the filter keeps its expiry; all items are gone."""
    f, g = (bloom.sharded(client, "seen", **OPTIONS, ttl=100) for _ in range(2))
    f.add_many(ITEMS)
    g.contains_many(ITEMS)
    f.clear()
    assert 0 < client.pttl("seen") <= 100_000
    assert all(f.add_many(ITEMS))
    with pytest.raises((FilterLostError, BatchInterruptedError)):
        g.add_many(ITEMS)


def test_expire_and_delete_cover_everything(bloom: Any, client: redis.Redis) -> None:
    """The record, the shards and later shards expire; delete leaves only receipts."""
    f = bloom.sharded(client, "seen", **OPTIONS)
    f.add_many(ITEMS[:5])
    f.expire(1000)
    f.add_many(ITEMS)
    assert 990_000 < client.pttl("seen") <= 1_000_000
    assert all(1_020_000 < client.pttl(key) <= 1_030_000 for key in shard_keys(client))
    assert f.delete()
    assert not f.delete()
    assert not client.exists("seen", *shard_keys(client))
    assert f.add("a")


def test_ttl_is_that_of_all_parts(bloom: Any, client: redis.Redis) -> None:
    """The record expires with it, and every shard half a minute later."""
    f = bloom.sharded(client, "seen", **OPTIONS, ttl=50)
    f.add_many(ITEMS)
    assert 40_000 < client.pttl("seen") <= 50_000
    assert all(70_000 < client.pttl(key) <= 80_000 for key in shard_keys(client))


@for_each("data", [b"no filter at all", b"bloomr\2" + bytes(57)])
def test_a_shard_that_cannot_be_read(bloom: Any, client: redis.Redis, data: bytes) -> None:
    """It is an error that names the key, not a loss; `delete()` leaves the key alone."""
    f = bloom.sharded(client, "seen", **OPTIONS)
    f.add_many(ITEMS)
    key = shard_keys(client)[3]
    client.set(key, data)
    with pytest.raises(FilterMismatchError, match=re.escape(key)):
        bloom.open(client, "seen", "ShardedBloomFilter")
    assert bloom.sharded(client, "seen", **OPTIONS).delete()
    assert client.get(key) == data
    assert shard_keys(client) == [key]


@contextmanager
def refused_first_shard(server: Server) -> Iterator[list[str]]:
    """Create a filter whose first shard the server refuses to the user "limited"; return the shards' keys."""
    with server.client() as client:
        ShardedBloomFilter(client, "seen", **OPTIONS).create()
        keys = shard_keys(client)
        allowed = ["seen*", *(f"*{key}*" for key in keys[1:])]
        client.acl_setuser("limited", enabled=True, nopass=True, keys=allowed, commands=["+@all"])
        yield keys


def test_a_load_tells_of_a_loss_whatever_else_has_failed(server: Server) -> None:
    """The server refuses the first shard; that error would hide the loss of another shard."""
    with refused_first_shard(server) as keys, server.client(username="limited") as limited:
        f = ShardedBloomFilter(limited, "seen", **OPTIONS)
        for expected in (ServerRefusedError, FilterLostError):
            with pytest.raises((expected, BatchInterruptedError)) as caught:
                f.update(ITEMS)
            assert isinstance(cause(caught.value), expected)
            with server.client() as client:
                client.delete(keys[1])


def test_a_shard_that_is_refused_fails_its_own_items_only(server: Server) -> None:
    """Tasks that share round trips get answers from the other shards; a loss is told to all."""

    async def main(keys: list[str]) -> None:
        record = shard_record.plan_record(10_000, 1e-6)
        refused = [record.number(item.encode()) == 0 for item in ITEMS]
        async with redis.asyncio.Redis(unix_socket_path=server.socket, username="limited") as client:
            f = bloomredis.asyncio.ShardedBloomFilter(client, "seen", **OPTIONS)
            for call, expected in ((f.add, True), (f.add, False), (f.contains, True)):
                told = await asyncio.gather(*map(call, ITEMS), return_exceptions=True)
                # A call that the client made may be unknown: the client may have resent it.
                failed = [isinstance(each, ServerRefusedError | OutcomeUnknownError) for each in told]
                assert failed == refused
                assert {each for each in told if isinstance(each, bool)} == {expected}
            with server.client() as admin:
                admin.delete(keys[1])
            told = await asyncio.gather(*map(f.contains, ITEMS), return_exceptions=True)
            assert sum(isinstance(each, FilterLostError) for each in told) >= len(ITEMS) - 1

    with refused_first_shard(server) as keys:
        asyncio.run(main(keys))


def test_the_shards_outlive_the_record_a_little(bloom: Any, client: redis.Redis) -> None:
    """A filter that has expired is not lost: a new object begins an empty one, whatever is left of it."""
    f = bloom.sharded(client, "seen", **OPTIONS)
    f.add_many(ITEMS)
    f.expire(0.05)
    left = min(client.pttl(key) for key in shard_keys(client))
    wait_until("the record expires", lambda: not client.exists("seen"))
    assert 29_000 < left <= 30_050
    new = bloom.sharded(client, "seen", **OPTIONS)
    assert not any(new.contains_many(ITEMS))
    assert all(new.add_many(ITEMS))


def test_expire_of_a_filter_that_has_just_expired(bloom: Any, client: redis.Redis) -> None:
    """It raises, and the shards that are left do not live longer: others begin an empty filter."""
    f = bloom.sharded(client, "seen", **OPTIONS, ttl=20)
    f.add_many(ITEMS)
    client.delete("seen")
    with pytest.raises(FilterLostError):
        f.expire(5000)
    assert all(0 < client.pttl(key) <= 50_000 for key in shard_keys(client))
    assert all(bloom.sharded(client, "seen", **OPTIONS).add_many(ITEMS))


def test_a_time_to_live_that_ends_before_the_shards_are_made(bloom: Any, client: redis.Redis) -> None:
    """The call raises after the second time, and not after 16 rounds of 400 shards."""
    before = client.info("stats")["total_commands_processed"]
    f = bloom.sharded(client, "seen", capacity=100, error_rate=0.01, ttl=0.001, shards=400)
    with pytest.raises(FilterLostError, match=r"expired while its 400 shards were made.*a longer ttl"):
        f.add("x")
    assert client.info("stats")["total_commands_processed"] - before < 10_000


def test_a_renamed_record(bloom: Any, client: redis.Redis) -> None:
    """The error says first that it can be renamed back: an acknowledgement makes empty shards."""
    bloom.sharded(client, "seen", **OPTIONS).add_many(ITEMS)
    client.rename("seen", "other")
    renamed = bloom.sharded(client, "other", **OPTIONS)
    with pytest.raises(FilterLostError, match="renamed or copied, rename it back; otherwise"):
        renamed.contains_many(ITEMS)
    client.rename("other", "seen")
    assert all(bloom.sharded(client, "seen", **OPTIONS).contains_many(ITEMS))
