"""Filters imported from Guava and RedisBloom, and exported to Guava."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import redis

from bloomredis import (
    BloomFilter,
    ConnectionFailedError,
    FilterMismatchError,
    OutcomeUnknownError,
    ServerRefusedError,
    compat,
)
from bloomredis.compat import from_guava, to_guava
from tests.support.inside import inside
from tests.support.losing import LosingClient
from tests.support.servers import Server
from tests.support.systems import Offsets
from tests.support.values import for_each
from tests.support.vectors import element, vectors


def stream(system: str, **parameters: Any) -> tuple[bytes, list[Any]]:
    """Return Guava's bytes for a filter with every second case, and the items of all cases."""
    cases = [
        case
        for case in vectors(system)["cases"]
        if all(case[field] == value for field, value in parameters.items())
    ]
    words = [0] * (cases[0]["num_bits"] // 64)
    for case in cases[::2]:
        for index in case["offsets"]:
            words[index >> 6] |= 1 << (index & 63)
    head = struct.pack(">bBi", vectors(system)["strategy_ordinal"], cases[0]["num_hashes"], len(words))
    return head + struct.pack(f">{len(words)}Q", *words), [element(case) for case in cases]


@for_each("system", ["guava_mitz32", "guava_mitz64"])
def test_guavas_bytes_come_in_and_go_out(bloom: Any, client: redis.Redis, system: str) -> None:
    """Guava's bytes become a filter and come back byte for byte; Guava reads them with more items added."""
    data, items = stream(system, capacity=3000, error_rate=0.03)
    made = from_guava(client, "seen", data)
    assert all(made.contains_many(items[::2]))
    assert to_guava(made) == data
    found: Any = inside(made).layout
    layout = compat.guava(3000, 0.03, strategy=found.strategy)
    f = bloom(client, "seen", layout=layout)
    assert f.contains(items[0])
    f.add_many(items)
    before = dict.fromkeys(offset for case in vectors(system)["cases"] for offset in case["offsets"])
    assert before
    assert all(from_guava(client, "again", to_guava(made)).contains_many(items))


def test_guavas_bytes_overwrite_nothing(client: redis.Redis) -> None:
    """An existing key stays as it is, and no other key remains."""
    client.set("seen", "x")
    with pytest.raises(FilterMismatchError, match="exists already"):
        from_guava(client, "seen", stream("guava_mitz64", capacity=3000, error_rate=0.03)[0])
    assert client.keys("*") == [b"seen"]
    assert client.get("seen") == b"x"


def test_guavas_bytes_over_asyncio(server: Server) -> None:
    """With an asyncio client both functions are awaited."""
    import asyncio

    import redis.asyncio

    data, items = stream("guava_mitz64", capacity=3000, error_rate=0.03)

    async def main() -> None:
        async with redis.asyncio.Redis(unix_socket_path=server.socket) as client:
            f = await from_guava(client, "seen", data)
            assert all(await f.contains_many(items[::2]))
            assert await to_guava(f) == data

    asyncio.run(main())


def test_only_guavas_filters_go_out_to_guava() -> None:
    """Exporting another layout to Guava raises a TypeError."""
    with pytest.raises(TypeError, match="layout=guava"):
        to_guava(BloomFilter(redis.Redis(), "f", layout=compat.go_zero(100)))


def dump(*, items: int, links: list[tuple[dict[str, Any], list[Offsets]]]) -> list[tuple[int, bytes]]:
    """Return the replies of BF.SCANDUMP for links with these items."""
    head, data = struct.pack("<QIII", items, len(links), 5, 2), b""
    for case, offsets in links:
        bits = bytearray(case["num_bits"] // 8)
        for offset in (offset for each in offsets for offset in each):
            bits[offset >> 3] |= 1 << (offset & 7)
        head += struct.pack(
            "<QQQddIQB",
            *(len(bits), case["num_bits"], len(offsets), case["error_rate"], 9.6, case["num_hashes"]),
            *(case["capacity"], case["n2"]),
        )
        data += bits
    return [(1, head), (1 + len(data), data), (0, b"")]


def test_a_redisbloom_filter_is_restored(bloom: Any, client: redis.Redis) -> None:
    """A restored filter of one or several links gives the same answers, in batches too, and is read-only."""
    groups = [
        [
            case
            for case in vectors("redisbloom")["cases"]
            if (case["capacity"], case["num_bits"], case["hash"]) == (capacity, bits, "MurmurHash64A")
        ]
        for capacity, bits in ((1000, 9600), (3000, 21952))
    ]
    for number, used in enumerate((groups[:1], groups)):
        name = f"restored-{number}"
        written = [group[::2] for group in used]
        f = compat.from_redisbloom(
            client,
            name,
            dump(
                items=sum(map(len, written)),
                links=[(group[0], [case["offsets"] for case in group]) for group in written],
            ),
        )
        assert all(f.contains_many([element(case) for group in written for case in group]))
        assert all(f.contains(element(case)) for group in written for case in group)
        absent = [f"absent-{i}" for i in range(500)]
        assert sum(f.contains_many(absent)) < 30
        assert f.contains_many(absent) == [f.contains(item) for item in absent]
        g = bloom(client, name, layout=inside(f).layout)
        assert g.contains(element(written[0][0]))
        assert g.info().count > 10
        calls: list[tuple[Callable[[Any], object], object]] = [
            (f.add, "x"),
            (f.add_many, ["x"]),
            (f.claim, "x"),
        ]
        for call, argument in calls:
            with pytest.raises(TypeError, match="read-only"):
                call(argument)
        with pytest.raises(FilterMismatchError):
            compat.from_redisbloom(client, name, dump(items=1, links=[(used[0][0], [used[0][0]["offsets"]])]))
        assert g.delete()
    assert not client.keys("restored*")
    client.flushall()
    client.set("taken", "x")
    two = [(group[0], [group[0]["offsets"]]) for group in groups]
    with pytest.raises(FilterMismatchError):
        compat.from_redisbloom(client, "taken", dump(items=2, links=two))
    assert client.get("taken") == b"x"
    assert not client.keys("*link*:[0-9]")


@for_each("fate", ["lost", "never"])
def test_a_transfer_that_dies_leaves_nothing_for_ever(any_client: redis.Redis, fate: str) -> None:
    """Wherever a transfer dies, all links exist, or none does and what was written expires."""
    cases = [case for case in vectors("redisbloom")["cases"] if case["num_bits"] in (9600, 21952)]
    links = [(case, [case["offsets"]]) for case in (cases[0], cases[-1])]
    for step in range(30):
        any_client.flushall()
        dying: Any = LosingClient(any_client)
        dying.lose = ["answer"] * step + [fate] * 1000
        with suppress(ConnectionFailedError, OutcomeUnknownError):
            compat.from_redisbloom(dying, "seen", dump(items=2, links=links))
        lasting = [key for key in any_client.scan_iter() if any_client.pttl(key) < 0]
        assert len(lasting) in (0, 2)
        if len(dying.sent) <= step:
            assert len(lasting) == 2
            return
    raise AssertionError("it sends more commands than were tried")


def test_nothing_is_placed_without_memory(any_client: redis.Redis) -> None:
    """Without enough memory the import is refused before the string is allocated."""
    data, _ = stream("guava_mitz64", capacity=3000, error_rate=0.03)
    any_client.config_set("maxmemory-policy", "noeviction")
    any_client.config_set("maxmemory", 1)
    try:
        with pytest.raises(ServerRefusedError):
            from_guava(any_client, "seen", data)
    finally:
        any_client.config_set("maxmemory", 0)
    assert not any_client.dbsize()
