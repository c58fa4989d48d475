"""The record of a sharded filter: its bytes, its number of shards, and each item's shard."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from bloomredis import (
    ShardedBloomFilter,
)
from bloomredis.operations.whole.plans import sharded
from bloomredis.stored.shards import record as shard_record
from tests.support.servers import Server
from tests.support.sharding import shard_keys
from tests.support.values import for_each
from tests.support.vectors import vectors

VECTORS: Final = vectors("shards")
BIG: Final[dict[str, Any]] = {
    "capacity": round(50e9 * math.log(2) / 16),
    "error_rate": 2**-16,
    "layout": "classic",
}


@for_each("case", VECTORS["items"])
def test_golden_shards(case: dict[str, Any]) -> None:
    """Each item is in the shard of its vector."""
    root = shard_record.plan_record(1000, 0.01, shards=case["shards"], seed=case["seed"])
    assert root.number(bytes.fromhex(case["item"])) == case["number"]


@for_each("case", VECTORS["keys"])
def test_golden_keys(case: dict[str, Any]) -> None:
    """Each shard has the key of its vector."""
    assert shard_record.key(case["name"], case["shards"], case["number"]) == case["key"]


@for_each("case", VECTORS["records"])
def test_golden_records(case: dict[str, Any]) -> None:
    """Each record has its vector's values, and packs to its bytes."""
    data = bytes.fromhex(case["hex"])
    record = shard_record.parse(data)
    assert list(record.made) == case["made"]
    assert {field: getattr(record, field) for field in case["fields"]} == case["fields"]
    assert record.pack() == data


@for_each("case", VECTORS["shards"])
def test_golden_shard_headers(case: dict[str, Any]) -> None:
    """The header of each shard follows from its record."""
    record = shard_record.parse(bytes.fromhex(case["record"]))
    assert record.shard_made(record.made[case["number"]]).pack().hex() == case["hex"]


@for_each(("at", "byte"), [(10, 0), (71, 0), (70, 17), (75, 1), (8, 0), (12, 2), (91, 0), (91, 2), (95, 1)])
def test_a_damaged_record_is_refused(at: int, byte: int) -> None:
    """A record with an impossible number is refused."""
    data = bytes.fromhex(VECTORS["records"][0]["hex"])
    with pytest.raises(ValueError, match=r"a BloomFilter, not a|parameters|options"):
        shard_record.parse(data[:at] + bytes([byte]) + data[at + 1 :])


def test_items_are_spread_evenly() -> None:
    """The shares of 47 shards differ only by chance (chi-squared, six sigma)."""
    root = shard_record.plan_record(1000, 0.01, shards=47)
    counts = Counter(root.number(b"https://example.org/%d" % i) for i in range(100_000))
    mean = 100_000 / 47
    assert sum((counts[i] - mean) ** 2 / mean for i in range(47)) < 46 + 6 * math.sqrt(2 * 46)


@for_each("nodes", [1, 3, 5, 16])
def test_shards_are_spread_over_the_slots(nodes: int) -> None:
    """Nodes with equal ranges of slots have equally many shards, plus or minus one."""
    slots = [key_slot(shard_record.key("seen", 47, number).encode()) for number in range(47)]
    counts = Counter(slot * nodes // 16_384 for slot in slots)
    assert max(counts.values()) - min(counts[node] for node in range(nodes)) <= 1 + (47 % nodes > 0)


@for_each("share", [1, 5, 60, 1000, 10**6])
@for_each("rate", [0.3, 0.01, 1e-6, 1e-9])
def test_the_margin_makes_up_for_uneven_shares(share: int, rate: float) -> None:
    """The mean rate over shards with a Poisson number of items is at most the configured one."""
    root = shard_record.plan_record(share * 100, rate, shards=100, layout="classic")
    dice, mean = random.Random(0), 0.0
    for _ in range(4000):
        items = max(0, round(dice.gauss(share, math.sqrt(share)))) if share > 50 else poisson(dice, share)
        fill = -math.expm1(-root.head.num_hashes * items / root.head.num_bits)
        mean += fill**root.head.num_hashes / 4000
    assert mean <= rate * 1.02


def poisson(dice: random.Random, mean: float) -> int:
    bound, count, product = math.exp(-mean), 0, dice.random()
    while product > bound:
        count, product = count + 1, product * dice.random()
    return count


def test_the_plan_of_fifty_billion_bits() -> None:
    """It has 47 shards of under 2^30 bits each; three nodes have at most 16 each, 2 GiB."""
    root = shard_record.plan_record(**BIG)
    fields = sharded(root, nodes=3)
    assert root.head.num_hashes == fields.num_hashes == 16
    assert fields.shards == 47
    assert 50e9 <= 47 * root.head.num_bits == fields.num_bits
    assert 47 * root.head.num_bits <= 50.01e9
    assert fields.bytes_per_node == 16 * root.shard.size_bytes
    assert fields.bytes_per_shard == root.shard.size_bytes
    assert root.shard.size_bytes <= (1 << 27) + 64


def test_a_filter_of_fifty_billion_bits(any_server: Server) -> None:
    """It works with the memory of the shards that have items."""
    root = shard_record.plan_record(**BIG)
    items = [item for item in map(str, range(400)) if root.number(item.encode()) in (3, 40)]
    with any_server.client() as client:
        f = ShardedBloomFilter(client, "big", **BIG)
        assert f.add_many([*items, items[0]]) == [True] * len(items) + [False]
        assert f.contains_many([*items, "absent"]) == [True] * len(items) + [False]
        assert ShardedBloomFilter.open(client, "big").info().num_bits == 47 * root.head.num_bits
        assert sum(client.strlen(key) > 64 for key in shard_keys(client, "big")) == 2
        assert f.delete()


@for_each("layout", ["classic", "blocked"])
@for_each(("capacity", "rate"), [(1, 0.5), (10**6, 0.01), (10**10, 0.01), (10**10, 1e-9)])
def test_default_shards_are_as_few_as_fit(layout: str, capacity: int, rate: float) -> None:
    """From 16 on, none has more than 2^30 bits, and one less would not suffice."""
    root = shard_record.plan_record(capacity, rate, layout=layout)
    assert root.head.num_bits <= shard_record.SHARD_BITS
    if root.shards > shard_record.FEWEST_SHARDS:
        fewer = shard_record.plan_record(capacity, rate, shards=root.shards - 1, layout=layout)
        assert fewer.head.num_bits > shard_record.SHARD_BITS


@given(st.lists(st.one_of(st.text("abc", max_size=9), st.binary(max_size=9))), st.integers(1, 4096))
def test_many_items_are_parted_as_one_is(items: list[str | bytes], count: int) -> None:
    """Each item's index appears once, in order, under the shard of the item alone."""
    root = shard_record.plan_record(1000, 0.01, shards=count)
    parted = root.parted(items)
    places = {i: number for number, own in parted.items() for i in own}
    assert places == {
        i: root.number(item.encode() if isinstance(item, str) else item) for i, item in enumerate(items)
    }
    assert all(list(own) == sorted(own) for own in parted.values())
