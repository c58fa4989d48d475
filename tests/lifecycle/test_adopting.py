"""Plain filters that become the oldest layer of a growing filter."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import redis

from bloomredis import (
    BloomFilter,
    CountingBloomFilter,
    FilterLostError,
    FilterMismatchError,
    FilterNotFoundError,
    LocalFilter,
    OutcomeUnknownError,
    ScalingBloomFilter,
)
from tests.support.inside import inside
from tests.support.losing import LosingClient
from tests.support.proxy import dropped, once_executed, passed, proxied
from tests.support.saving import Killed, Mortal
from tests.support.servers import Server
from tests.support.sizes import sized
from tests.support.values import for_each

OLD, NEW = range(2000), range(2000, 9000)
LAYOUTS = pytest.mark.parametrize(
    ("layout", "rate", "block_bits"), [("blocked", 0.01, 128), ("blocked", 1e-6, 256), ("classic", 0.01, 0)]
)


def adopted(bloom: Any, client: redis.Redis, **options: Any) -> Any:
    """Return a growing filter, for either driver."""
    if not hasattr(bloom, "_loop"):
        return ScalingBloomFilter.adopt(client, "seen", **options)
    bloom.wait(__import__("bloomredis.asyncio").asyncio.ScalingBloomFilter.adopt(bloom.twin(client), "seen"))
    return bloom.open(client, "seen", "ScalingBloomFilter")


@LAYOUTS
@sized("capacity", make_test=400, make_test_all=2000)
def test_a_full_filter_grows(
    bloom: Any, client: redis.Redis, *, layout: Any, rate: float, block_bits: int, capacity: int
) -> None:
    """It keeps its items, count, creation and time to live; new items go into further layers.

    Blocks of 128 bits stay as they are: each layer is read by its own header.
    """
    old, new = range(capacity), range(capacity, capacity * 9 // 2)
    f: Any = BloomFilter(client, "seen", capacity=capacity, error_rate=rate, layout=layout, ttl=500)
    f.add_many(old)
    assert inside(f).stored.head.block_bits == block_bits
    before = f.info()
    grown = adopted(bloom, client)
    about = grown.info()
    assert (about.count, about.created_at) == (before.count, before.created_at)
    assert about.error_rate == 2 * rate
    assert before.generation != about.generation
    assert 490 < about.ttl <= 500
    assert all(grown.contains_many(old))
    assert sum(grown.add_many(new)) > 3.4 * capacity
    assert all(grown.contains_many([*old, *new]))
    assert [layer.capacity for layer in grown.info().layers] == [4 * capacity, 2 * capacity, capacity]
    assert sum(grown.contains_many(range(100_000, 100_000 + 5 * capacity))) <= 11 * capacity * rate
    assert ScalingBloomFilter(client, "seen", capacity=capacity, error_rate=2 * rate, layout=layout).contains(
        5
    )


def test_what_has_grown_is_a_filter_like_others(any_client: redis.Redis) -> None:
    """It is saved, restored, cleared and deleted like any filter."""
    BloomFilter(any_client, "seen", capacity=2000, error_rate=0.01).add_many(OLD)
    grown = ScalingBloomFilter.adopt(any_client, "seen", expansion=4, tightening_ratio=0.8)
    assert grown.info().error_rate == pytest.approx(0.05)
    grown.add_many(NEW)
    file = io.BytesIO()
    grown.save(file)
    file.seek(0)
    assert all(ScalingBloomFilter.restore(any_client, "copy", file).contains_many([*OLD, *NEW]))
    grown.clear()
    assert not any(grown.contains_many(OLD))
    assert grown.add_many(OLD)[0]
    assert len(grown.info().layers) == 1
    assert grown.delete()
    assert not list(any_client.scan_iter("*seen*layer*"))


@LAYOUTS
def test_every_call_finds_the_items_of_the_oldest_layer(
    any_client: redis.Redis, layout: Any, rate: float, block_bits: int, tmp_path: Path
) -> None:
    """Single calls, batches, claims and a file find them, though the layers have different blocks."""
    BloomFilter(any_client, "seen", capacity=2000, error_rate=rate, layout=layout).add_many(OLD)
    grown: Any = ScalingBloomFilter.adopt(any_client, "seen")
    grown.add_many(range(2000, 4000))
    layers = inside(grown).stored.record.layers()
    assert [layer.block_bits for layer in layers] == [256 if block_bits else 0, block_bits]
    for item in (0, 1999, 2000, 3999):
        assert grown.contains(item)
        assert not grown.add(item)
        assert grown.claim(item).state == "done"
    assert all(claim.state == "done" for claim in grown.claim_many(range(4000)))
    with grown.claim("new") as claim:
        assert claim
    assert "new" in grown
    grown.save(tmp_path / "seen.bloom")
    local = LocalFilter[int].open(tmp_path / "seen.bloom")
    assert local.contains_many(range(9000)) == grown.contains_many(range(9000))


def test_users_of_the_plain_filter_notice(any_client: redis.Redis) -> None:
    """Their next call raises, and so does every class but the right one."""
    f = BloomFilter(any_client, "seen", capacity=2000, error_rate=0.01)
    f.add("x")
    ScalingBloomFilter.adopt(any_client, "seen")
    for call in (f.add, f.contains):
        with pytest.raises(FilterLostError):
            call("x")
    with pytest.raises(FilterMismatchError, match="open it with ScalingBloomFilter"):
        BloomFilter.open(any_client, "seen")
    assert "x" in ScalingBloomFilter.open(any_client, "seen")


def test_what_cannot_be_adopted(any_client: redis.Redis) -> None:
    """A missing filter, another class, or a rate too low for layers is refused, and stays unchanged."""
    with pytest.raises(FilterNotFoundError, match="no filter 'seen' to adopt"):
        ScalingBloomFilter.adopt(any_client, "seen")
    CountingBloomFilter(any_client, "counting", capacity=100, error_rate=0.01).add("x")
    with pytest.raises(FilterMismatchError, match="CountingBloomFilter"):
        ScalingBloomFilter.adopt(any_client, "counting")
    BloomFilter(any_client, "loose", capacity=100, error_rate=0.6).add("x")
    with pytest.raises(ValueError, match="use a smaller tightening_ratio"):
        ScalingBloomFilter.adopt(any_client, "loose")
    assert "x" in BloomFilter.open(any_client, "loose")
    with pytest.raises(ValueError, match="expansion"):
        ScalingBloomFilter.adopt(any_client, "loose", expansion=0)


@for_each("verb", ["copy", "restore", "adopt"])
def test_a_server_that_goes_after_the_work(any_server: Server, any_client: redis.Redis, verb: str) -> None:
    """The call succeeds, since a repetition would find the name taken."""

    def made(client: Any, name: str) -> Any:
        one = BloomFilter(any_client, name, capacity=1000, error_rate=0.01)
        one.add("x")
        if verb == "copy":
            return BloomFilter.open(client, name).copy(client, f"{name} again")
        if verb == "adopt":
            return ScalingBloomFilter.adopt(client, name)
        file = io.BytesIO()
        one.save(file)
        file.seek(0)
        return BloomFilter.restore(client, f"{name} again", file)

    made(any_client, "loads the scripts")
    with proxied(any_server.socket) as proxy:
        goes = once_executed(lambda: setattr(proxy, "fate", dropped), passed)
        proxy.plan("adopt" if verb == "adopt" else "rename_new", goes)
        found = made(proxy.client(), "seen")
        assert proxy.fate is dropped
        proxy.calm()
        assert found.contains("x")


def test_a_lost_reply_does_not_adopt_twice(any_client: redis.Redis) -> None:
    """If the client gives up, the error says how to find out."""
    BloomFilter(any_client, "seen", capacity=2000, error_rate=0.01).add_many(OLD)
    losing: Any = LosingClient(any_client)
    losing.lose = ["answer"] * 2 + ["lost"] * 9
    ScalingBloomFilter.adopt(any_client, "seen")  # loads the script
    BloomFilter(any_client, "other", capacity=2000, error_rate=0.01).add_many(OLD)
    losing.lose = ["answer", "lost"]
    with pytest.raises(OutcomeUnknownError, match="check the outcome"):
        ScalingBloomFilter.adopt(losing, "other")
    assert all(ScalingBloomFilter.open(any_client, "other").contains_many(OLD))


def test_a_process_that_ends_leaves_one_of_both(any_client: redis.Redis) -> None:
    """Either the plain filter or the growing one exists, with all items."""
    met = set()
    for step in range(20):
        any_client.flushall()
        BloomFilter(any_client, "seen", capacity=2000, error_rate=0.01).add_many(OLD)
        mortal: Any = Mortal(any_client, step)
        try:
            ScalingBloomFilter.adopt(mortal, "seen")
        except Killed:
            kind: Any = ScalingBloomFilter if any_client.exists("{seen}:layer:0") else BloomFilter
            met.add(kind)
            assert all(kind.open(any_client, "seen").contains_many(OLD))
    assert met == {ScalingBloomFilter, BloomFilter}
