"""Tests of one item over direct connections, which read the item's blocks instead of calling a script."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import redis
import redis.asyncio

import bloomredis.asyncio
from bloomredis import BloomFilter, FilterLostError, ServerRefusedError, ShardedBloomFilter
from bloomredis.stored import planning
from bloomredis.stored.state.item_calls import ContainsByReading
from tests.support.proxy import after, passed, proxied
from tests.support.servers import Server
from tests.support.values import for_each
from tests.support.wrapping import wrapped

RATES = (0.3, 1e-2, 1e-5, 1e-9)
"""Error rates with one to three blocks for an item, of both sizes."""


def calls_of_scripts(client: redis.Redis) -> int:
    stats: dict[str, Any] = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))


def reads(f: Any) -> bool:
    return isinstance(next(f._contains("any")), ContainsByReading)  # whose step depends on the client


@for_each("rate", RATES)
def test_it_says_what_the_script_says(client: redis.Redis, rate: float) -> None:
    """The answers are the script's, for items in the filter, absent items and false positives."""
    f = BloomFilter(client, "seen", capacity=300, error_rate=rate)
    f.add_many(range(300))
    items = [str(i) for i in range(1200)]
    by_script = f.contains_many(items)
    assert [f.contains(item) for item in items] == by_script
    assert sum(by_script) >= 300
    assert rate < 0.1 or sum(by_script) > 400  # enough false positives


@for_each("rate", RATES)
@for_each("kind", [BloomFilter, ShardedBloomFilter])
def test_no_script_is_called(any_client: redis.Redis, kind: Any, rate: float) -> None:
    """The reply contains the filter's header with the blocks."""
    f = kind(any_client, "seen", capacity=1000, error_rate=rate)
    f.add_many(range(100))
    assert f.contains("1")
    before = calls_of_scripts(any_client)
    assert [f.contains(str(i)) for i in range(100)] == [True] * 100
    assert calls_of_scripts(any_client) == before


def test_blocks_of_both_sizes_are_read(any_client: redis.Redis) -> None:
    """The rates above cover both block sizes, and one to three blocks an item."""
    sizes, numbers = set(), set()
    for rate in RATES:
        f = BloomFilter(any_client, f"rate {rate}", capacity=1000, error_rate=rate)
        f.create()
        layout: Any = planning.plan_layout("blocked", 1000, rate)
        sizes.add(layout.block_bits)
        numbers.add(layout.blocks_per_item)
        assert reads(f)
    assert sizes == {128, 256}
    assert numbers == {1, 2, 3}


def put_another(client: redis.Redis) -> None:
    client.delete("seen")
    BloomFilter(client, "seen", capacity=1000, error_rate=0.01).add("other")


CHANGES: dict[str, Callable[[redis.Redis], object]] = {
    "deleted": lambda client: client.delete("seen"),
    "flushed": lambda client: client.flushall(),
    "replaced": put_another,
    "cleared": lambda client: BloomFilter.open(client, "seen").clear(),
    "a text": lambda client: client.set("seen", "text"),
    "a list": lambda client: (client.delete("seen"), client.rpush("seen", "a")),
    "cut off": lambda client: client.set("seen", client.getrange("seen", 0, 70)),
    "its header alone": lambda client: client.set("seen", client.getrange("seen", 0, 63)),
    "another generation": lambda client: client.setrange("seen", 40, b"\0" * 8),
}
"""Changes that a filter may have undergone."""


def outcome(call: Callable[[], object]) -> object:
    try:
        return call()
    except Exception as error:
        return type(error)


@for_each("on_lost", ["raise", "recreate"])
@for_each("change", CHANGES)
def test_what_has_become_of_the_filter(any_client: redis.Redis, change: str, on_lost: Any) -> None:
    """A changed filter is detected as by the script, with the same answers or errors now and later."""
    outcomes = []
    calls: list[Any] = [BloomFilter.contains, lambda f, item: f.contains_many([item])[0]]
    for call in calls:
        any_client.flushall()
        f = BloomFilter(any_client, "seen", capacity=1000, error_rate=0.01, on_lost=on_lost)
        f.add_many(["x", "other"])
        assert f.contains("x")
        CHANGES[change](any_client)
        outcomes.append([outcome(partial(call, f, item)) for item in ("x", "y", "x")])
    assert outcomes[0] == outcomes[1]
    assert on_lost == "recreate" or outcomes[0] != [True, False, True]


@for_each("rate", RATES)
def test_a_filter_that_is_replaced_between_the_commands(
    any_server: Server, any_client: redis.Redis, rate: float
) -> None:
    """Whichever command follows the replacement, blocks of another filter are never used."""
    with proxied(any_server.socket) as proxy:
        own = proxy.client()
        layout: Any = planning.plan_layout("blocked", 1000, rate)
        for number in range(layout.blocks_per_item + 1):
            any_client.flushall()
            f = BloomFilter(own, "seen", capacity=1000, error_rate=rate)
            f.add("x")
            assert f.contains("x")
            fates = [passed] * number + [after(partial(put_another, any_client), passed)]
            proxy.plan("reading", *fates)
            with pytest.raises(FilterLostError):
                f.contains("x")


