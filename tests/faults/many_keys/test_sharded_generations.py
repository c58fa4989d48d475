"""A shard is used, made and deleted only as the record says after the shard was seen."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from bloomredis import (
    BatchInterruptedError,
    ConnectionFailedError,
    FilterLostError,
    FilterNotFoundError,
    OutcomeUnknownError,
    ShardedBloomFilter,
)
from bloomredis.stored.shards import record as shard_record
from tests.support.background import outcome, started
from tests.support.clock import Clock
from tests.support.dying import Died, MortalClient
from tests.support.proxy import Fate, Held, Proxy, after, dropped, lost, once_executed, passed, proxied
from tests.support.racing import race_threads, winners
from tests.support.servers import Server, binaries, running
from tests.support.sharding import ITEMS, OPTIONS, shard_keys
from tests.support.sizes import sized
from tests.support.values import for_each

pytestmark = pytest.mark.faults

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
    """Of eight objects that knew what was emptied one is told that an item is new."""
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

        told = race_threads(lambda worker: work(filters[worker], orders[worker]), 8)  # noqa: B023 - it ends here
        assert winners(told, NEW) == {1: len(NEW)}
        assert all(ShardedBloomFilter(any_server.client(), "seen", **OPTIONS).contains_many(NEW))


@for_each("what", ["a shard", "all shards", "the record", "everything", "by clear()"])
def test_a_loss_in_the_midst_of_a_race(any_server: Server, what: str) -> None:
    """An item has one winner before it and one after it."""
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


def test_who_makes_a_shard_of_a_cleared_filter_leaves_the_new_one(proxy: Proxy, server: Server) -> None:
    """It was cleared between the look at the record and the making of the shard."""
    f = ShardedBloomFilter(proxy.client(), "seen", **OPTIONS)
    f.reserve()
    other = ShardedBloomFilter(server.client(), "seen", **OPTIONS)

    def renew() -> None:
        other.clear()
        assert other.add("x")

    proxy.plan("reserve", after(renew, passed))
    with pytest.raises(FilterLostError, match="cleared"):
        f.add("x")
    assert "x" in other
    f.reserve()
    assert not f.add("x")


@pytest.mark.parametrize("call", ["clear", "delete"])
def test_a_slow_sweep_leaves_later_shards(proxy: Proxy, server: Server, call: str) -> None:
    """Between the new record and the sweep others cleared the filter and filled it."""
    ShardedBloomFilter(server.client(), "seen", **OPTIONS).add_many(ITEMS)
    other = ShardedBloomFilter(server.client(), "seen", on_lost="recreate", **OPTIONS)

    def renew() -> None:
        other.clear()
        assert all(other.add_many(ITEMS))

    proxy.plan("describe", after(renew, passed))
    getattr(ShardedBloomFilter(proxy.client(), "seen", **OPTIONS), call)()
    assert all(other.contains_many(ITEMS))
    assert len(shard_keys(server.client())) == 16


def test_deleting_nothing_leaves_what_is_made_meanwhile(proxy: Proxy, server: Server) -> None:
    """There was no filter; another client makes one before the sweep for shards that were left."""
    other = ShardedBloomFilter(server.client(), "seen", **OPTIONS)
    proxy.plan("describe", after(lambda: other.add_many(ITEMS), passed))
    assert ShardedBloomFilter(proxy.client(), "seen", **OPTIONS).delete() is False
    assert all(other.contains_many(ITEMS))


@for_each("call", ["clear", "delete"])
@for_each("what", ["the record", "nothing"])
def test_what_a_lost_record_left_is_deleted(server: Server, call: str, what: str) -> None:
    """The shards of a record that was evicted are found by `clear()` and `delete()`."""
    client = server.client()
    f = ShardedBloomFilter(client, "seen", **OPTIONS)
    f.add_many(ITEMS)
    if what == "the record":
        client.delete("seen")
    getattr(ShardedBloomFilter(server.client(), "seen", **OPTIONS), call)()
    assert shard_keys(client) == []


def deaths(server: Server, act: Callable[[Any], object], prepare: Callable[[], object]) -> Iterator[None]:
    """Let a process die before each round trip of what it does, in turn."""
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


def test_a_process_that_dies_in_clear(server: Server, clock: Clock) -> None:
    """Who has the filter open notices within a second, and who opens it does the rest."""
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
            clock.advance(1)
            with pytest.raises((FilterLostError, BatchInterruptedError)):
                in_use[0].add_many(["x"])
            opened.clear()
        assert opened.delete()
        assert lasting(server.client()) == []


def test_a_process_that_dies_in_delete(server: Server) -> None:
    """The filter is whole, or whoever comes next finds none and deletes the rest."""

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
def test_a_process_that_dies_while_it_makes_a_shard(server: Server, ttl: int | None) -> None:
    """Nothing is left behind a delete, and nobody is told of a loss."""
    options = OPTIONS | {"ttl": ttl}
    for _ in deaths(server, lambda client: ShardedBloomFilter(client, "seen", **options).add("x"), lambda: 0):
        f = ShardedBloomFilter(server.client(), "seen", **options)
        f.add("x")
        assert "x" in f
        assert f.delete()
        assert lasting(server.client()) == []


def test_a_process_that_dies_while_it_makes_a_shard_of_a_deleted_filter(server: Server) -> None:
    """Whenever the filter is deleted, what it made is gone with its minute."""
    for verb in ("reserve", "record_shard", "expire"):
        with proxied(server.socket) as proxy:
            server.client().flushall()
            f = ShardedBloomFilter(proxy.client(), "seen", **OPTIONS)
            f.reserve()

            def die() -> None:
                ShardedBloomFilter(server.client(), "seen", **OPTIONS).delete()
                proxy.always("", lambda exchange: False)
                for each in ("reserve", "record_shard", "expire", "delete"):
                    proxy.always(each, lambda exchange: False)

            proxy.plan(verb, after(die, passed))
            with pytest.raises(ConnectionFailedError):
                f.add("x")
            assert lasting(server.client()) == []


@pytest.mark.parametrize("loss", ["deleted", "cleared by a process that died"])
def test_the_loss_of_the_record_is_noticed_within_a_second(
    bloom: Any, any_client: redis.Redis, clock: Clock, loss: str
) -> None:
    """By an object that has its shards open, before it hands out another answer."""
    f = bloom.sharded(any_client, "seen", **OPTIONS)
    f.add_many(ITEMS)
    calls: list[Callable[[], Any]] = [
        lambda: f.add("item-1"),
        lambda: f.contains("item-1"),
        lambda: f.add_many(["a", "b"]),
        lambda: f.contains_many(["a", "b"]),
        lambda: f.claim("item-2"),
        lambda: f.load(["a"]),
    ]
    for call in calls:
        if loss == "deleted":
            any_client.delete("seen")
        else:
            mortal: Any = MortalClient(any_client, 2)
            with pytest.raises(Died):
                ShardedBloomFilter(mortal, "seen", **OPTIONS).clear()
        assert f.add("item-1") is False, "it is in the shard that was there a moment ago"
        clock.advance(1)
        with pytest.raises(FilterLostError):
            call()
        f.reserve()
        f.add_many(ITEMS)


def test_a_look_at_the_record_takes_no_round_trip(any_client: redis.Redis, clock: Clock) -> None:
    """It is sent beside the call; a call within the same second sends nothing else."""
    client: Any = Counting(any_client)
    f = ShardedBloomFilter(client, "seen", **OPTIONS)
    f.add_many(ITEMS)
    f.contains_many(ITEMS)
    for call in (lambda: f.add("x"), lambda: f.contains("x"), lambda: f.add_many(ITEMS[:100])):
        for advance in (1, 0, 0.5, 0.6):
            clock.advance(advance)
            client.trips = 0
            call()
            assert client.trips == 1


class Counting(MortalClient):
    """A client that counts its round trips."""

    trips = 0

    def __init__(self, client: redis.Redis) -> None:
        super().__init__(client, -1)

    def _live(self) -> None:
        self.trips += 1


def test_a_record_that_cannot_be_read_stops_nobody(any_server: Server, clock: Clock) -> None:
    """The shards of another server go on; the record is asked once a second, not at each call."""
    with running(binaries()["valkey-9"]) as second:
        down: Any = Down(any_server.client())
        f = ShardedBloomFilter([down, second.client()], "seen", **OPTIONS)
        f.add_many(ITEMS)
        there = [item for item in NEW if shard_record.plan(10_000, 1e-6).number(item.encode()) % 2]
        down.down, clock_at = True, down.asked
        clock.advance(1)
        assert all(f.add(item) for item in there)
        assert down.asked == clock_at + 1


class Down(MortalClient):
    """A client whose server cannot be reached while `down` is set."""

    down = False
    asked = 0

    def __init__(self, client: redis.Redis) -> None:
        super().__init__(client, -1)

    def _live(self) -> None:
        self.asked += 1
        if self.down:
            raise redis.ConnectionError("Connection refused.")


def test_expire_reaches_a_shard_that_is_being_made(proxy: Proxy, server: Server) -> None:
    """It was made between the look at the table and the record's expiry, or is recorded after that."""
    client = server.client()
    for verb in ("expire", "record_shard"):
        client.flushall()
        other = ShardedBloomFilter(server.client(), "seen", **OPTIONS)
        other.add("a")
        f = ShardedBloomFilter(proxy.client(), "seen", **OPTIONS)
        if verb == "expire":
            f.add("a")
            proxy.plan("expire", after(lambda: other.add_many(NEW), passed))  # noqa: B023
            f.expire(100)
        else:
            f.reserve()
            proxy.plan("record_shard", passed, after(lambda: other.expire(100), passed))  # noqa: B023
            f.add_many(NEW)
        assert lasting(client) == []


