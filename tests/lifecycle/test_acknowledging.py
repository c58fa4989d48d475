"""One acknowledgement of a loss is enough for all objects; nobody acknowledges it by accident."""

from __future__ import annotations

import asyncio
import io
from copy import copy
from typing import Any, Final, cast

import pytest
import redis

import bloomredis.asyncio
from bloomredis import (
    BloomFilter,
    FilterLostError,
    FilterNotFoundError,
    ServerRefusedError,
    ShardedBloomFilter,
)
from bloomredis.drivers.sharing.tasks import Tasks
from bloomredis.protocol.steps import Op, Sleep
from tests.lifecycle.test_reading import KINDS as READ
from tests.lifecycle.test_reading import SIZES
from tests.support.inside import inside, renewed
from tests.support.servers import Server
from tests.support.values import for_each

KINDS: Final = {
    kind: options for kind, options in READ.items() if kind not in ("module", "redisson", "cached")
}
"""Filters with a header of their own, all of whose answers come from the server."""

FLAGS_BYTE: Final = 12


def is_marked(client: redis.Redis) -> bool:
    """Return whether the stored filter is acknowledged."""
    return client.getrange("seen", FLAGS_BYTE, FLAGS_BYTE) == b"\1"


def users(bloom: Any, client: redis.Redis, kind: str, number: int = 3) -> list[Any]:
    """Return objects that have used the filter."""
    made = [bloom(client, "seen", **KINDS[kind]) for _ in range(number)]
    for each in made:
        each.add("before")
    return made


def raises(seen: Any) -> bool:
    """Return whether a test raises a loss."""
    try:
        seen.contains("before")
    except FilterLostError:
        return True
    return False


@for_each("kind", KINDS)
def test_one_acknowledgement_is_enough_for_all(bloom: Any, client: redis.Redis, kind: str) -> None:
    """Each object raises once; one that has raised already goes on at once."""
    first, told, untold = users(bloom, client, kind)
    client.flushall()
    assert [raises(each) for each in (first, told, first, told)] == [True] * 4
    assert first.acknowledge() is True
    assert is_marked(client)
    assert [raises(each) for each in (first, told, untold, untold)] == [False, False, True, False]
    assert [each.add("before") for each in (told, first, untold)] == [True, False, False]


@for_each("kind", KINDS)
def test_what_a_new_process_began_is_not_acknowledged(bloom: Any, client: redis.Redis, kind: str) -> None:
    """Not by its first call, nor by `create()` at its start; but by an object that has raised."""
    first, second = users(bloom, client, kind, 2)
    client.flushall()
    new = bloom(client, "seen", **KINDS[kind])
    new.create()
    new.add("after")
    bloom.open(client, "seen", **({"kind": KINDS[kind]["kind"]} if "kind" in KINDS[kind] else {}))
    assert not is_marked(client)
    assert [raises(each) for each in (first, second) * 2] == [True] * 4
    first.acknowledge()
    assert is_marked(client)
    assert [raises(each) for each in (first, second, new)] == [False] * 3
    assert second.contains("after")


@for_each("kind", KINDS)
def test_create_never_acknowledges(bloom: Any, client: redis.Redis, kind: str) -> None:
    """It raises the loss that its object knows of, however often, and whatever is stored by then."""
    first, second = users(bloom, client, kind, 2)
    client.flushall()
    for _ in range(3):  # the first one meets the loss
        with pytest.raises(FilterLostError, match=r"call acknowledge\(\)"):
            first.create()
    assert client.keys() == []
    bloom(client, "seen", **KINDS[kind]).create()
    for each in (first, first, second):
        with pytest.raises(FilterLostError):
            each.create()
    assert not is_marked(client)
    bloom(client, "seen", **KINDS[kind]).acknowledge()
    first.create()  # which was told
    second.create()
    assert first.add("before")


