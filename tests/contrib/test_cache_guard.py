"""The guard before a database."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis
import redis.asyncio

import bloomredis.asyncio
from bloomredis import BloomFilter, FilterLostError, RotatingBloomFilter, ShardedBloomFilter
from bloomredis.contrib._flavours import at_once  # which all adapters call
from bloomredis.contrib.cache_guard import LOADED, _Guard, _present, guard, load, load_asyncio
from bloomredis.stored.shards import record as shard_record
from tests.contrib import pages
from tests.support.inside import inside
from tests.support.proxy import lost, proxied
from tests.support.servers import Server

SIZE: dict[str, Any] = {"capacity": 1000, "error_rate": 1e-6}
ROWS = {str(i): i for i in range(100)}


class Database:
    """A table, and the keys of its look-ups."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def get(self, key: str) -> int | None:
        """Look a row up."""
        self.asked.append(key)
        return ROWS.get(key)


@pytest.fixture
def seen(any_client: redis.Redis) -> BloomFilter:
    return BloomFilter(any_client, "rows", **SIZE)


def test_only_rows_that_are_there_are_asked_for(seen: BloomFilter) -> None:
    """All existing rows, and no others."""
    database = Database()
    get = guard(seen)(database.get)
    assert load(seen, ROWS) == 100
    assert [get(key) for key in ROWS] == list(ROWS.values())
    assert [get(f"x{i}") for i in range(100)] == [None] * 100
    assert database.asked == list(ROWS)


def test_a_filter_that_is_not_whole_guards_nothing(seen: BloomFilter) -> None:
    """During a load, a row that was not read yet is found in the database."""
    database = Database()
    get = guard(seen)(database.get)
    found = []

    def rows() -> Iterator[str]:
        for key in ROWS:
            found.append(get("99"))
            yield key

    load(seen, rows())
    assert set(found) == {99}
    assert get("x") is None
    assert "x" not in database.asked


def test_a_filter_that_was_lost_guards_nothing(
    any_client: redis.Redis, seen: BloomFilter, caplog: pytest.LogCaptureFixture
) -> None:
    """Until the filter is loaded again; the program's own `add` fails until the loss is acknowledged."""
    database = Database()
    get = guard(seen)(database.get)
    load(seen, ROWS)
    any_client.flushall()
    with caplog.at_level(logging.WARNING, "bloomredis"):
        assert [get("7"), get("x")] == [7, None]
    assert "not guarded by 'rows'" in caplog.text
    with pytest.raises(FilterLostError):
        seen.add("y")
    seen.acknowledge()
    load(seen, ROWS)
    assert get("y") is None
    assert database.asked == ["7", "x"]


def test_a_load_that_has_died_is_told(seen: BloomFilter, caplog: pytest.LogCaptureFixture) -> None:
    """Calls reach the database, and nobody would know why."""
    seen.add_many(ROWS)
    with caplog.at_level(logging.WARNING, "bloomredis"):
        assert guard(seen)(Database().get)("x") is None
    assert "'rows': a load is at work, or has died before its end; then call load() again" in caplog.text


@pytest.mark.parametrize("how", ["flush", "clear", "delete"])
def test_the_guards_of_other_processes_work_after_one_has_loaded_again(
    any_client: redis.Redis, how: str
) -> None:
    """After that, no call for a missing row reaches the database."""
    database, workers = Database(), [BloomFilter(any_client, "rows", **SIZE) for _ in range(3)]
    gets = [guard(seen)(database.get) for seen in workers]
    job = BloomFilter(any_client, "rows", **SIZE)
    load(job, ROWS)
    assert [get("x") for get in gets] == [None] * 3
    getattr(job, how, any_client.flushall)()
    load(BloomFilter(any_client, "rows", **SIZE), ROWS)
    for _ in range(100):
        assert [get("x") for get in gets] == [None] * 3
    assert database.asked == []
    assert [get("7") for get in gets] == [7] * 3


