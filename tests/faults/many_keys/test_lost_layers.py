"""Filters of several layers that lose keys: who gets the error, what is recreated, and what remains."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import redis
import redis.asyncio

import bloomredis.asyncio
from bloomredis import (
    BatchInterruptedError,
    ConnectionFailedError,
    FilterLostError,
    OutcomeUnknownError,
    RotatingBloomFilter,
    ScalingBloomFilter,
)
from tests.support.losing import LosingClient
from tests.support.proxy import LateCopy, Proxy, after, lost, passed
from tests.support.racing import race_threads, winners
from tests.support.servers import Server
from tests.support.sizes import sized
from tests.support.values import for_each
from tests.support.waiting import wait_until

SCALING, ROTATING = "ScalingBloomFilter", "RotatingBloomFilter"
SIZE: dict[str, Any] = {"capacity": 100, "error_rate": 1e-6}
CLASSES: dict[str, Any] = {SCALING: ScalingBloomFilter, ROTATING: RotatingBloomFilter}
LONG: dict[str, dict[str, Any]] = {SCALING: SIZE, ROTATING: SIZE | {"window": 3600, "slices": 2}}
SHORT: dict[str, Any] = SIZE | {"window": 1.5, "slices": 2}
ITEMS = [f"item-{number}" for number in range(350)]
RECORD, FIRST = "seen", "{seen}:layer:0"


def lasting(client: redis.Redis) -> list[bytes]:
    """Return the keys that never expire."""
    return [key for key in client.scan_iter() if client.pttl(key) < 0]


def end(client: redis.Redis) -> None:
    """Wait until a filter has ended and its keys are gone."""
    wait_until("every key expires", lambda: not client.exists(RECORD, FIRST))


@for_each("kind", LONG)
def test_who_meets_damage_second_takes_what_the_first_made(client: redis.Redis, kind: str) -> None:
    """Two objects find the same lost layer: one empties the filter, and no item has two winners."""
    told: list[bool] = []

    class Meanwhile(logging.Handler):
        """Lets the first object go on while the second one warns of its loss."""

        def emit(self, record: logging.LogRecord) -> None:
            log.removeHandler(self)
            told.extend([first.add("x"), first.add("x")])

    first, second = (CLASSES[kind](client, "seen", on_lost="recreate", **LONG[kind]) for _ in range(2))
    first.add_many(ITEMS)
    assert second.contains("item-1")
    client.delete(FIRST)
    log = logging.getLogger("bloomredis")
    log.addHandler(Meanwhile())
    assert [second.add("x"), *told] == [False, True, False]
    assert first.contains("x")


@for_each("kind", LONG)
def test_damage_is_told_once(
    client: redis.Redis, bloom: Any, kind: str, losses: Callable[[], list[str]]
) -> None:
    """The batch that finds the damage warns once, and continues in an empty filter."""
    before = len(losses())
    f = bloom(client, "seen", kind=kind, on_lost="recreate", **LONG[kind])
    f.add_many(ITEMS)
    client.delete(FIRST)
    assert f.add_many(ITEMS[:90]) == [True] * 90
    assert f.info().count == 90
    assert len(losses()) == before + 1


@for_each("kind", LONG)
@for_each("objects", [1, 6])
def test_tasks_that_meet_damage(any_client: redis.Redis, any_server: Server, kind: str, objects: int) -> None:
    """After damage, each item of many tasks has one winner."""
    batch = [f"new-{number}" for number in range(40)]
    cls: Any = getattr(bloomredis.asyncio, kind)

    async def main() -> None:
        async with redis.asyncio.Redis(unix_socket_path=any_server.socket) as client:
            filters = [cls(client, "seen", on_lost="recreate", **LONG[kind]) for _ in range(objects)]
            await filters[0].add_many(ITEMS)
            await asyncio.gather(*(f.contains("item-1") for f in filters))
            any_client.delete(FIRST)
            told = await asyncio.gather(
                *(asyncio.gather(*map(filters[worker % objects].add, batch)) for worker in range(6))
            )
        assert winners(told, batch) == {1: 40}

    asyncio.run(main())


@for_each("kind", LONG)
@for_each("objects", [1, 6])
@sized("rounds", make_test=2, make_test_all=5)
def test_threads_that_meet_damage(any_client: redis.Redis, kind: str, objects: int, rounds: int) -> None:
    """After damage, each item has one winner, whether threads share an object or not."""
    client, batch = any_client, [f"new-{number}" for number in range(40)]
    for _ in range(rounds):
        client.flushall()
        filters = [CLASSES[kind](client, "seen", on_lost="recreate", **LONG[kind]) for _ in range(objects)]
        filters[0].add_many(ITEMS)
        for f in filters:
            f.contains("item-1")
        client.delete(FIRST)
        told = race_threads(lambda w: [filters[w % objects].add(item) for item in batch], 6)  # noqa: B023
        assert winners(told, batch) == {1: 40}


@for_each("kind", LONG)
def test_damage_that_is_raised_changes_nothing(client: redis.Redis, bloom: Any, kind: str) -> None:
    """The filter stays damaged, and `acknowledge()` raises too; clear() is the way out."""
    f = bloom(client, "seen", kind=kind, **LONG[kind])
    f.add_many(ITEMS)
    record = client.get(RECORD)
    client.delete(FIRST)
    for _ in range(2):
        with pytest.raises(FilterLostError, match=r"call clear\(\)"):
            f.add("x")
        with pytest.raises(FilterLostError, match=r"call clear\(\)"):
            f.acknowledge()
    assert client.get(RECORD) == record


@pytest.mark.parametrize("lose", [lambda c: c.flushall(), lambda c: c.delete(RECORD)])
def test_an_idle_worker_hides_no_loss(
    any_client: redis.Redis, bloom: Any, lose: Callable[[Any], object]
) -> None:
    """A worker whose own items have expired recreates the filter; one with live items gets the error."""
    client = any_client
    idle, busy = (bloom(client, "seen", kind=ROTATING, **SHORT) for _ in range(2))
    assert idle.add("a")
    wait_until("the first layer is over", lambda: busy.add("b") and not client.exists(FIRST))
    assert busy.add("x") or busy.contains("x")
    lose(client)
    idle.add("something else")
    with pytest.raises(FilterLostError):
        busy.add("x")
    busy.acknowledge()
    assert busy.add("x")


def test_an_end_is_no_loss(client: redis.Redis, bloom: Any) -> None:
    """A worker that starts after a quiet time recreates the filter, and earlier workers continue in it."""
    old = [bloom(client, "seen", kind=ROTATING, **SHORT) for _ in range(2)]
    assert [f.add(item) for f, item in zip(old, "ab", strict=True)] == [True, True]
    end(client)
    assert bloom(client, "seen", kind=ROTATING, **SHORT).add("b")
    assert old[0].add("c")
    assert old[1].contains_many(["b", "c", "d"]) == [True, True, False]


def test_reading_what_has_ended_makes_nothing(client: redis.Redis, bloom: Any) -> None:
    """The filter is empty; the next item starts it with another generation."""
    f = bloom(client, "seen", kind=ROTATING, **SHORT)
    f.add("a")
    before = f.info().generation
    end(client)
    assert f.contains_many(["a", "b"]) == [False, False]
    assert not client.exists(RECORD)
    assert f.add("a")
    assert f.info().generation != before


def test_a_claim_outlasts_the_end(client: redis.Redis, bloom: Any) -> None:
    """Work longer than the window is committed, if its lease lasts."""
    f = bloom(client, "seen", kind=ROTATING, **SHORT)
    short, long = f.claim("a", lease=10), f.claim("b", lease=600)
    bloom.wait(short.extend(600))
    wait_until("the layer is over", lambda: not client.exists(FIRST))
    assert 500 < client.ttl(RECORD) <= 600
    for claim in (short, long):
        bloom.wait(claim.commit())
    assert f.contains_many(["a", "b"]) == [True, True]


def test_a_claim_after_the_end(client: redis.Redis, bloom: Any) -> None:
    """The claim's commit goes into the filter that it finds."""
    f = bloom(client, "seen", kind=ROTATING, **SHORT)
    f.add("a")
    end(client)
    claim = f.claim("a", lease=60)
    assert claim.state == "claimed"
    bloom.wait(claim.commit())
    assert f.contains("a")