@for_each("kind", KINDS)
def test_an_acknowledgement_tells_what_it_has_met(bloom: Any, client: redis.Redis, kind: str) -> None:
    """True if its object knew another filter, told of the loss or not; it makes none that nobody knew."""
    new = bloom(client, "seen", **KINDS[kind])
    assert new.acknowledge() is False
    assert client.keys() == []
    assert new.contains("before") is False
    first, second = users(bloom, client, kind, 2)
    assert first.acknowledge() is False  # nothing was lost
    assert is_marked(client)
    client.flushall()
    assert first.acknowledge() is True  # before any call has met the loss
    assert is_marked(client)
    assert [first.acknowledge(), first.add("after")] == [False, True]
    assert bloom(client, "seen", **KINDS[kind]).acknowledge() is False
    assert [raises(second), second.contains("after")] == [True, True]
    assert first.delete()
    assert [first.acknowledge(), client.exists("seen")] == [False, 0]  # deleted on purpose


def test_an_acknowledgement_keeps_the_other_shards(bloom: Any, client: redis.Redis) -> None:
    """A missing shard is made anew, also for an object that has not met the loss, or knew no filter."""
    options: Any = {"kind": "ShardedBloomFilter", "capacity": 1000, "error_rate": 1e-6, "shards": 4}
    items = [f"{i}" for i in range(100)]
    for knows in (True, False):
        seen = bloom(client, "seen", **options)
        seen.add_many(items)
        client.delete(next(key for key in client.keys("{seen:*") if client.strlen(key) > 64))
        acknowledging = seen if knows else bloom(client, "seen", **options)
        assert acknowledging.acknowledge() is knows
        assert is_marked(client)
        assert 50 < sum(acknowledging.contains_many(items)) < 100
        seen.delete()


@for_each("knows", [True, False])
def test_no_acknowledgement_replaces_a_layer(bloom: Any, client: redis.Redis, knows: bool) -> None:  # noqa: FBT001 - the case
    """Only clear() helps; the record stays as it is, whoever acknowledges."""
    client.flushall()
    options: Any = {"kind": "ScalingBloomFilter", "capacity": 10, "error_rate": 1e-6}
    seen = bloom(client, "seen", **options)
    seen.add_many(range(100))
    client.delete("{seen}:layer:0")
    record = client.get("seen")
    acknowledging = seen if knows else bloom(client, "seen", **options)
    for call in (acknowledging.acknowledge, acknowledging.create, bloom(client, "seen", **options).create):
        with pytest.raises(FilterLostError, match=r"a layer of .* call clear\(\)"):
            call()
    assert client.get("seen") == record
    acknowledging.clear()
    assert acknowledging.create() is None


@for_each("kind", KINDS)
def test_a_clear_is_told_once(bloom: Any, client: redis.Redis, kind: str) -> None:
    """Again and again; a missing filter is made, and is acknowledged too."""
    first, second = users(bloom, client, kind, 2)
    for _ in range(2):
        first.clear()
        assert [raises(second), raises(second)] == [True, False]
    client.flushall()
    assert raises(second)
    first.clear()
    assert is_marked(client)
    assert not raises(second)


def _recreate(client: redis.Redis) -> None:
    other = BloomFilter(client, "seen", **SIZES, on_lost="recreate")
    other.add("a")
    client.unlink("seen")
    other.add("a")


def test_who_goes_on_alone(client: redis.Redis) -> None:
    """The others still raise."""
    seen = BloomFilter(client, "seen", **SIZES)
    seen.add("before")
    client.unlink("seen")
    _recreate(client)
    assert not is_marked(client)
    assert [raises(seen), raises(seen)] == [True, True]


@for_each("kind", KINDS)
def test_a_restored_filter_is_acknowledged(bloom: Any, client: redis.Redis, kind: str) -> None:
    """Whoever restores it has decided; it has a later time than the lost one.  A copy is no decision."""
    saved = io.BytesIO()
    first, second = users(bloom, client, kind, 2)
    first.clear()
    assert raises(second)
    assert second.add("before")
    second.save(saved)
    bloom.copy(second, client, "copy")
    assert client.getrange("copy", FLAGS_BYTE, FLAGS_BYTE) == b"\0"
    client.flushall()
    saved.seek(0)
    bloom.restore(client, "seen", saved, KINDS[kind].get("kind", "BloomFilter"))
    assert [raises(second), raises(second)] == [True, False]
    assert second.contains("before")


