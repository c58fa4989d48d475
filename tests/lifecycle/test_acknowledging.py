"""One acknowledgement of a loss is enough for all objects; nobody acknowledges it by accident."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from typing import Any, Final

import pytest
import redis

import bloomredis.asyncio
from bloomredis import BloomFilter, FilterLostError, FilterNotFoundError
from bloomredis.contrib.cache_guard import load
from tests.lifecycle.test_reading import KINDS as READ
from tests.lifecycle.test_reading import SIZES
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
def test_one_reserve_is_enough_for_all(bloom: Any, client: redis.Redis, kind: str) -> None:
    """Each object raises once; one that has raised already goes on at once."""
    first, told, untold = users(bloom, client, kind)
    client.flushall()
    assert [raises(each) for each in (first, told, first, told)] == [True] * 4
    first.reserve()
    assert is_marked(client)
    assert [raises(each) for each in (first, told, untold, untold)] == [False, False, True, False]
    assert [each.add("before") for each in (told, first, untold)] == [True, False, False]


@for_each("kind", KINDS)
def test_what_a_new_process_began_is_not_acknowledged(bloom: Any, client: redis.Redis, kind: str) -> None:
    """Not by its first call, nor by `reserve()` at its start; but by an object that has raised."""
    first, second = users(bloom, client, kind, 2)
    client.flushall()
    new = bloom(client, "seen", **KINDS[kind])
    new.reserve()
    new.add("after")
    bloom.open(client, "seen", **({"kind": KINDS[kind]["kind"]} if "kind" in KINDS[kind] else {}))
    assert not is_marked(client)
    assert [raises(each) for each in (first, second) * 2] == [True] * 4
    first.reserve()
    assert is_marked(client)
    assert [raises(each) for each in (first, second, new)] == [False] * 3
    assert second.contains("after")


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


def _call_back(client: redis.Redis) -> None:
    other = BloomFilter(client, "seen", **SIZES, on_lost=lambda _: other.reserve())
    other.add("a")
    client.unlink("seen")
    other.add("a")


def _load(client: redis.Redis) -> None:
    other = BloomFilter(client, "seen", **SIZES)
    other.add("a")
    client.unlink("seen")
    with pytest.raises(FilterLostError):
        other.add("a")
    load(other, ["a"])


@for_each("begin", [_recreate, _call_back, _load])
def test_who_goes_on_alone(client: redis.Redis, begin: Callable[[redis.Redis], None]) -> None:
    """The others still raise."""
    seen = BloomFilter(client, "seen", **SIZES)
    seen.add("before")
    client.unlink("seen")
    begin(client)
    assert not is_marked(client)
    assert [raises(seen), raises(seen)] == [True, True]


def test_a_restored_filter_is_acknowledged(bloom: Any, client: redis.Redis) -> None:
    """Whoever restores it has decided; it has a later time than the lost one."""
    saved = io.BytesIO()
    (seen,) = users(bloom, client, "plain", 1)
    seen.save(saved)
    client.unlink("seen")
    saved.seek(0)
    bloom.restore(client, "seen", saved)
    assert [raises(seen), raises(seen)] == [True, False]
    assert seen.contains("before")


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
    seen.reserve()
    assert not raises(seen)


def test_a_late_mark_finds_another_filter(client: redis.Redis) -> None:
    """Its identity is that of a filter which is lost by then."""
    seen: Any = BloomFilter(client, "seen", **SIZES)
    seen.add("before")
    client.unlink("seen")
    assert raises(seen)
    stored, marked = seen._operations.stored, []
    find: Any = stored._find

    def lost_again(**options: Any) -> Any:
        found = yield from find(**options)
        client.unlink("seen")
        BloomFilter(client, "seen", **SIZES).reserve()
        marked.append(found)
        return found

    stored._find = lost_again
    seen.reserve()
    assert len(marked) == 1
    assert not is_marked(client)
    assert raises(seen)


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
    cache: Any = second._operations
    assert [first.add("before"), second.add("other")] == [True, True]
    first.clear()
    cache.items._copy.next_read = 0.0
    cache.items._copy.next_piece = 0
    with pytest.raises(FilterLostError):
        second.add("new")
    assert second.add("new") is True


def test_every_task_of_a_lost_filter_is_told(any_server: Server) -> None:
    """All calls of 64 tasks that were sent for the lost filter raise it, and none that came later."""

    async def run(*, shared: bool) -> None:
        client = redis.asyncio.Redis.from_url(any_server.url)
        async with client:
            seen, other = (
                bloomredis.asyncio.BloomFilter(client, "seen", **SIZES, coalesce=shared) for _ in range(2)
            )
            await seen.contains("a")
            await seen.add("a")
            await other.clear()
            calls = [seen.add(f"{shared} {i}") for i in range(64)]
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
        seen.reserve()
    with pytest.raises(FilterNotFoundError):
        bloom(client, "seen", **options).contains("before")
    users(bloom, client, kind, 1)
    assert raises(seen)
    seen.reserve()
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
    assert seen.load(range(500)) == 500
    client.setrange("seen", FLAGS_BYTE, b"\1")
    assert seen.info().count in (500, 501, 502)  # a counting filter counts the second add of "before"
