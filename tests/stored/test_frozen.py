"""Keys and files of earlier states of the library can be read by every later state."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import redis

import bloomredis
from bloomredis import LocalFilter, keyed
from tests.support.frozen import CLAIMED, NAME, SECRET, frozen

FROZEN = frozen()
FILES = {name: case for name, case in FROZEN.items() if case["file"]}
ABSENT = [f"absent-{i}" for i in range(10)]
NEW = [f"new-{i}" for i in range(3)]


def options(name: str) -> dict[str, Any]:
    """Return the options that a program needs for a frozen filter."""
    return {"encode": keyed(SECRET)} if name == "encoded" else {}


def place(client: redis.Redis, case: dict[str, Any]) -> None:
    """Write the frozen keys."""
    (keys,) = case["keys"]
    for key, data in keys.items():
        client.set(key, bytes.fromhex(data))


def check(f: Any, items: list[str]) -> None:
    """Test and add items."""
    assert all(f.contains_many(items))
    assert sum(f.contains_many(ABSENT)) <= 2  # false positives: of 10 items at 1%
    assert f.add_many(NEW) == [True] * len(NEW)
    assert f.info().count == len(items) + len(NEW)
    assert f.add_many(NEW + items) == [False] * len(NEW + items)


@pytest.mark.parametrize("name", FROZEN)
def test_frozen_keys(client: redis.Redis, name: str) -> None:
    """Each filter opens, has its items, and accepts others."""
    case = FROZEN[name]
    place(client, case)
    f = getattr(bloomredis, case["class"]).open(client, NAME, **options(name))
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
    place(any_client, FROZEN["claimed"])
    f = bloomredis.BloomFilter.open(any_client, NAME)
    assert f.claim(CLAIMED).state == "busy"
    f.claim(CLAIMED, owner="somebody").commit()
    assert CLAIMED in f


def test_frozen_counters(any_client: redis.Redis) -> None:
    """Items that a frozen filter counted can be removed."""
    place(any_client, FROZEN["counting"])
    f = bloomredis.CountingBloomFilter.open(any_client, NAME)
    items = FROZEN["counting"]["items"]
    assert [f.remove(item) for item in items] == [True] * len(items)
    assert not any(f.contains_many(items))
