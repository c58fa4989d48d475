"""The blocked layout: its sizes, the bits that its scripts set, and its cost on a server."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
import redis

from bloomredis import BloomFilter
from bloomredis.bits import blocked, blocked_sizing, sizing
from bloomredis.stored import planning
from tests.support.replicas import attach, replicated
from tests.support.servers import Server
from tests.support.values import for_each

RATES = [float(rate) for rate in np.geomspace(0.03, 1e-9, 60)] + [1e-2, 1e-3, 1e-4, 1e-6, 1e-9]
FEW = [1e-2, 1e-4, 1e-6, 1e-9]


def expected(layout: blocked.Blocked, items: int) -> float:
    return blocked_sizing.expected_error_rate(items, layout)


@for_each("capacity", [100_000, 5_000_000])
def test_it_takes_little_more_memory(capacity: int) -> None:
    """From an error rate of 0.03 to 1e-9 it takes at most 1.16 times the bits of the classic layout."""
    for rate in RATES:
        assert blocked_sizing.plan_blocked(capacity, rate).num_bits <= 1.16 * sizing.num_bits(capacity, rate)


@for_each("error_rate", [0.5, *RATES, 1e-15])
def test_it_is_sized_for_its_error_rate(error_rate: float) -> None:
    """The theoretical rate at capacity is the configured one; filters of a few blocks may miss it by 15%."""
    assert expected(blocked_sizing.plan_blocked(1_000_000, error_rate), 1_000_000) == pytest.approx(
        error_rate, rel=0.001
    )
    for capacity in (1, 10, 100, 1000):
        layout = blocked_sizing.plan_blocked(capacity, error_rate)
        assert expected(layout, capacity) <= 1.05 * error_rate
    assert expected(layout, capacity) >= 0.85 * error_rate


@for_each("rate", FEW)
def test_the_expected_rate_is_that_of_the_paper(rate: float) -> None:
    """It is within 5% of the formula of Putze, Sanders & Singler, who use the mean share of bits set."""
    items, layout = 1_000_000, blocked_sizing.plan_blocked(1_000_000, rate)
    load = layout.block_bits * layout.blocks_per_item * items / layout.num_bits
    bits = layout.bits_per_block
    poisson, mean = math.exp(-load), 0.0
    for i in range(200):
        mean += poisson * (1 - (1 - 1 / layout.block_bits) ** (i * bits)) ** bits
        poisson *= load / (i + 1)
    assert expected(layout, items) == pytest.approx(mean**layout.blocks_per_item, rel=0.05)


def test_the_limit_of_one_key_is_named() -> None:
    """A filter of more than 2^32 bits is refused, and the error names the number of bits that would fit."""
    with pytest.raises(ValueError, match=r"needs 10168\d{6} bits.*2\^32.*4294966784"):
        blocked_sizing.plan_blocked(1_000_000_000, 0.01)
    assert blocked_sizing.plan_blocked(422_000_000, 0.01).num_bits <= sizing.MAX_BITS


def bits_of(layout: Any, items: list[bytes]) -> bytes:
    """Return the bits that items set, computed from their offsets alone."""
    bits = bytearray(layout.num_bits // 8)
    for item in items:
        for offset in layout.offsets(item):
            bits[offset // 8] |= 0x80 >> offset % 8
    return bytes(bits)


@for_each("rate", FEW)
def test_scripts_set_the_bits_that_offsets_says(client: redis.Redis, rate: float) -> None:
    """After batches, single adds and a claim, the string has those bits and no others, on every server."""
    rng = random.Random(rate)
    items = [rng.randbytes(rng.randrange(30)) for _ in range(400)]
    f = BloomFilter(client, "seen", capacity=400, error_rate=rate, layout="blocked")
    f.add_many(items[:300])
    for item in items[300:399]:
        f.add(item)
    with f.claim(items[399]) as claim:
        assert claim.state in ("claimed", "done")
    assert client.getrange("seen", 64, -1) == bits_of(planning.plan_layout("blocked", 400, rate), items)


@for_each("rate", FEW)
def test_answers_are_exact(client: redis.Redis, rate: float) -> None:
    """Scripts answer as a set of bits in this process does, item by item in order, repeats included."""
    layout = planning.plan_layout("blocked", 100, rate)
    f = BloomFilter(client, "seen", capacity=100, error_rate=rate, layout="blocked")
    ones: set[int] = set()
    items = [random.Random(i).randrange(150) for i in range(300)]
    news = []
    for item in items:
        news.append(not ones.issuperset(layout.offsets(item)))
        ones.update(layout.offsets(item))
    assert f.add_many(items) == news
    assert f.contains_many(range(500)) == [ones.issuperset(layout.offsets(item)) for item in range(500)]


def test_info_expects_what_the_blocks_do(any_server: Server) -> None:
    """The estimated error rate at capacity is the configured one, computed for blocks, not for even fill."""
    with any_server.client() as client:
        f = BloomFilter(client, "seen", capacity=20_000, error_rate=0.001, layout="blocked")
        f.add_many(range(20_000))
        info = f.info()
    assert info.layout == "blocked"
    assert info.approximate_count == pytest.approx(20_000, rel=0.01)
    assert info.estimated_error_rate == pytest.approx(0.001, rel=0.1)
    assert info.fill_ratio**info.num_hashes < 0.0007


def test_a_full_filter_knows_everything(any_client: redis.Redis) -> None:
    """The estimated error rate of a full filter is 1, which needs no estimate of its items."""
    f = BloomFilter(any_client, "seen", capacity=1000, error_rate=0.01, layout="blocked")
    f.update(range(100_000))
    info = f.info()
    assert info.fill_ratio == 1
    assert info.estimated_error_rate == 1


@for_each("error_rate", [1e-3, 1e-6])
@for_each("layout", planning.NAMES)
def test_memory_on_the_server(server: Server, layout: Any, error_rate: float) -> None:
    """A filter takes at most 1.05 times its bits (jemalloc rounds some other sizes up by more)."""
    with server.client() as client:
        f = BloomFilter(client, "seen", capacity=1_000_000, error_rate=error_rate, layout=layout)
        f.add_many(range(2000))
        assert client.memory_usage("seen") <= 1.05 * f.info().num_bits / 8


def offset(client: redis.Redis) -> int:
    return int(client.info("replication")["master_repl_offset"])


def test_what_is_replicated() -> None:
    """A new item of a batch replicates at most 100 bytes, and an item that was added before none."""
    with replicated() as (primary, replica), primary.client() as client:
        attach(primary, replica)
        f = BloomFilter(client, "seen", capacity=1_000_000, error_rate=0.01, layout="blocked")
        f.create()

        def sent(items: range) -> int:
            before, _, after = offset(client), f.add_many(items), offset(client)
            return after - before

        assert sent(range(1000)) <= 100 * 1000
        assert sent(range(1000)) <= 50  # a PING of the primary may come in between
