"""Calls that only read never create a filter."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
import redis

from bloomredis import BloomFilter, FilterLostError, FilterNotFoundError, compat
from tests.support.modules import needs_module

SIZES: Final[dict[str, Any]] = {"capacity": 1000, "error_rate": 0.01}
KINDS: Final[dict[str, dict[str, Any]]] = {
    "plain": SIZES,
    "classic": {**SIZES, "layout": "classic"},
    "cached": {**SIZES, "local_cache": True},
    "module": {**SIZES, "layout": "module"},
    "redisson": {"layout": compat.redisson(1000, 0.01)},
    "counting": {"kind": "CountingBloomFilter", **SIZES},
    "scaling": {"kind": "ScalingBloomFilter", **SIZES},
    "rotating": {"kind": "RotatingBloomFilter", **SIZES, "window": 3600},
    "sharded": {"kind": "ShardedBloomFilter", **SIZES, "shards": 3},
}
TESTS: Final[dict[str, tuple[Callable[[Any], Any], Any]]] = {
    "contains": (lambda f: f.contains("a"), False),
    "contains_many": (lambda f: f.contains_many(["a", "b"]), [False, False]),
    "contains_many of a large batch": (lambda f: f.contains_many(range(3000)), [False] * 3000),
    "contains_mask": (lambda f: f.contains_mask(np.arange(3)).tolist(), [False] * 3),
}
"""Calls about items, and their answers if there is no filter."""
READS: Final[dict[str, Callable[[Any, Any, redis.Redis], Any]]] = {
    "info": lambda _, f, __: f.info(),
    "save": lambda _, f, __: f.save(io.BytesIO()),
    "copy": lambda bloom, f, client: bloom.copy(f, client, "copy"),
    "snapshot": lambda _, f, __: f.snapshot(),
    "queue_contains": lambda _, f, client: f.queue_contains(client.pipeline(), "a"),
}
"""Calls that need a filter."""
LACKING: Final[dict[str, set[str]]] = {
    "module": {"save", "copy", "snapshot"},
    "redisson": {"save", "copy"},
    "counting": {"snapshot"},
    "scaling": {"snapshot", "queue_contains"},
    "rotating": {"snapshot", "queue_contains"},
    "sharded": {"snapshot"},
}
"""The calls that a kind does not have."""


PAIRS: Final = [(kind, read) for kind in KINDS for read in READS if read not in LACKING.get(kind, ())]


def made(bloom: Any, client: redis.Redis, kind: str, **options: Any) -> Any:
    """Return a filter of a kind that has the parameters to create it."""
    if kind == "module":
        needs_module(client)
    return bloom(client, "seen", **{**KINDS[kind], **options})


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_item_is_in_no_filter_that_is_missing(
    bloom: Any, client: redis.Redis, kind: str, test: str
) -> None:
    """The answer is False, and the next add creates the filter."""
    call, answer = TESTS[test]
    seen = made(bloom, client, kind)
    assert call(seen) == answer
    assert client.keys() == []
    assert seen.add("a") is True
    assert seen.contains("a") is True


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "redisson"])
def test_every_class_opens_what_is_stored(bloom: Any, client: redis.Redis, kind: str) -> None:
    """Without sizes, which all go together; a missing filter is an error of every call."""
    called = {"kind": KINDS[kind].get("kind", "BloomFilter")}
    layout = {"layout": "module"} if kind == "module" else {}
    if kind == "module":
        needs_module(client)
    opened = bloom(client, "seen", **called, **layout)
    for call in (lambda: opened.contains("a"), lambda: opened.add("a"), opened.info):
        with pytest.raises(FilterNotFoundError, match="give capacity= and error_rate= to "):
            call()
    made(bloom, client, kind).add("a")
    assert (opened.contains("a"), opened.add("a"), opened.info().capacity) == (True, False, 1000)


def test_a_size_of_a_new_filter_needs_the_others(bloom: Any, client: redis.Redis) -> None:
    """What is read from the server cannot be given."""
    with pytest.raises(ValueError, match="window is read from the server"):
        bloom(client, "seen", kind="RotatingBloomFilter", window=60)
    with pytest.raises(ValueError, match="tightening_ratio is read from the server"):
        bloom(client, "seen", kind="ScalingBloomFilter", tightening_ratio=0.9)
    with pytest.raises(ValueError, match="error_rate is missing"):
        bloom(client, "seen", kind="ScalingBloomFilter", capacity=1000)


@pytest.mark.parametrize(("kind", "read"), PAIRS)
def test_what_needs_a_filter_creates_none(bloom: Any, client: redis.Redis, kind: str, read: str) -> None:
    """The error names what creates it."""
    seen = made(bloom, client, kind)
    with pytest.raises(FilterNotFoundError, match=r"'seen.*create\(\) creates it"):
        READS[read](bloom, seen, client)
    assert client.keys() == []


def test_a_missing_source_of_a_merge(client: redis.Redis) -> None:
    """The merge fails."""
    seen, source = (BloomFilter(client, name, **SIZES) for name in ("seen", "source"))
    seen.add("a")
    with pytest.raises(FilterNotFoundError, match="'source'"):
        seen.merge(source)
    assert not client.exists("source")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "redisson"])
def test_a_lost_filter_is_not_created_by_a_test(bloom: Any, client: redis.Redis, kind: str) -> None:
    """A test reports the loss; with `on_lost="recreate"` it finds nothing, and the next add creates it."""
    raising, going_on = (made(bloom, client, kind, on_lost=what) for what in ("raise", "recreate"))
    for each in (raising, going_on):
        each.add("a")
        assert each.contains("a")
    client.flushdb()
    for _ in range(2):
        with pytest.raises(FilterLostError):
            raising.contains_many(["b", "c"])
        assert going_on.contains_many(["b", "c"]) == [False, False]
    assert client.keys() == []
    assert going_on.add("a") is True
    assert going_on.contains("a")
