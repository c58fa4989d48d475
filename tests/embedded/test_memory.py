"""Each verb of each kind of filter in this process, on memory://, where scripts run in another Lua."""

from __future__ import annotations

import io
from typing import Any, Final

import bloomredis
from bloomredis import connect
from tests.support.values import for_each

SIZE: Final[dict[str, Any]] = {"capacity": 100, "error_rate": 1e-6}
KINDS: Final[dict[str, dict[str, Any]]] = {
    "BloomFilter": {},
    "ScalingBloomFilter": {},
    "RotatingBloomFilter": {"window": 3600},
    "CountingBloomFilter": {},
    "ShardedBloomFilter": {"shards": 2},
}


@for_each("kind", KINDS)
def test_items(bloom: Any, kind: str) -> None:
    """Items are added and asked about, one by one, in batches, as a column and as a stream."""
    f = bloom(connect("memory://"), "seen", kind=kind, **SIZE, **KINDS[kind])
    f.create()
    assert [f.add("a"), f.add("a"), f.contains("a"), "b" in f] == [True, False, True, False]
    assert f.add_many(["a", "b", "b"]) == [False, True, False]
    assert f.contains_many(["b", "c"]) == [True, False]
    assert list(f.dedupe(["b", "c", "c"])) == ["c"]
    assert f.add_mask(["c", "d"]).tolist() == [False, True]
    assert f.contains_mask(["d", "e"]).tolist() == [True, False]
    assert f.update(map(str, range(20))) == 20
    assert [f.add("19"), f.info().capacity] == [False, 100]


@for_each("kind", KINDS)
def test_claims(bloom: Any, kind: str) -> None:
    """Items are claimed, extended, released and committed, one by one and in batches."""
    f = bloom(connect("memory://"), "seen", kind=kind, **SIZE, **KINDS[kind])
    claim = f.claim("a")
    bloom.wait(claim.extend(60))
    assert [f.claim("a").state, bool(bloom.wait(claim.commit())), f.claim("a").state] == [
        "busy",
        False,
        "done",
    ]
    claims = f.claim_many(["a", "b", "c", "d"])
    assert [each.state for each in claims] == ["done", "claimed", "claimed", "claimed"]
    f.extend_many(claims[1:], 60)
    f.release_many(claims[2:3])
    bloom.wait(claims[3].release())
    f.commit_many(claims[1:2])
    assert f.contains_many(["a", "b", "c", "d"]) == [True, True, False, False]


@for_each("kind", KINDS)
def test_the_filter_as_a_whole(bloom: Any, kind: str) -> None:
    """A filter is saved, restored, copied, emptied, given an end, and deleted."""
    client = connect("memory://")
    f = bloom(client, "seen", kind=kind, **SIZE, **KINDS[kind])
    f.add_many(map(str, range(20)))
    f.save(file := io.BytesIO())
    file.seek(0)
    for other in (bloom.restore(client, "restored", file, kind), bloom.copy(f, client, "copy")):
        assert other.contains_many(["0", "19", "x"]) == [True, True, False]
    if kind != "RotatingBloomFilter":
        f.expire(3600)
        assert 0 < f.info().ttl <= 3600
    f.clear()
    assert [f.add("0"), f.delete(), f.delete()] == [True, True, False]


@for_each("kind", ["BloomFilter", "ShardedBloomFilter"])
def test_merges(bloom: Any, kind: str) -> None:
    """A filter gets the items of another one."""
    client = connect("memory://")
    one, other = (bloom(client, name, kind=kind, **SIZE, **KINDS[kind]) for name in ("one", "other"))
    other.add_many(["a", "b"])
    one.add("c")
    one.merge(getattr(other, "_filter", other))
    assert one.contains_many(["a", "b", "c", "d"]) == [True, True, True, False]


@for_each("kind", ["BloomFilter", "CountingBloomFilter", "ShardedBloomFilter"])
def test_queued_calls(kind: str) -> None:
    """Calls are queued on the caller's pipeline."""
    client = connect("memory://")
    f = getattr(bloomredis, kind)(client, "seen", **SIZE, **KINDS[kind])
    f.add("a")
    pipe = client.pipeline()
    f.queue_add(pipe, "b")
    f.queue_contains(pipe, "a")
    f.queue_contains(pipe, "c")
    assert pipe.execute() == [1, 1, 0]


def test_what_one_kind_has(bloom: Any) -> None:
    """Items are removed from a counting filter; a filter is read into this process, and begins to grow."""
    client = connect("memory://")
    counting = bloom(client, "counting", kind="CountingBloomFilter", **SIZE)
    assert [counting.add("a"), counting.remove("a"), counting.remove("a")] == [True, True, False]
    f = bloom(client, "seen", **SIZE)
    f.add("a")
    assert f.snapshot().contains_many(["a", "b"]) == [True, False]
    grown = bloomredis.ScalingBloomFilter.adopt(client, "seen")
    assert grown.contains_many(["a", "b"]) == [True, False]
