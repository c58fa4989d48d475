"""A shard is used, created and deleted only if the record, read after the shard, agrees."""

from __future__ import annotations

import io
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis

from bloomredis import (
    BatchInterruptedError,
    ConnectionFailedError,
    FilterLostError,
    FilterNotFoundError,
    ShardedBloomFilter,
)
from bloomredis.drivers import running
from bloomredis.stored.shards import record as shard_record
from tests.support.clock import Clock
from tests.support.dying import Died, MortalClient
from tests.support.inside import inside
from tests.support.proxy import Proxy, after, once_executed, passed, proxied
from tests.support.racing import race_threads, winners
from tests.support.servers import Server
from tests.support.sharding import ITEMS, OPTIONS, shard_keys
from tests.support.sizes import sized
from tests.support.values import for_each

NEW = [f"new-{number}" for number in range(60)]


def lasting(client: redis.Redis) -> list[bytes]:
    """Return the keys that never expire."""
    keys: Any = client.keys()
    return [key for key in keys if client.ttl(key) == -1]


def flush(client: redis.Redis) -> None:
    client.flushall()


def clear(client: redis.Redis) -> None:
    ShardedBloomFilter(client, "seen", **OPTIONS).clear()


LOSSES: dict[str, Callable[[redis.Redis], None]] = {"everything": flush, "by clear()": clear}


@pytest.mark.parametrize("empty", LOSSES.values(), ids=LOSSES)
@sized("turns", make_test=3, make_test_all=8)
def test_objects_that_go_on_make_one_filter(
    any_server: Server, empty: Callable[[redis.Redis], None], turns: int
) -> None:
    """Of eight objects that knew the emptied filter, one is told that an item is new."""
    for turn in range(turns):
        any_server.client().flushall()
        filters = [
            ShardedBloomFilter(any_server.client(), "seen", on_lost="recreate", **OPTIONS) for _ in range(8)
        ]
        filters[0].add_many(ITEMS)
        for number, each in enumerate(filters):
            each.contains_many(ITEMS if number % 2 else ITEMS[:1])
        empty(any_server.client())
        orders = [random.Random(100 * turn + worker).sample(NEW, len(NEW)) for worker in range(8)]

        def work(f: ShardedBloomFilter, order: list[str]) -> list[bool]:
            told = {item: f.add(item) for item in order}
            return [told[item] for item in NEW]

        told = race_threads(lambda worker: work(filters[worker], orders[worker]), 8)  # noqa: B023 - at once
        assert winners(told, NEW) == {1: len(NEW)}
        assert all(ShardedBloomFilter(any_server.client(), "seen", **OPTIONS).contains_many(NEW))


@for_each("what", ["a shard", "all shards", "the record", "everything", "by clear()"])
def test_a_loss_in_the_midst_of_a_race(any_server: Server, what: str) -> None:
    """An item has one winner before the loss and one after it."""
    client = any_server.client()
    filters = [
        ShardedBloomFilter(any_server.client(), "seen", on_lost="recreate", **OPTIONS) for _ in range(6)
    ]
    filters[0].add_many(ITEMS)
    for each in filters:
        each.contains_many(ITEMS)
    wins: list[str] = []
    begun = threading.Barrier(7)

    def work(f: ShardedBloomFilter) -> None:
        begun.wait(60)
        wins.extend(item for item in NEW if f.add(item))

    threads = [threading.Thread(target=work, args=(each,)) for each in filters]
    for thread in threads:
        thread.start()
    begun.wait(60)
    keys = shard_keys(client)
    gone = {"a shard": keys[3:4], "all shards": keys, "the record": ["seen"]}
    if what in gone:
        client.delete(*gone[what])
    else:
        LOSSES[what](client)
    for thread in threads:
        thread.join(60)
    assert max(Counter(wins).values()) <= 2
    assert set(wins) == set(NEW)


def test_who_makes_a_filter_leaves_the_next_one(proxy: Proxy, server: Server) -> None:
    """A creator spares the shards of a filter that others made and cleared after it read the record."""
    f = ShardedBloomFilter(proxy.client(), "seen", **OPTIONS)
    other = ShardedBloomFilter(server.client(), "seen", **OPTIONS)

    def renew() -> None:
        other.clear()
        assert other.add("x")

    proxy.plan("reserve", after(renew, passed))
    assert not f.add("x")
    assert "x" in other