def test_a_user_who_may_not_read(any_server: Server, any_client: redis.Redis) -> None:
    """Every reply is read, so the next call gets its own."""
    any_client.acl_setuser("reader", enabled=True, nopass=True, commands=["+@all"], keys=["*"])
    try:
        with any_server.client(username="reader") as own:
            f = BloomFilter(own, "seen", capacity=1000, error_rate=1e-5)
            f.add("x")
            assert f.contains("x")
            any_client.acl_setuser("reader", enabled=True, commands=["-getrange"])
            for _ in range(3):
                with pytest.raises(ServerRefusedError, match="NOPERM"):
                    f.contains("x")
            any_client.acl_setuser("reader", enabled=True, commands=["+getrange"])
            assert (f.contains("x"), f.contains("y"), f.add("x")) == (True, False, False)
            assert [each["user"] for each in any_client.client_list()].count("reader") == 1
    finally:
        any_client.acl_deluser("reader")


@pytest.mark.parametrize("rate", RATES)
def test_an_exception_between_the_replies(
    any_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, rate: float
) -> None:
    """No other call gets the remaining replies."""
    f = BloomFilter(any_client, "seen", capacity=1000, error_rate=rate)
    f.add("x")
    assert f.contains("x")
    connection: Any = any_client.connection_pool.get_connection()
    any_client.connection_pool.release(connection)
    for number in itertools.count():
        left = iter(range(number))
        read = connection.read_response

        def interrupted(left: Any = left, read: Any = read, **options: Any) -> Any:
            if next(left, None) is None:
                raise KeyboardInterrupt
            return read(**options)

        with monkeypatch.context() as patch:
            patch.setattr(connection, "read_response", interrupted)
            try:
                f.contains("x")
            except KeyboardInterrupt:
                pass
            else:
                break
        assert (f.contains("x"), f.contains("y"), f.add("x")) == (True, False, False)
    assert number > 1


def test_a_connection_that_has_to_be_made(any_client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new connection is made by the client for the script: an interrupted pipeline would leave replies."""
    f = BloomFilter(any_client, "seen", capacity=1000, error_rate=1e-5)
    f.add("x")
    assert reads(f)
    monkeypatch.setattr(any_client, "pipeline", None)
    for item, there in (("x", True), ("y", False)):
        before = calls_of_scripts(any_client)
        any_client.connection_pool.disconnect()
        any_client.connection_pool.reset()
        assert f.contains(item) is there
        assert calls_of_scripts(any_client) > before


class Overriding(redis.Redis):
    """A client whose own method makes the calls, so its connections are not used directly."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]  # redis-py's


class OverridingAsyncio(redis.asyncio.Redis):
    """The same for asyncio."""

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]  # redis-py's


@for_each("kind", ["BloomFilter", "ShardedBloomFilter"])
def test_with_client_changes_nothing_of_the_filter_itself(any_server: Server, kind: str) -> None:
    """Each of the two reads as its own client does, whichever was made last."""
    with any_server.client() as client, Overriding(unix_socket_path=any_server.socket) as own:
        f = getattr(bloomredis, kind)(client, "seen", capacity=1000, error_rate=0.01)
        f.add("x")
        other = f.with_client(own)
        last = other.with_client(client)
        for each, by_script in ((f, False), (other, True), (last, False), (other, True), (f, False)):
            before = calls_of_scripts(client)
            assert each.contains("x")
            assert (calls_of_scripts(client) > before) is by_script


def test_with_client_changes_nothing_of_the_filter_itself_in_asyncio(any_server: Server) -> None:
    """The same holds for tasks, whose tests share calls."""

    async def main() -> None:
        path = any_server.socket
        async with (
            redis.asyncio.Redis(unix_socket_path=path) as own,
            OverridingAsyncio(unix_socket_path=path) as overriding,
        ):
            f = bloomredis.asyncio.BloomFilter(own, "seen", capacity=1000, error_rate=0.01)
            await f.add("x")
            other = f.with_client(overriding)
            last = other.with_client(own)
            for each, by_script in ((f, False), (other, True), (last, False), (other, True), (f, False)):
                before = calls_of_scripts(client)
                assert await each.contains("x")
                assert (calls_of_scripts(client) > before) is by_script

    with any_server.client() as client:
        asyncio.run(main())


def test_where_connections_are_not_kept(any_client: redis.Redis) -> None:
    """Without direct connections the script is called, since a pipeline of the client would be slower."""
    f = BloomFilter(wrapped(any_client), "seen", capacity=1000, error_rate=0.01)
    f.add("x")
    assert not reads(f)
    before = calls_of_scripts(any_client)
    assert (f.contains("x"), f.contains("y")) == (True, False)
    assert calls_of_scripts(any_client) > before


@for_each("rate", RATES)
def test_a_task(any_server: Server, rate: float) -> None:
    """A task's call that shares no batch reads the blocks too."""

    async def run() -> None:
        async with redis.asyncio.Redis(unix_socket_path=any_server.socket) as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", capacity=1000, error_rate=rate)
            assert await f.add("x")
            assert await f.contains("x")
            before = (await client.info("commandstats")).get("cmdstat_evalsha", {}).get("calls")
            assert [await f.contains("x"), await f.contains("y")] == [True, False]
            assert (await client.info("commandstats"))["cmdstat_evalsha"]["calls"] == before
            await client.flushall()
            with pytest.raises(FilterLostError):
                await f.contains("x")

    asyncio.run(run())
