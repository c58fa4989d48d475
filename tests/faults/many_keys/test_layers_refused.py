"""A server refuses to create a layer, for lack of memory or a right: nothing has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from bloomredis import (
    BloomFilter,
    CountingBloomFilter,
    RotatingBloomFilter,
    ScalingBloomFilter,
    ServerRefusedError,
    ShardedBloomFilter,
)
from tests.faults.one_key.test_partial_rights import RIGHTS, refusal_of, without
from tests.support.servers import Server

ITEMS = [f"item-{number}" for number in range(250)]
SIZE: dict[str, Any] = {"capacity": 100, "error_rate": 1e-6}
KINDS: dict[str, Callable[[Any], Any]] = {
    "scaling": lambda client: ScalingBloomFilter(client, "seen", expansion=1000, **SIZE),
    "scaling, with a ttl": lambda client: ScalingBloomFilter(client, "seen", ttl=1000, **SIZE),
    "rotating": lambda client: RotatingBloomFilter(client, "seen", window=3600, **SIZE),
}
NEW: dict[str, Callable[[Any], Any]] = KINDS | {
    "plain": lambda client: BloomFilter(client, "seen", **SIZE),
    "plain, with a ttl": lambda client: BloomFilter(client, "seen", ttl=1000, **SIZE),
    "counting, with a ttl": lambda client: CountingBloomFilter(client, "seen", ttl=1000, **SIZE),
    "sharded, with a ttl": lambda client: ShardedBloomFilter(client, "seen", ttl=1000, **SIZE),
}


@contextmanager
def out_of_memory(client: redis.Redis) -> Iterator[None]:
    """Set the server's memory limit below its use."""
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", 1)
    try:
        yield
    finally:
        client.config_set("maxmemory", 0)


@pytest.fixture
def admin(server: Server) -> Iterator[redis.Redis]:
    """A client with all rights, for each real server in turn."""
    with server.client() as made:
        yield made


def stored(client: redis.Redis) -> dict[bytes, tuple[bytes | None, bool]]:
    """Return each key of the filter with its value, and whether it expires."""
    keys = (key for key in client.scan_iter() if b"receipt" not in key and b"claim" not in key)
    return {key: (client.dump(key), client.pttl(key) > 0) for key in keys}


@pytest.mark.parametrize("kind", NEW)
def test_nothing_is_made_without_memory(admin: redis.Redis, kind: str) -> None:
    """Without memory neither a filter nor a layer is created, however its time to live is set."""
    with out_of_memory(admin), pytest.raises(ServerRefusedError) as caught:
        NEW[kind](admin).create()
    assert caught.value.word == "OOM"
    assert not admin.dbsize()


@pytest.mark.parametrize("kind", KINDS)
def test_no_layer_is_begun_without_memory(admin: redis.Redis, kind: str) -> None:
    """The item is refused and the filter unchanged; with memory the same call succeeds."""
    f = KINDS[kind](admin)
    item = fill(f)
    before, used = stored(admin), admin.info("memory")["used_memory"]
    with out_of_memory(admin):
        for _ in range(3):
            with pytest.raises(ServerRefusedError) as caught:
                f.add("x")
            assert caught.value.word == "OOM"
        assert f.contains(item)
    assert stored(admin) == before
    assert admin.info("memory")["used_memory"] < used + 200_000  # the scripts that the server compiles
    assert f.add("x")


def fill(f: Any) -> str:
    """Add items until the next new item needs a layer; return the last of them."""
    f.add_many(ITEMS[:98])
    return next(item for item in ITEMS[98:] if f.add(item) and layer_is_full(f))


def layer_is_full(f: Any) -> bool:
    newest = f.info().layers[0]
    return bool(newest.count == newest.capacity)


@pytest.mark.parametrize("kind", KINDS)
def test_no_filter_is_emptied_without_memory(admin: redis.Redis, kind: str) -> None:
    """Clearing is refused as it is for one key, and everything remains."""
    f = KINDS[kind](admin)
    f.add_many(ITEMS)
    before = stored(admin)
    with out_of_memory(admin), pytest.raises(ServerRefusedError):
        f.clear()
    assert stored(admin) == before
    assert KINDS[kind](admin).contains("item-1")


def test_damage_stays_damage_without_memory(admin: redis.Redis) -> None:
    """Recreating the filter is refused, and succeeds when there is memory."""
    f = ScalingBloomFilter(admin, "seen", on_lost="recreate", **SIZE)
    f.add_many(ITEMS)
    admin.delete("{seen}:layer:0")
    with out_of_memory(admin), pytest.raises(ServerRefusedError):
        f.add("x")
    assert f.add("x")
    assert f.info().count == 1


CALLS: dict[str, Callable[[Any], Any]] = {
    "add": lambda f: f.add("x"),
    "clear": lambda f: f.clear(),
    "delete": lambda f: f.delete(),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verb", CALLS)
def test_a_missing_right_changes_nothing(server: Server, admin: redis.Redis, kind: str, verb: str) -> None:
    """Each missing right leaves the filter unchanged, when a layer begins or all are deleted."""
    for right in RIGHTS:
        admin.flushall()
        f = KINDS[kind](admin)
        fill(f)
        before = stored(admin)
        with without(server, right) as client:
            refusal = refusal_of(lambda: CALLS[verb](KINDS[kind](client)))
        assert refusal is None or getattr(refusal, "word", "") == "NOPERM", (right, refusal)
        if refusal is not None:
            assert stored(admin) == before, right


@pytest.mark.parametrize("kind", ["scaling, with a ttl", "rotating"])
def test_no_layer_stays_without_its_expiry(server: Server, admin: redis.Redis, kind: str) -> None:
    """Whichever right is missing at the creation of a filter, all keys left over expire."""
    for right in RIGHTS:
        admin.flushall()
        with without(server, right) as client:
            refusal_of(KINDS[kind](client).create)
        assert all(expires for _, expires in stored(admin).values()), right