@pytest.mark.parametrize("call", ["clear", "delete"])
def test_a_slow_sweep_leaves_later_shards(proxy: Proxy, server: Server, call: str) -> None:
    """The deletion of orphans spares the shards of a filter that others have cleared and filled since."""
    ShardedBloomFilter(server.client(), "seen", **OPTIONS).add_many(ITEMS)
    other = ShardedBloomFilter(server.client(), "seen", on_lost="recreate", **OPTIONS)

    def renew() -> None:
        other.clear()
        assert all(other.add_many(ITEMS))

    proxy.plan("reserve" if call == "clear" else "describe", after(renew, passed))
    getattr(ShardedBloomFilter(proxy.client(), "seen", **OPTIONS), call)()
    assert all(other.contains_many(ITEMS))
    assert len(shard_keys(server.client())) == 16


def test_deleting_nothing_leaves_what_is_made_meanwhile(proxy: Proxy, server: Server) -> None:
    """If there is nothing to delete, a filter that others create before the deletion of orphans is spared."""
    other = ShardedBloomFilter(server.client(), "seen", **OPTIONS)
    proxy.plan("describe", after(lambda: other.add_many(ITEMS), passed))
    assert ShardedBloomFilter(proxy.client(), "seen", **OPTIONS).delete() is False
    assert all(other.contains_many(ITEMS))


@for_each("call", ["clear", "delete"])
@for_each("what", ["the record", "nothing"])
def test_what_a_lost_record_left_is_deleted(server: Server, call: str, what: str) -> None:
    """The shards of an evicted record are deleted by `clear()` and `delete()`."""
    client = server.client()
    f = ShardedBloomFilter(client, "seen", **OPTIONS)
    f.add_many(ITEMS)
    if what == "the record":
        client.delete("seen")
    getattr(ShardedBloomFilter(server.client(), "seen", **OPTIONS), call)()
    assert {client.strlen(key) for key in shard_keys(client)} == ({64} if call == "clear" else set())


def deaths(server: Server, act: Callable[[Any], object], prepare: Callable[[], object]) -> Iterator[None]:
    """Let a process die before each of its round trips, in turn."""
    for left in range(1, 100):
        server.client().flushall()
        prepare()
        try:
            act(MortalClient(server.client(), left))
        except Died:
            yield
        else:
            assert left > 3
            return
    pytest.fail("it never ends")


def test_a_process_that_dies_in_clear(server: Server) -> None:
    """The next client to open the filter finishes the clear, and objects that have it open detect it."""
    in_use: list[ShardedBloomFilter] = []

    def prepare() -> None:
        in_use[:] = [ShardedBloomFilter(server.client(), "seen", **OPTIONS)]
        in_use[0].add_many(ITEMS)

    for _ in deaths(server, lambda client: ShardedBloomFilter(client, "seen", **OPTIONS).clear(), prepare):
        opened = ShardedBloomFilter(server.client(), "seen", **OPTIONS)
        cleared = opened.add("x")
        if not any(opened.contains_many(ITEMS)):
            assert cleared
            assert len(shard_keys(server.client())) <= 16
            with pytest.raises((FilterLostError, BatchInterruptedError)):
                in_use[0].add_many(["x"])
            opened.clear()
        assert opened.delete()
        assert lasting(server.client()) == []


def test_a_process_that_dies_in_delete(server: Server) -> None:
    """The filter is complete, or the next client finds none and deletes the rest."""

    def prepare() -> None:
        ShardedBloomFilter(server.client(), "seen", **OPTIONS).add_many(ITEMS)

    for _ in deaths(server, lambda client: ShardedBloomFilter(client, "seen", **OPTIONS).delete(), prepare):
        try:
            left = ShardedBloomFilter.open(server.client(), "seen")
        except FilterNotFoundError:
            assert lasting(server.client()) == []
        else:
            assert all(left.contains_many(ITEMS))


@for_each("ttl", [None, 100])
def test_a_process_that_dies_while_it_makes_a_filter(server: Server, ttl: int | None) -> None:
    """A delete leaves no key behind, and nobody gets an error for a loss."""
    options = OPTIONS | {"ttl": ttl}
    for _ in deaths(server, lambda client: ShardedBloomFilter(client, "seen", **options).add("x"), lambda: 0):
        f = ShardedBloomFilter(server.client(), "seen", **options)
        f.add("x")
        assert "x" in f
        assert f.delete()
        assert lasting(server.client()) == []