@for_each("kind", [kind for kind in KINDS if kind != "sharded"])
def test_an_older_filter_is_not_gone_on_with(bloom: Any, client: redis.Redis, kind: str) -> None:
    """A backup of an acknowledged filter: every call raises, until the object itself decides."""
    (seen,) = users(bloom, client, kind, 1)
    seen.clear()
    keys = [key for key in client.scan_iter() if b"receipt" not in key]
    backup = [(key, client.get(key)) for key in keys]
    seen.clear()
    assert seen.add("before")
    client.flushall()
    for key, value in backup:
        client.set(key, value or b"")
    assert is_marked(client)
    assert [raises(seen) for _ in range(3)] == [True] * 3
    seen.acknowledge()
    assert not raises(seen)


def test_a_late_mark_finds_another_filter(client: redis.Redis) -> None:
    """Its identity is that of a filter which is lost by then: the other one is looked at, and marked."""
    seen: Any = BloomFilter(client, "seen", **SIZES)
    seen.add("before")
    client.unlink("seen")
    assert raises(seen)
    stored = inside(seen).stored
    marked: list[bytes] = []
    find: Any = stored._find  # after its reply the call has yet to mark the filter

    def lost_again(**options: Any) -> Any:
        found = yield from find(**options)
        if not marked:
            client.unlink("seen")
            BloomFilter(client, "seen", **SIZES).create()
        marked.append(found.generation)
        return found

    stored._find = lost_again
    assert seen.acknowledge() is True
    assert len(set(marked)) == 2
    assert is_marked(client)
    assert not raises(seen)


@for_each("kind", KINDS)
def test_who_only_looks_is_not_told_for_others(bloom: Any, client: redis.Redis, kind: str) -> None:
    """`info()` raises the loss, and so does the next call about an item."""
    first, second = users(bloom, client, kind, 2)
    first.clear()
    for _ in range(2):
        with pytest.raises(FilterLostError):
            second.info()
    assert [raises(second), raises(second)] == [True, False]
    assert second.info().count == 0


def test_the_local_cache_is_not_told(client: redis.Redis) -> None:
    """The call that reads a piece of the copy raises the loss."""
    first, second = (BloomFilter(client, "seen", **SIZES, local_cache=True) for _ in range(2))
    cache: Any = inside(second)
    assert [first.add("before"), second.add("other")] == [True, True]
    first.clear()
    copy = cache.items.copy  # by itself the cache reads again after many answers of "new"
    copy.next_read, copy.next_piece = 0.0, 0
    with pytest.raises(FilterLostError):
        second.add("new")
    assert second.add("new") is True


def test_every_task_of_a_lost_filter_is_told(any_server: Server) -> None:
    """All calls of 64 tasks that were sent for the lost filter raise it, and none that came later."""

    async def run(*, shared: bool) -> None:
        client = redis.asyncio.Redis.from_url(any_server.url)
        async with client:
            seen, other = (bloomredis.asyncio.BloomFilter(client, "seen", **SIZES) for _ in range(2))
            await seen.contains("a")
            await seen.add("a")
            await other.clear()
            calls = [(seen if shared else copy(seen)).add(f"{shared} {i}") for i in range(64)]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            told = [isinstance(each, FilterLostError) for each in outcomes]
            assert (
                any(told) if shared else all(told)
            )  # some of the shared calls wait for the first, and go on
            assert all(each is True for each, was_told in zip(outcomes, told, strict=True) if not was_told)
            assert all(await asyncio.gather(*(seen.add(f"{shared} again {i}") for i in range(64))))

    asyncio.run(run(shared=False))
    asyncio.run(run(shared=True))