def test_a_record_that_fell_back_hides_no_item(server: Server) -> None:
    """The record's server restored a state from before a shard was recorded; the shard's own did not."""
    with running(binaries()["valkey-9"]) as second:
        clients = [server.client(), second.client()]
        f = ShardedBloomFilter(clients, "seen", **OPTIONS)
        f.reserve()
        before: Any = clients[0].get("seen")
        f.add_many(ITEMS)
        clients[0].set("seen", before)
        plan = shard_record.plan(10_000, 1e-6)
        there = [item for item in ITEMS if plan.number(item.encode()) % 2]
        opened = ShardedBloomFilter(clients, "seen", **OPTIONS)
        assert all(opened.contains_many(there))
        assert all(map(opened.contains, there))
        assert not any(opened.add_many(there))
        assert not any(f.contains_many(NEW))


@for_each("at", [1, 2])
def test_a_slow_delete_leaves_the_copies_of_another_filter(any_server: Server, at: int) -> None:
    """Others ended it and made the filter anew before it looked at the copy, or when it had."""
    with running(binaries()["valkey-9"]) as second, proxied(second.socket) as proxy:
        other = ShardedBloomFilter(
            [any_server.client(), second.client()], "seen", on_lost="recreate", **OPTIONS
        )
        other.add_many(ITEMS)

        def renew() -> None:
            other.delete()
            other.add_many(ITEMS)

        clients = [any_server.client(), proxy.client()]
        proxy.plan(*[("reserve_record", after(renew, passed)), ("delete", after(renew, passed))][at - 1])
        ShardedBloomFilter(clients, "seen", **OPTIONS).delete()
        opened = ShardedBloomFilter.open([any_server.client(), second.client()], "seen")
        assert all(opened.contains_many(ITEMS))