def test_a_late_copy_revives_nothing(proxy: Proxy, client_of_proxy: redis.Redis) -> None:
    """A late copy of the call that created a lost filter creates what is seen as another filter."""
    late = LateCopy()
    proxy.plan("add_layer", late)
    f = ScalingBloomFilter(proxy.client(retries=1), "seen", **SIZE)
    assert f.add("x")
    client_of_proxy.flushall()
    late.arrive()
    assert client_of_proxy.exists(RECORD)
    with pytest.raises(FilterLostError):
        f.add("x")


def test_a_late_growth_revives_nothing(proxy: Proxy, client_of_proxy: redis.Redis) -> None:
    """A late call that began a layer creates nothing if the record is gone."""
    late = LateCopy()
    f = ScalingBloomFilter(proxy.client(retries=1), "seen", **SIZE)
    f.add_many(ITEMS[:100])
    proxy.plan("add_layer", late)
    assert f.add("x")
    client_of_proxy.flushall()
    late.arrive()
    assert client_of_proxy.dbsize() == 0
    with pytest.raises(FilterLostError):
        f.add("x")


@for_each("kind", LONG)
def test_an_older_copy_is_a_loss(client: redis.Redis, bloom: Any, kind: str) -> None:
    """A record with fewer layers than known has gone back, which records never do."""
    f = bloom(client, "seen", kind=kind, **LONG[kind])
    f.add_many(ITEMS[:90])
    copy = {key: client.dump(key) for key in (RECORD, FIRST)}
    f.add_many(ITEMS)
    for key, data in copy.items():
        client.restore(key, 0, data or b"", replace=True)
    with pytest.raises(FilterLostError):
        f.add("x")