def test_an_unguarded_database_is_told_once_a_minute(
    any_client: redis.Redis,
    seen: BloomFilter,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The warning has the number of calls since the last one."""
    get = guard(BloomFilter(any_client, "none"))(Database().get)
    for _ in range(50):
        get("7")
    assert caplog.text.count("is not guarded by 'none'") == 1
    later = time.monotonic() + 61
    monkeypatch.setattr(time, "monotonic", lambda: later)
    get("7")
    assert "(50 times since the last warning)" in caplog.text


def test_a_guard_in_asyncio_works_again_too(any_server: Server, any_client: redis.Redis) -> None:
    """Once another process has loaded the filter."""
    database = Database()

    async def main() -> list[int | None]:
        async with redis.asyncio.Redis(unix_socket_path=any_server.socket) as client:
            seen = bloomredis.asyncio.BloomFilter(client, "rows", **SIZE)

            @guard(seen)
            async def get(key: str) -> int | None:
                return database.get(key)

            await load_asyncio(seen, ROWS)
            any_client.flushall()
            load(BloomFilter(any_client, "rows", **SIZE), ROWS)
            return [await get("x") for _ in range(10)]

    assert asyncio.run(main()) == [None] * 10
    assert database.asked == []


def test_without_a_server_every_call_passes(any_server: Server) -> None:
    """Each call finds its row in the database."""
    database = Database()
    with proxied(any_server.socket) as proxy:
        seen = BloomFilter(proxy.client(), "rows", **SIZE)
        load(seen, [])
        proxy.always("contains", lost)
        assert guard(seen)(database.get)("7") == 7


def test_the_item_is_what_key_returns(seen: BloomFilter) -> None:
    """`key` takes all arguments of the call."""
    load(seen, ["a:1"])

    @guard(seen, key=lambda table, row: f"{table}:{row}", missing="none")
    def get(table: str, row: int) -> str:
        return f"{table} has {row}"

    assert (get("a", row=1), get("a", row=2)) == ("a has 1", "none")


def test_a_call_without_an_item_is_not_guarded(any_server: Server, seen: BloomFilter) -> None:
    """If `key` returns None, the function is called."""
    load(seen, ["a"])
    get = guard(seen, key=lambda row: None if row == "x" else row, missing="none")(lambda row: row)

    async def main() -> list[str]:
        async with bloomredis.asyncio.BloomFilter.from_url(any_server.url, "rows", **SIZE) as own:

            @guard(own, key=lambda row: None if row == "x" else row, missing="none")
            async def get_later(row: str) -> str:
                return row

            return [await get_later(row) for row in "abx"]

    assert [get(row) for row in "abx"] == asyncio.run(main()) == ["a", "none", "x"]


def test_a_missing_item_may_be_an_error(seen: BloomFilter) -> None:
    """If `missing` is an exception, it is raised."""
    load(seen, ["a"])
    get = guard(seen, missing=LookupError("no such row"))(Database().get)
    with pytest.raises(LookupError, match="no such row"):
        get("b")


def test_a_filter_of_another_program_has_no_marker(any_client: redis.Redis, seen: BloomFilter) -> None:
    """With `marker=None` the guard trusts the filter as complete."""
    seen.add("7")
    get = guard(seen, marker=None)(Database().get)
    assert (get("7"), get("8")) == (7, None)
    any_client.flushall()
    assert [get("8"), get("9")] == [8, 9]  # an empty filter would hide every row


@pytest.mark.parametrize("marker", [None, "loaded"])
def test_a_missing_filter_guards_nothing(any_server: Server, seen: BloomFilter, marker: str | None) -> None:
    """It cannot tell, and is not created; once it is there it guards."""
    database = Database()
    get = guard(seen, marker=marker)(database.get)

    async def main() -> int | None:
        async with redis.asyncio.Redis(unix_socket_path=any_server.socket) as client:
            own = bloomredis.asyncio.BloomFilter(client, "rows", **SIZE)

            @guard(own, marker=marker)
            async def get_later(key: str) -> int | None:
                return database.get(key)

            return await get_later("8")

    assert [get("8"), asyncio.run(main())] == [8, 8]
    assert not any_server.client().exists("rows")
    load(seen, ["7"], marker=marker or "loaded")
    assert (get("7"), get("8")) == (7, None)


def test_a_lost_filter_without_a_marker_guards_nothing(any_client: redis.Redis) -> None:
    """Whatever the filter object itself would do."""
    seen = BloomFilter(any_client, "rows", **SIZE, on_lost="recreate")
    seen.add("7")
    get = guard(seen, marker=None)(Database().get)
    assert (get("7"), get("8")) == (7, None)
    seen.delete()
    assert [get("8"), get("9")] == [8, 9]
    seen.add("7")
    assert [get("8"), get("9")] == [8, 9]
    seen.clear()
    assert [get("7"), get("8")] == [7, 8]  # an acknowledged filter is empty, too


def in_shards(client: redis.Redis) -> Any:
    """Return a sharded filter."""
    return ShardedBloomFilter(client, "rows", **SIZE, shards=3)


def shard_without_marker(seen: Any) -> str:
    """Return the key of a shard without the marker of the load."""
    marked = inside(seen).stored.record.number(_present(seen, LOADED).encode())
    return shard_record.key("rows", 3, (marked + 1) % 3)


def test_a_lost_shard_guards_nothing(any_client: redis.Redis) -> None:
    """The marker lies in another shard, and is still there, even after the lost one was made again."""
    seen = in_shards(any_client)
    database = Database()
    get = guard(seen)(database.get)
    load(seen, ROWS)
    assert get("x") is None
    assert any_client.delete(shard_without_marker(seen))
    for _ in range(2):
        assert [get(row) for row in ROWS] == list(ROWS.values())
    with pytest.raises(FilterLostError):
        seen.contains_many(ROWS)
    seen.acknowledge()
    assert not all(seen.contains_many(ROWS))
    later = guard(seen)(database.get)
    for each in (get, later):
        assert [each(row) for row in ROWS] == list(ROWS.values())
    load(seen, ROWS)
    assert (get("x"), later("x")) == (None, None)


def test_a_load_makes_a_lost_shard_again(any_client: redis.Redis) -> None:
    """A load raises a loss; after its acknowledgement the next one fills what is stored."""
    seen = in_shards(any_client)
    get = guard(seen)(Database().get)
    load(seen, ROWS)
    any_client.delete(shard_without_marker(seen))
    for _ in range(2):
        with pytest.raises(FilterLostError):
            load(seen, ROWS)
    assert seen.acknowledge() is True
    load(seen, ROWS)
    assert [get(row) for row in ROWS] == list(ROWS.values())
    assert get("x") is None


def test_who_goes_on_during_a_load_completes_nothing(any_client: redis.Redis) -> None:
    """Another part of the program, with the same object, handles a loss in the middle of the load."""
    seen = in_shards(any_client)
    get = guard(seen)(Database().get)
    load(seen, ROWS)
    key = shard_without_marker(seen)

    def rows() -> Iterator[str]:
        yield from [row for row in ROWS for _ in range(3000)]
        any_client.delete(key)
        with pytest.raises(FilterLostError):
            seen.contains_many(ROWS)
        seen.acknowledge()
        yield from ROWS

    with pytest.raises(FilterLostError):
        load(seen, rows())
    assert [get(row) for row in ROWS] == list(ROWS.values())


def test_an_object_that_goes_on_has_no_marker(any_client: redis.Redis) -> None:
    """A thread asks with the marker of before, while another one has met the loss with the guard's object."""
    seen = in_shards(any_client)
    load(seen, ROWS)
    guarding = _Guard(seen, LOADED)
    assert not at_once(guarding.is_there(["x"]))
    opened = guarding.at_present()
    any_client.delete(shard_without_marker(seen))
    for each in (opened.filter, seen):
        with pytest.raises(FilterLostError):
            each.contains_many(ROWS)
    seen.acknowledge()
    assert all(at_once(guarding.is_there([row])) for row in ROWS)


def test_a_guard_takes_no_loss_from_who_loads(any_client: redis.Redis) -> None:
    """The filter is lost while it is loaded, and is asked meanwhile, over the same object."""
    for on_lost in ("raise", "recreate"):
        seen: Any = BloomFilter(any_client, "rows", **SIZE, on_lost=on_lost)
        get = guard(seen)(Database().get)

        def rows(get: Any = get) -> Iterator[str]:
            for row in ROWS:
                yield from [row] * 3000
                if row == "50":
                    any_client.flushall()
                    get("x")

        with pytest.raises(FilterLostError):
            load(seen, rows())
        assert [get(row) for row in ROWS] == list(ROWS.values())


def test_an_item_that_was_tested_before_the_marker(seen: BloomFilter) -> None:
    """The load may have ended between the two tests."""
    load(seen, ["7"])
    guarding = _Guard(seen, LOADED)
    assert at_once(guarding.is_there(["7"]))
    opened = guarding.at_present()
    answers, own = iter([[False, True]]), opened.filter
    opened.filter = SimpleNamespace(
        contains_many=lambda items: next(answers, None) or own.contains_many(items)
    )
    assert at_once(guarding.is_there(["7"]))


def test_a_filter_that_forgets_is_refused(any_client: redis.Redis) -> None:
    """It would forget rows before the marker."""
    seen = RotatingBloomFilter(any_client, "rows", **SIZE, window=3600)
    with pytest.raises(TypeError, match="forgets nothing, not a RotatingBloomFilter"):
        guard(seen)(Database().get)


def test_coroutine_functions_are_guarded(any_server: Server) -> None:
    """With a filter of asyncio."""
    database = Database()

    async def main() -> list[int | None]:
        async with redis.asyncio.Redis(unix_socket_path=any_server.socket) as client:
            seen = bloomredis.asyncio.BloomFilter(client, "rows", **SIZE)

            @guard(seen)
            async def get(key: str) -> int | None:
                return database.get(key)

            before = await get("x")
            await load_asyncio(seen, ROWS)
            return [before, await get("7"), await get("x")]

    assert asyncio.run(main()) == [None, 7, None]
    assert database.asked == ["x", "7"]


def test_the_page_runs(any_server: Server) -> None:
    """Each of its examples."""
    pages.run("cache_guard", any_server)
