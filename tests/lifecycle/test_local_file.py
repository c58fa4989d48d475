"""Saved filters that are opened without a server."""

from __future__ import annotations

import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import redis

import bloomredis
from bloomredis import (
    BloomFilter,
    CountingBloomFilter,
    FilterMismatchError,
    LocalFilter,
    ShardedBloomFilter,
    keyed,
)
from tests.support.saving import ABSENT, ITEMS, KINDS, comparable

ASKED = [*ITEMS, *ABSENT]


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_answers_as_the_filter(any_client: redis.Redis, kind: str, tmp_path: Path) -> None:
    """A file gives the filter's answers, singly, in batches and by info, also after pickling."""
    of, parameters = KINDS[kind]
    f = getattr(bloomredis, of)(any_client, "seen", **parameters)
    f.add_many(ITEMS)
    f.save(tmp_path / "seen.bloom")
    wanted, about = f.contains_many(ASKED), f.info()
    any_client.flushall()
    local: Any = LocalFilter.open(tmp_path / "seen.bloom")
    assert local.contains_many(ASKED) == wanted
    assert [local.contains(item) for item in ASKED[1400:1600]] == wanted[1400:1600]
    assert comparable(local.info()) == comparable(about)
    assert local.contains_many([]) == []
    assert pickle.loads(pickle.dumps(local)).contains_many(ASKED) == wanted  # noqa: S301 - its own pickle


def test_shards_that_were_never_made_have_nothing(any_client: redis.Redis, tmp_path: Path) -> None:
    """The file of a filter without items finds none."""
    ShardedBloomFilter(any_client, "seen", capacity=5_000, error_rate=0.01).create()
    f = ShardedBloomFilter.open(any_client, "seen")
    f.save(tmp_path / "seen.bloom")
    local: Any = LocalFilter.open(tmp_path / "seen.bloom")
    assert not any(local.contains_many(ASKED))
    assert 5 not in local
    assert not any(
        ShardedBloomFilter.restore(any_client, "copy", tmp_path / "seen.bloom").contains_many(ASKED)
    )


def test_a_file_is_checked(any_client: redis.Redis, tmp_path: Path) -> None:
    """A changed file is refused unless the caller allows it; a cut one always is."""
    f = BloomFilter(any_client, "seen", capacity=5_000, error_rate=0.01)
    f.add("x")
    path = tmp_path / "seen.bloom"
    f.save(path)
    data = path.read_bytes()
    path.write_bytes(data[:3000] + bytes([data[3000] ^ 1]) + data[3001:])
    with pytest.raises(ValueError, match="it was changed"):
        LocalFilter.open(path)
    assert "x" in LocalFilter.open(path, verify=False)
    path.write_bytes(data[:-1])
    for verify in (True, False):
        with pytest.raises(ValueError, match=r"was truncated|should have"):
            LocalFilter.open(path, verify=verify)


def test_a_file_has_its_own_encoding(any_client: redis.Redis, tmp_path: Path) -> None:
    """The file uses the given `encode`."""
    encode = keyed(b"0123456789abcdef")
    f = BloomFilter[Any](any_client, "seen", capacity=1000, error_rate=1e-6, encode=encode)
    f.add("x")
    f.save(tmp_path / "seen.bloom")
    assert "x" in LocalFilter[Any].open(tmp_path / "seen.bloom", encode=encode)
    for other in (None, str.encode, keyed(b"another secret, as long")):
        with pytest.raises(FilterMismatchError, match="encode"):
            LocalFilter[Any].open(tmp_path / "seen.bloom", encode=other)


def test_a_file_of_counters_takes_a_quarter_in_memory(any_client: redis.Redis, tmp_path: Path) -> None:
    """Opening a file takes a quarter of its size in memory, not several times the file."""
    f = CountingBloomFilter(any_client, "seen", capacity=1_500_000, error_rate=1e-3)
    f.add_many(ITEMS)
    f.save(tmp_path / "seen.bloom")
    size = (tmp_path / "seen.bloom").stat().st_size
    tracemalloc.start()
    try:
        opened = LocalFilter.open(tmp_path / "seen.bloom", verify=False)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert all(opened.contains_many(ITEMS))
    assert not any(opened.contains_many(ABSENT))
    assert size > 10_000_000
    assert most < 0.7 * size