@pytest.fixture
def client_of_proxy(server: Server) -> Any:
    """A client of the server behind the proxy."""
    with server.client() as made:
        yield made


def full(proxy: Proxy, bloom: Any, **options: Any) -> Any:
    """Return a filter whose next new item begins a layer."""
    f = bloom(proxy.client(), "seen", kind=SCALING, **SIZE | options)
    f.add_many(ITEMS[:100])
    return f


LOSSES: dict[str, Callable[[redis.Redis], object]] = {
    "all": lambda c: c.flushall(),
    "the record": lambda c: c.delete(RECORD),
    "the newest layer": lambda c: c.delete(FIRST),
    "overwritten": lambda c: c.set(RECORD, "x"),
    "another type": lambda c: (c.delete(RECORD), c.rpush(RECORD, "x")),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_while_it_grows(proxy: Proxy, client_of_proxy: redis.Redis, bloom: Any, loss: str) -> None:
    """A loss between the call that found no room and the one that makes room is a lost filter."""
    f = full(proxy, bloom)
    proxy.plan("add_layer", after(lambda: LOSSES[loss](client_of_proxy), passed))
    for _ in range(2):
        with pytest.raises(FilterLostError):
            f.add("x")


@pytest.mark.parametrize("loss", list(LOSSES)[:3])
def test_a_loss_while_it_grows_is_told_once(
    proxy: Proxy, client_of_proxy: redis.Redis, bloom: Any, loss: str, losses: Callable[[], list[str]]
) -> None:
    """One warning, and the item goes into the recreated filter."""
    f = full(proxy, bloom, on_lost="recreate")
    proxy.plan("add_layer", after(lambda: LOSSES[loss](client_of_proxy), passed))
    assert [f.add("x"), f.add("x"), f.contains("item-1")] == [True, False, False]
    assert len(losses()) == 1


@pytest.mark.parametrize("loss", list(LOSSES)[:3])
def test_a_loss_while_it_is_emptied(
    proxy: Proxy, client_of_proxy: redis.Redis, bloom: Any, loss: str
) -> None:
    """The filter is empty afterwards, with one layer."""
    f = full(proxy, bloom)
    f.add_many(ITEMS)
    proxy.plan("add_layer", after(lambda: LOSSES[loss](client_of_proxy), passed))
    f.clear()
    assert not f.contains("item-1")
    assert sorted(lasting(client_of_proxy)) == [b"seen", FIRST.encode()]


MOVES: dict[str, Callable[[redis.Redis], object]] = {
    "the record is renamed": lambda c: c.rename(RECORD, "other"),
    "a layer has another type": lambda c: (c.delete(FIRST), c.rpush(FIRST, "x")),
    "a layer is garbage": lambda c: c.set(FIRST, b"x" * 500),
    "a layer is another's": lambda c: c.rename("{seen}:layer:1", FIRST),
}


@for_each("move", MOVES)
@for_each("call", [lambda f: f.add("x"), lambda f: f.contains("item-1")])
def test_keys_that_are_not_its_own(
    client: redis.Redis, bloom: Any, move: str, call: Callable[[Any], Any]
) -> None:
    """A key under a layer's name is refused unless its content belongs to the filter."""
    f = bloom(client, "seen", kind=SCALING, **SIZE)
    f.add_many(ITEMS)
    MOVES[move](client)
    with pytest.raises(FilterLostError):
        call(f)


def test_a_copied_record_has_no_layers(client: redis.Redis, bloom: Any) -> None:
    """A record copied to another name is a damaged filter, and the original is not touched."""
    f = bloom(client, "seen", kind=SCALING, **SIZE)
    f.add_many(ITEMS)
    client.restore("other", 0, client.dump(RECORD) or b"")
    with pytest.raises(FilterLostError):
        bloom.open(client, "other", kind=SCALING).contains("item-1")
    assert f.contains("item-1")


EMPTIED: dict[str, tuple[Callable[[Any], object], int]] = {
    "clear": (lambda f: f.clear(), 2),
    "delete": (lambda f: f.delete(), 0),
}


@for_each("verb", EMPTIED)
@for_each("known", ["known", "unknown", "begun anew"])
def test_no_layer_of_a_lost_record_stays(client: redis.Redis, bloom: Any, verb: str, known: str) -> None:
    """Layers whose record was evicted or deleted are deleted by the next clear() or delete(), by anybody."""
    call, left = EMPTIED[verb]
    f = bloom(client, "seen", kind=SCALING, **SIZE)
    f.add_many(ITEMS)
    client.delete(RECORD)
    if known != "known":
        f = bloom(client, "seen", kind=SCALING, **SIZE)
    if known == "begun anew":
        f.add("x")
    call(f)
    assert len(lasting(client)) == left
    f.add_many(ITEMS)
    assert f.delete()
    assert not lasting(client)


def test_what_is_made_anew_keeps_no_known_layer(client: redis.Redis, bloom: Any) -> None:
    """An object that continues after a loss deletes the layers that it knew."""
    f = bloom(client, "seen", kind=SCALING, on_lost="recreate", **SIZE)
    f.add_many(ITEMS)
    client.delete(RECORD)
    assert f.add("x")
    assert len(lasting(client)) == 2


def test_a_delete_leaves_the_layers_of_a_newer_filter(
    proxy: Proxy, client_of_proxy: redis.Redis, bloom: Any
) -> None:
    """A filter that is created between the two calls of a delete keeps every item."""
    f = full(proxy, bloom)
    other = ScalingBloomFilter(client_of_proxy, "seen", **SIZE)
    proxy.plan("sweep_layers", after(lambda: other.add_many(ITEMS), passed))
    assert f.delete()
    assert not any(other.add_many(ITEMS))


@pytest.mark.parametrize("kind", LONG)
@pytest.mark.parametrize("fate", ["lost", "never"])
def test_a_client_that_dies_leaves_nothing(any_client: redis.Redis, kind: str, fate: str) -> None:
    """Wherever a client dies in creating, filling, clearing or deleting, a later delete() removes all."""
    for step in range(80):
        any_client.flushall()
        dying = LosingClient(any_client)
        dying.lose = ["answer"] * step + [fate] * 1000
        f = CLASSES[kind](dying, "seen", retry_safe=True, **LONG[kind])
        with suppress(BatchInterruptedError, OutcomeUnknownError, ConnectionFailedError):
            f.add_many(ITEMS)
            f.clear()
            f.add_many(ITEMS)
            f.delete()
        CLASSES[kind](any_client, "seen", **LONG[kind]).delete()
        assert not lasting(any_client)
        assert not any_client.keys("*layer*")
        if len(dying.sent) < step:
            return
    raise AssertionError("it sends more commands than were tried")


@pytest.mark.parametrize("kind", LONG)
def test_a_lost_reply_of_a_growth(proxy: Proxy, bloom: Any, kind: str) -> None:
    """After a retry, or the next call, there is one new layer and no loss."""
    f = bloom(proxy.client(retries=1), "seen", kind=kind, **LONG[kind])
    f.add_many(ITEMS[:90])
    proxy.plan("add_layer", lost)
    assert all(f.add_many(ITEMS[90:140]))
    assert sum(layer.count for layer in f.info().layers) == 140