def test_a_process_that_dies_while_it_makes_a_filter_that_is_deleted(server: Server) -> None:
    """Whenever it dies, the keys that it created expire within a minute."""
    for verb in ("reserve", "settle_part", "settle_record"):
        with proxied(server.socket) as proxy:
            server.client().flushall()
            f = ShardedBloomFilter(proxy.client(), "seen", **OPTIONS)

            def die() -> None:
                ShardedBloomFilter(server.client(), "seen", **OPTIONS).delete()
                proxy.always("", lambda exchange: False)
                for each in ("reserve", "reserve_record", "settle_part", "settle_record", "delete"):
                    proxy.always(each, lambda exchange: False)

            proxy.plan(verb, after(die, passed))
            with pytest.raises(ConnectionFailedError):
                f.add("x")
            assert lasting(server.client()) == []


@pytest.mark.parametrize("loss", ["deleted", "cleared by a process that died"])
def test_the_loss_of_the_record_alone(bloom: Any, any_client: redis.Redis, loss: str) -> None:
    """Objects with open shards continue; whoever recreates the filter replaces the shards first."""
    f = bloom.sharded(any_client, "seen", **OPTIONS)
    f.add_many(ITEMS)
    calls: list[Callable[[], Any]] = [
        lambda: f.add("item-1"),
        lambda: f.contains("item-1"),
        lambda: f.add_many(["a", "b"]),
        lambda: f.contains_many(["a", "b"]),
        lambda: f.claim("item-2"),
        lambda: f.update(["a"]),
    ]
    for call in calls:
        if loss == "deleted":
            any_client.delete("seen")
        else:
            mortal: Any = MortalClient(any_client, 2)
            with pytest.raises(Died):
                ShardedBloomFilter(mortal, "seen", **OPTIONS).clear()
        assert f.add("item-1") is False, "it is in the shard that is still there"
        assert ShardedBloomFilter(any_client, "seen", **OPTIONS, on_lost="recreate").add("other")
        with pytest.raises((FilterLostError, BatchInterruptedError)):
            call()
        f.acknowledge()
        f.add_many(ITEMS)


def test_a_call_is_one_round_trip(any_client: redis.Redis, clock: Clock) -> None:
    """No call has a second round trip for a check, however much time has passed."""
    client: Any = Counting(any_client)
    f = ShardedBloomFilter(client, "seen", **OPTIONS)
    for call in (lambda: f.add("x"), lambda: f.contains("x"), lambda: f.add_many(ITEMS[:100])):
        call()
        clock.advance(60)
        client.trips = 0
        call()
        assert client.trips == 1


@for_each("shards", [16, 64])
def test_opening_is_one_round_trip(any_client: redis.Redis, shards: int) -> None:
    """Opening takes one round trip, however many shards; checking all of them takes one more."""
    options = OPTIONS | {"shards": shards}
    made = ShardedBloomFilter(any_client, f"seen-{shards}", **options)
    made.create()
    assert "item-1" not in made
    client: Any = Counting(any_client)
    f = ShardedBloomFilter(client, f"seen-{shards}", **options)
    assert "item-1" not in f
    assert client.trips == 2, "one to open it, one for the item"
    f.create()
    client.trips = 0
    f.create()
    assert client.trips == 2


class Counting(MortalClient):
    """A client that counts its round trips."""

    trips = 0

    def __init__(self, client: redis.Redis) -> None:
        super().__init__(client, -1)

    def _live(self) -> None:
        self.trips += 1


def test_a_record_that_was_evicted_stops_nobody(any_client: redis.Redis) -> None:
    """Calls of an object that has opened the filter need no record: its shards miss nothing."""
    f = ShardedBloomFilter(any_client, "seen", **OPTIONS)
    f.add_many(ITEMS)
    any_client.delete("seen")
    assert all(f.add(item) for item in NEW)
    assert f.contains_many([*ITEMS, *NEW]) == [True] * len([*ITEMS, *NEW])


@for_each("verb", ["settle_part", "settle_record"])
def test_expire_reaches_a_shard_that_is_being_made(proxy: Proxy, server: Server, verb: str) -> None:
    """If another client completes and expires the filter meanwhile, the recreated shard expires too."""
    client = server.client()
    client.flushall()
    ShardedBloomFilter(client, "seen", **OPTIONS).add_many(ITEMS)
    client.delete(shard_keys(client)[3])
    other = ShardedBloomFilter(server.client(), "seen", **OPTIONS, on_lost="recreate")
    f = ShardedBloomFilter(proxy.client(), "seen", **OPTIONS, on_lost="recreate")
    proxy.plan(verb, after(lambda: other.expire(100), passed))
    f.create()
    assert lasting(client) == []