@pytest.mark.parametrize("fate", [dropped, lost])
def test_a_lost_shard_is_told_of_after_an_error(any_proxy: Proxy, any_server: Server, fate: Fate) -> None:
    """Others have made it anew, and the record could not be read by the call that met the new one."""
    f = ShardedBloomFilter(any_proxy.client(), "seen", **OPTIONS)
    f.add_many(ITEMS)
    client = any_server.client()
    client.delete(*shard_keys(client))
    ShardedBloomFilter(client, "seen", on_lost="recreate", **OPTIONS).add_many(ITEMS)
    any_proxy.plan("record_shard", fate)
    with pytest.raises(OutcomeUnknownError):
        f.add("item-1")
    for _ in range(2):
        with pytest.raises(FilterLostError):
            f.add("item-1")


def test_a_lost_shard_is_told_of_before_another_thread_goes_on(any_proxy: Proxy, any_server: Server) -> None:
    """The thread that met the new one waits for the record; another call of the object waits for its own."""
    f = ShardedBloomFilter(any_proxy.client(), "seen", **OPTIONS)
    f.add_many(ITEMS)
    client = any_server.client()
    client.delete(*shard_keys(client))
    ShardedBloomFilter(client, "seen", on_lost="recreate", **OPTIONS).add_many(ITEMS)
    held = Held()
    any_proxy.plan("record_shard", held)
    waiting = started(lambda: f.add("item-1"))
    held.wait()
    with pytest.raises(FilterLostError):
        f.add("item-1")
    held.go.set()
    assert isinstance(outcome(waiting), FilterLostError)


def test_a_shard_of_a_cleared_filter_is_not_recorded_in_the_next_one(proxy: Proxy, server: Server) -> None:
    """Another call of the object has opened the next one between the last look and the recording."""
    ShardedBloomFilter(server.client(), "loads-the-scripts", **OPTIONS).add("x")
    told: list[FilterLostError] = []
    f = ShardedBloomFilter(proxy.client(), "seen", on_lost=told.append, **OPTIONS)
    f.reserve()
    far = next(item for item in ITEMS if _number(item) != _number("x"))

    def renew() -> None:
        ShardedBloomFilter(server.client(), "seen", **OPTIONS).clear()
        f.add(far)

    proxy.plan("expire", once_executed(renew, passed))
    assert f.add("x")
    assert len(told) == 1
    assert ShardedBloomFilter(server.client(), "seen", **OPTIONS).contains_many(["x", far]) == [True, True]


def _number(item: str) -> int:
    return shard_record.plan(10_000, 1e-6).number(item.encode())
