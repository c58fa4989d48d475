"""Keys and files of earlier states of the library can be read by every later state."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import bloomredis
from bloomredis import LocalFilter, keyed
from tests.support.frozen import CLAIMED, NAME, SECRET, frozen
from tests.support.servers import Server, binaries, running

FROZEN = frozen()
FILES = {name: case for name, case in FROZEN.items() if case["file"]}
ABSENT = [f"absent-{i}" for i in range(10)]
NEW = [f"new-{i}" for i in range(3)]


def options(name: str) -> dict[str, Any]:
    """Return the options that a program needs for a frozen filter."""
    return {"encode": keyed(SECRET)} if name == "encoded" else {}


@pytest.fixture
def clients(server: Server) -> Iterator[list[redis.Redis]]:
    """Clients of two servers."""
    with server.client() as first, running(binaries()["redis-6.2"]) as other, other.client() as second:
        yield [first, second]


def placed(clients: list[redis.Redis], case: dict[str, Any]) -> Any:
    """Put the frozen keys on as many servers as they came from; return the filter's clients."""
    own = clients[: len(case["keys"])]
    for client, keys in zip(own, case["keys"], strict=True):
        for key, data in keys.items():
            client.set(key, bytes.fromhex(data))
    return own if len(own) > 1 else own[0]


def check(f: Any, items: list[str]) -> None:
    """Test and add items."""
    assert all(f.contains_many(items))
    assert sum(f.contains_many(ABSENT)) <= 2  # false positives: of 10 items at 1%
    assert f.add_many(NEW) == [True] * len(NEW)
    assert f.info().count == len(items) + len(NEW)
    assert f.add_many(NEW + items) == [False] * len(NEW + items)


@pytest.mark.parametrize("name", FROZEN)
def test_frozen_keys(clients: list[redis.Redis], name: str) -> None:
    """Each filter opens, has its items, and accepts others."""
    case = FROZEN[name]
    own = placed(clients, case)
    f = getattr(bloomredis, case["class"]).open(own, NAME, **options(name))
    check(f, case["items"])


@pytest.mark.parametrize("name", FILES)
def test_frozen_files(any_client: redis.Redis, tmp_path: Path, name: str) -> None:
    """Each filter from a file does too, and the file has the items without a server."""
    case = FILES[name]
    data = bytes.fromhex(case["file"])
    of = getattr(bloomredis, case["class"])
    check(of.restore(any_client, NAME, io.BytesIO(data), **options(name)), case["items"])
    (tmp_path / "file").write_bytes(data)
    assert all(LocalFilter.open(tmp_path / "file", **options(name)).contains_many(case["items"]))


def test_a_frozen_claim(any_client: redis.Redis) -> None:
    """Its item is busy for everybody but its holder."""
    placed([any_client], FROZEN["claimed"])
    f = bloomredis.BloomFilter.open(any_client, NAME)
    assert f.claim(CLAIMED).state == "busy"
    f.claim(CLAIMED, owner="somebody").commit()
    assert CLAIMED in f


def test_frozen_counters(any_client: redis.Redis) -> None:
    """Items that a frozen filter counted can be removed."""
    placed([any_client], FROZEN["counting"])
    f = bloomredis.CountingBloomFilter.open(any_client, NAME)
    items = FROZEN["counting"]["items"]
    assert [f.remove(item) for item in items] == [True] * len(items)
    assert not any(f.contains_many(items))