@pytest.mark.parametrize("kind", KINDS)
def test_an_operator_needs_no_parameters(bloom: Any, client: redis.Redis, kind: str) -> None:
    """An object without parameters raises while the filter is missing, and goes on afterwards."""
    options = {"kind": KINDS[kind]["kind"]} if "kind" in KINDS[kind] else {}
    users(bloom, client, kind, 1)
    seen = bloom(client, "seen", **options)
    assert seen.contains("before")
    client.flushall()
    assert raises(seen)
    with pytest.raises(FilterNotFoundError):
        seen.acknowledge()
    with pytest.raises(FilterNotFoundError):
        bloom(client, "seen", **options).contains("before")
    users(bloom, client, kind, 1)
    assert raises(seen)
    seen.acknowledge()
    assert seen.contains("before")
    assert is_marked(client)


@for_each("kind", ["plain", "classic", "counting"])
def test_a_mark_disturbs_nobody(bloom: Any, client: redis.Redis, kind: str) -> None:
    """Objects that use the filter when it is marked go on, with their counts and pipelines."""
    (seen,) = users(bloom, client, kind, 1)
    client.setrange("seen", FLAGS_BYTE, b"\1")
    assert seen.add("before") is False
    assert seen.contains_many(["before", "b"]) == [True, False]
    client.setrange("seen", FLAGS_BYTE, b"\0")
    assert seen.update(range(500)) == 500
    client.setrange("seen", FLAGS_BYTE, b"\1")
    assert seen.info().count in (500, 501, 502)  # a counting filter counts the second add of "before"


def mark(client: redis.Redis) -> None:
    """Mark the stored filter, as another program does."""
    client.setrange("seen", FLAGS_BYTE, b"\1")


def test_a_mark_during_a_save(bloom: Any, any_client: redis.Redis) -> None:
    """The filter is read in several steps; it was not lost, so the file has all items."""
    client, saved = any_client, io.BytesIO()
    seen = bloom(client, "seen", capacity=3_000_000, error_rate=0.01)
    seen.add("before")
    done: list[int] = []

    def marked(read: int, _: int) -> None:
        done.append(read)
        mark(client)

    seen.save(saved, progress=marked)
    assert len(done) > 1
    client.flushall()
    saved.seek(0)
    assert bloom.restore(client, "seen", saved).contains("before")


def test_a_mark_while_a_sharded_filter_gets_a_ttl(any_client: redis.Redis) -> None:
    """The record is marked after the shards have got their time to live."""
    seen: Any = ShardedBloomFilter(any_client, "seen", **SIZES, shards=3)
    assert seen.add("before")
    stored = inside(seen).stored
    each_shard = stored.each_shard

    def marked(call: Any) -> Any:
        found = yield from each_shard(call)
        mark(any_client)
        return found

    stored.each_shard = marked
    seen.expire(600)
    assert seen.contains("before")
    assert any_client.ttl("seen") > 0


def test_a_load_after_a_mark_is_still_fast(any_server: Server) -> None:
    """A filter that refuses what is beyond its capacity is read and written in segments."""
    with any_server.client() as client:
        seen = BloomFilter(client, "seen", capacity=100_000, error_rate=0.01, on_full="raise")
        seen.add("before")
        mark(client)
        before: Any = client.info("stats")
        assert seen.update(range(3000)) == 3000
        after: Any = client.info("stats")
        assert after["total_commands_processed"] - before["total_commands_processed"] < 1000
        assert seen.info().count == pytest.approx(3001, abs=30)


def test_an_older_copy_from_before_the_mark(bloom: Any, any_client: redis.Redis) -> None:
    """`info()` tells it by the count, as without a mark."""
    (seen,) = users(bloom, any_client, "plain", 1)
    copy = any_client.get("seen")
    assert seen.add_many(range(100)).count(True) > 90
    assert seen.info().count > 90
    mark(any_client)
    assert not raises(seen)
    any_client.set("seen", copy or b"")
    with pytest.raises(FilterLostError, match="older copy"):
        seen.info()