def test_a_delete_beside_a_client_that_makes_the_filter(proxy: Proxy, server: Server) -> None:
    """Shards that the other client settles before they are deleted do not stay, without their record."""
    client = server.client()
    for trips in range(20):
        client.flushall()
        with suppress(Died):
            mortal: Any = MortalClient(client, trips)
            ShardedBloomFilter(mortal, "seen", **OPTIONS).create()
        if any(client.ttl(key) > 0 for key in shard_keys(client)):
            break
    other: Any = ShardedBloomFilter(client, "seen", **OPTIONS)
    maker = inside(other).stored
    found = running.drive(client, maker.look())
    shards = maker.shards_of(found.record)

    def settle() -> None:
        for shard in shards:
            seen = running.drive(client, shard.seen())
            assert seen.is_being_made
            assert running.drive(client, shard.settle(seen, 0))

    proxy.plan("delete", after(settle, passed))
    assert ShardedBloomFilter(proxy.client(), "seen", **OPTIONS).delete()
    assert not client.keys("*seen*")
    assert ShardedBloomFilter(client, "seen", **OPTIONS).add("x")


def test_expire_meets_a_lost_shard(any_client: redis.Redis) -> None:
    """A lost shard is recreated, and expires with the others."""
    f = ShardedBloomFilter(any_client, "seen", **OPTIONS, on_lost="recreate")
    f.add_many(ITEMS)
    any_client.delete(shard_keys(any_client)[3])
    f.expire(100)
    assert lasting(any_client) == []
    assert len(shard_keys(any_client)) == 16


def test_a_lost_shard_is_told_of_though_others_have_made_it_anew(any_client: redis.Redis) -> None:
    """The call that finds the recreated shard raises, and so does each later one until acknowledge()."""
    f = ShardedBloomFilter(any_client, "seen", **OPTIONS)
    f.add_many(ITEMS)
    any_client.delete(*shard_keys(any_client))
    ShardedBloomFilter(any_client, "seen", on_lost="recreate", **OPTIONS).add_many(ITEMS)
    for _ in range(2):
        with pytest.raises(FilterLostError):
            f.add("item-1")
    f.acknowledge()
    assert not f.add("item-1")


def test_a_filter_that_is_cleared_while_it_is_made(
    proxy: Proxy, server: Server, losses: Callable[[], list[str]]
) -> None:
    """If the filter is cleared during its creation, the record keeps the shards that another call opened."""
    f = ShardedBloomFilter(proxy.client(), "seen", on_lost="recreate", **OPTIONS)
    far = next(item for item in ITEMS if _number(item) != _number("x"))

    def renew() -> None:
        ShardedBloomFilter(server.client(), "seen", **OPTIONS).clear()
        assert f.add(far)

    proxy.plan("settle_part", once_executed(renew, passed))
    assert f.add("x")
    assert not losses()
    assert ShardedBloomFilter(server.client(), "seen", **OPTIONS).contains_many(["x", far]) == [True, True]


def _number(item: str) -> int:
    return shard_record.plan_record(10_000, 1e-6).number(item.encode())


@for_each("verb", ["save", "copy"])
def test_a_filter_that_is_cleared_between_record_and_shards_is_not_saved(
    any_proxy: Proxy, any_client: redis.Redis, bloom: Any, verb: str
) -> None:
    """The file would have the record of one filter and the shards of another, and could not be restored."""
    client = any_proxy.client()
    f = bloom(client, "seen", kind="ShardedBloomFilter", on_lost="recreate", **OPTIONS)
    f.add_many(ITEMS)
    other = ShardedBloomFilter(any_client, "seen", **OPTIONS)

    def replace() -> None:
        other.clear()
        other.add_many(NEW)

    any_proxy.plan("reserve_record", once_executed(replace, passed))
    file = io.BytesIO()
    with pytest.raises(FilterLostError, match="begin again"):
        f.save(file) if verb == "save" else bloom.copy(f, client, "copy")
    assert file.getvalue() == b""
    assert not any_client.exists("copy")
    f.save(file)
    file.seek(0)
    restored = bloom.restore(client, "restored", file, "ShardedBloomFilter")
    assert restored.contains_many(NEW) == [True] * len(NEW)
