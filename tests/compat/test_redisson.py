"""Redisson's config: each script compares it, like each of Redisson's own scripts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import redis

from bloomredis import BloomFilter, FilterMismatchError, FilterNotFoundError, compat
from tests.support.systems import LikeRedisson

OURS, OTHER = compat.redisson(3000, 0.03), compat.redisson(100_000, 0.001)
CONFIG = "{seen}:config"


def by_claim(bloom: Any, f: Any) -> None:
    bloom.wait(f.claim("new").commit())


CALLS: dict[str, Callable[[Any, Any], object]] = {
    "add": lambda _, f: f.add("new"),
    "add_many": lambda _, f: f.add_many(["new", "newer"]),
    "contains": lambda _, f: f.contains("new"),
    "contains_many": lambda _, f: f.contains_many(["new", "newer"]),
    "claim": lambda _, f: f.claim("new"),
    "commit": by_claim,
    "update": lambda _, f: f.update([*(f"item-{i}" for i in range(2000)), "new"]),
    "snapshot": lambda _, f: f.snapshot(),
    "clear": lambda _, f: f.clear(),
    "expire": lambda _, f: f.expire(100),
    "info": lambda _, f: f.info(),
    "create": lambda _, f: f.create(),
}
CALL = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
NEEDING = ("snapshot", "info")
"""Calls that need a filter; the others find nothing in a missing one, or create it."""


@CALL
def test_another_config_is_met_by_each_call(bloom: Any, client: redis.Redis, call: Any) -> None:
    """After the system's delete() and tryInit(), each call refuses other parameters before it reads a bit."""
    f = bloom(client, "seen", layout=OURS)
    f.add("a")
    client.delete("seen", CONFIG)
    theirs = LikeRedisson("seen", OTHER.config())
    theirs.put(client, OTHER.offsets("b"))
    before = client.get("seen")
    for _ in range(2):
        with pytest.raises(FilterMismatchError, match="configured with size 1437758, not 21895"):
            call(bloom, f)
    assert client.get("seen") == before
    assert client.hget(CONFIG, "size") == b"1437758"
    assert theirs.has(client, OTHER.offsets("b"))


@pytest.mark.parametrize("verb", CALLS)
def test_no_bit_is_left_without_a_config(bloom: Any, client: redis.Redis, verb: str) -> None:
    """After the system's delete(), the config is written again before the first bit."""
    f = bloom(client, "seen", layout=OURS)
    f.add("a")
    client.delete("seen", CONFIG)
    with pytest.raises(FilterNotFoundError) if verb in NEEDING else nullcontext():
        CALLS[verb](bloom, f)
    assert client.exists("seen") <= client.exists(CONFIG)
    assert not f.contains("a")
    assert f.add("a")
    assert client.hgetall(CONFIG) == {key.encode(): value.encode() for key, value in OURS.config().items()}


def test_a_filter_of_another_config_is_not_deleted(bloom: Any, client: redis.Redis) -> None:
    """An object does not delete a filter whose config has changed."""
    f = bloom(client, "seen", layout=OURS)
    f.add("a")
    client.hset(CONFIG, "hashIterations", "6")
    with pytest.raises(FilterMismatchError):
        f.delete()
    assert client.exists("seen", CONFIG) == 2
    client.hset(CONFIG, "hashIterations", "5")
    assert f.delete()
    assert not f.delete()
    assert not client.exists("seen", CONFIG)


def test_a_commit_meets_another_config(bloom: Any, client: redis.Redis) -> None:
    """The commit of an earlier claim detects another config."""
    f = bloom(client, "seen", layout=OURS)
    claim = f.claim("a")
    client.hset(CONFIG, "hashIterations", "6")
    with pytest.raises(FilterMismatchError, match="hashIterations 6, not 5"):
        bloom.wait(claim.commit())
    assert not client.exists("seen")
    client.hset(CONFIG, "hashIterations", "5")
    bloom.wait(claim.commit())
    assert f.contains("a")


def test_a_config_of_another_type_is_refused(bloom: Any, client: redis.Redis) -> None:
    """A config key of another type is refused and left as it is."""
    f = bloom(client, "seen", layout=OURS)
    f.add("a")
    client.set(CONFIG, "x")
    with pytest.raises(FilterMismatchError):
        f.add("b")
    with pytest.raises(FilterMismatchError):
        f.contains("a")
    assert client.get(CONFIG) == b"x"


def test_a_pipeline_is_refused_too(client: redis.Redis) -> None:
    """A queued call's place in the pipeline's results holds the error."""
    f = BloomFilter(client, "seen", layout=OURS)
    f.add("a")
    client.delete("seen", CONFIG)
    pipe = client.pipeline(transaction=False)
    f.queue_add(pipe, "b")
    with pytest.raises(redis.ResponseError, match="BLOOMCHANGED the config has size missing"):
        pipe.execute()
    assert not client.exists("seen")
    assert f.add("b")


def test_a_size_of_one_digit(bloom: Any, client: redis.Redis) -> None:
    """The shortest possible config is compared like any other."""
    f = bloom(client, "seen", layout=compat.redisson(1, 0.1))
    f.add("a")
    assert f.contains("a")
    client.hset(CONFIG, "size", "5")
    with pytest.raises(FilterMismatchError):
        f.contains("a")