def test_a_sharded_filter_that_lost_several_shards(any_client: redis.Redis) -> None:
    """`info()` meets all of them at once, and a call about an item is told all the same."""
    first, second = (ShardedBloomFilter(any_client, "seen", **SIZES, shards=4) for _ in range(2))
    for each in (first, second):
        each.add_many(range(100))
    any_client.delete(*[key for key in any_client.keys("{seen:*") if b"receipt" not in key])
    for each in (first, second):
        with pytest.raises(FilterLostError):
            each.info()
    for each in (first, second):
        with pytest.raises(FilterLostError):
            each.contains(1)
    second.acknowledge()
    assert first.contains(1) is False


def test_renewals_of_claims_are_not_told(any_client: redis.Redis) -> None:
    """Each of a batch of renewals raises the loss, and so does the next call about an item."""
    first, second = (ShardedBloomFilter(any_client, "seen", **SIZES, shards=4) for _ in range(2))
    claims: Any = first.claim_many(["a", "b", "c"], lease=60)
    second.clear()
    with pytest.raises(FilterLostError):
        first.info()
    assert {type(each) for each in renewed(first, claims)} == {FilterLostError}
    with pytest.raises(FilterLostError):
        first.contains("a")
    assert first.contains("a") is False


def test_calls_in_flight_to_all_shards_are_told(any_server: Server) -> None:
    """A loss of a sharded filter is one of all its shards: every call that was sent before raises it."""

    async def run() -> None:
        async with redis.asyncio.Redis.from_url(any_server.url) as client:
            seen, other = (
                bloomredis.asyncio.ShardedBloomFilter(client, "seen", **SIZES, shards=4) for _ in range(2)
            )
            assert all(await seen.add_many(range(64)))
            await other.clear()
            outcomes = await asyncio.gather(*(copy(seen).add(i) for i in range(64)), return_exceptions=True)
            assert {type(each) for each in outcomes} == {FilterLostError}
            assert await seen.contains_many(range(64)) == [False] * 64

    asyncio.run(run())


@for_each("kind", KINDS)
def test_a_reader_without_rights_goes_on(bloom: Any, any_server: Server, kind: str) -> None:
    """A user who may only read is told of a loss, cannot acknowledge it, and goes on when somebody has."""
    reading = [
        "+evalsha",
        "+eval",
        "+getrange",
        "+getbit",
        "+bitfield",
        "+get",
        "+strlen",
        "+pttl",
        "+exists",
        "+time",
    ]
    with any_server.client() as client:
        client.execute_command("ACL", "SETUSER", "reader", "reset", ">pw", "on", "~*", *reading)
        (writer,) = users(bloom, client, kind, 1)
        with any_server.client(username="reader", password="pw") as limited:  # noqa: S106 - of a test's server
            reader = bloom(limited, "seen", **KINDS[kind])
            assert reader.contains("before")
            client.flushall()
            bloom(client, "seen", **KINDS[kind]).create()
            assert raises(reader)
            with pytest.raises(ServerRefusedError, match="NOPERM"):
                reader.acknowledge()
            assert raises(reader)
            assert not is_marked(client)
            assert raises(writer)
            writer.acknowledge()
            assert not reader.contains("before")


@for_each("gone", [0, 1, 2])
def test_a_loss_is_told_to_who_is_still_there(gone: int) -> None:
    """Of a batch of two, so many callers are cancelled; if both are, the next call raises the loss."""
    lost, departed = FilterLostError("it has vanished"), asyncio.Event()

    def alone(item: str) -> Op[bool]:
        yield Sleep(0)
        return bool(item)

    def together(items: Any) -> Op[list[Any]]:
        departed.set()
        yield Sleep(0)
        raise copy(lost)

    async def run() -> list[Any]:
        sharing: Any = Tasks("seen", cast("Any", None), together)
        calls = [asyncio.ensure_future(sharing.wait(item, alone, item)) for item in "abc"]
        await departed.wait()
        for call in calls[1 : 1 + gone]:
            call.cancel()
        return await asyncio.gather(*calls, return_exceptions=True)

    first, *others = asyncio.run(run())
    assert first is True
    assert [type(each) for each in others] == [asyncio.CancelledError] * gone + [FilterLostError] * (2 - gone)
    assert lost.told[0] == (gone < 2)
