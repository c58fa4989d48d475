"""The measured false-positive rate is the configured one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from bloomredis import BloomFilter
from bloomredis.bits import blocked_sizing, hashing
from bloomredis.bits.bitmap import Bits
from bloomredis.bits.blocked import Blocked
from bloomredis.stored import planning
from bloomredis.stored.layers.record import ScalingRecord
from tests.support.servers import Server
from tests.support.sizes import long, short
from tests.support.values import for_each

AT_A_TIME = 100_000


def measured(
    server: Server, layout: Any, capacity: int, error_rate: float, *, filters: int, probes: int
) -> float:
    """Fill filters to capacity, probe each with an equal share of absent items, and return the rate."""
    false_positives = 0
    with server.client() as client:
        for number in range(filters):
            f = BloomFilter(client, f"rate-{number}", capacity=capacity, error_rate=error_rate, layout=layout)
            f.create()
            for start in range(0, capacity, 10_000):
                f.add_many(f"{number}-in-{i}" for i in range(start, min(capacity, start + 10_000)))
            for start in range(0, probes // filters, 10_000):
                false_positives += sum(
                    f.contains_many(f"{number}-out-{i}" for i in range(start, start + 10_000))
                )
            f.delete()
    return false_positives / probes


@pytest.mark.parametrize(
    ("error_rate", "capacity", "filters", "probes"),
    [
        short(1e-2, 1_000, 20, 200_000),
        *(
            long(rate, *filters, 1_000_000)
            for rate in (1e-2, 1e-3)
            for filters in ((1_000, 20), (1_000_000, 1))
        ),
    ],
)
@for_each("layout", planning.NAMES)
def test_the_rate_at_capacity(
    any_server: Server, layout: Any, *, error_rate: float, capacity: int, filters: int, probes: int
) -> None:
    """On a server, the measured rate at capacity is within 0.9 to 1.1 of the configured rate."""
    rate = measured(any_server, layout, capacity, error_rate, filters=filters, probes=probes)
    assert 0.9 <= rate / error_rate <= 1.1


@pytest.fixture
def digests(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Sequence[str]]:
    """Make that many random items, without the time to hash them."""
    generator = np.random.default_rng(1)
    monkeypatch.setattr(hashing, "digests", lambda items: generator.bytes(16 * len(items)))
    return lambda count: [""] * count


def found(bits: Bits, digests: Callable[[int], Sequence[str]], probes: int) -> int:
    """Return how many of that many absent items a filter reports as present."""
    sizes = [AT_A_TIME] * (probes // AT_A_TIME) + [probes % AT_A_TIME]
    return sum(int(bits.has_many(digests(size)).sum()) for size in sizes)


@pytest.mark.faults
@pytest.mark.parametrize(
    ("capacity", "error_rate", "probes"),
    [
        short(1_000, 1e-2, 1_000_000),
        short(1_000, 1e-3, 4_000_000),
        short(200_000, 1e-2, 1_000_000),
        long(1_000, 1e-4, 15_000_000),
        long(200_000, 1e-3, 4_000_000),
        long(200_000, 1e-4, 15_000_000),
    ],
)
@pytest.mark.parametrize("layout", planning.NAMES)
def test_the_rate_in_simulated_filters(
    digests: Callable[[int], Sequence[str]], layout: Any, capacity: int, error_rate: float, probes: int
) -> None:
    """With enough probes for a chance error of 3% the rate is within 0.9 to 1.1 of the configured rate."""
    filters = 10 if capacity > AT_A_TIME else 100  # the rates of small filters differ more
    false_positives = 0
    for _ in range(filters):
        bits = Bits(planning.plan_layout(layout, capacity, error_rate))
        bits.add_many(digests(capacity))
        false_positives += found(bits, digests, probes // filters)
    assert 0.9 <= false_positives / probes / error_rate <= 1.1


@pytest.mark.faults
@pytest.mark.parametrize(
    ("capacity", "error_rate"),
    [
        (short if {capacity, rate} <= {1, 100, 1e-2, 1e-4} else long)(capacity, rate)
        for capacity in (1, 4, 32, 100)
        for rate in (1e-2, 1e-3, 1e-4)
    ],
)
@pytest.mark.parametrize("layout", planning.NAMES)
def test_the_rate_of_small_filters(
    digests: Callable[[int], Sequence[str]], layout: Any, capacity: int, error_rate: float
) -> None:
    """The rate of a small filter is at most the configured one, plus four deviations."""
    filters, each = 200, max(1_000, round(1 / error_rate))
    false_positives = 0
    for _ in range(filters):
        bits = Bits(planning.plan_layout(layout, capacity, error_rate))
        bits.add_many(digests(capacity))
        false_positives += found(bits, digests, each)
    expected = filters * each * error_rate
    chance = math.sqrt(expected + filters * (each * error_rate * SPREAD[layout]) ** 2 / capacity)
    assert false_positives <= 1.02 * expected + 4 * chance


SPREAD = {"classic": 1.8, "blocked": 5.6}
"""Deviation of the rate of one filter of n items, in units of the rate over sqrt(n)."""


@pytest.mark.faults
@pytest.mark.parametrize("layout", planning.NAMES)
@pytest.mark.parametrize("capacity", [1_000, 10_000])
def test_the_spread_of_rates(digests: Callable[[int], Sequence[str]], layout: Any, capacity: int) -> None:
    """The rates of filters with the same parameters differ by chance, by no more than `SPREAD`."""
    for error_rate in (1e-2, 1e-3):
        rates = []
        for _ in range(100):
            bits = Bits(planning.plan_layout(layout, capacity, error_rate))
            bits.add_many(digests(capacity))
            rates.append(rate_of(bits))
        assert np.std(rates) / np.mean(rates) * math.sqrt(capacity) <= 1.2 * SPREAD[layout]


def rate_of(bits: Bits) -> float:
    """Return the probability of a false positive, computed from the bits that are set."""
    ones = np.unpackbits(bits.array)[: bits.layout.num_bits]
    if isinstance(bits.layout, Blocked):
        k, size = bits.layout.bits_per_block, bits.layout.block_bits
        chances = np.array([math.comb(set_bits, k) / math.comb(size, k) for set_bits in range(size + 1)])
        each = chances[ones.reshape(-1, size).sum(axis=1)]
        return math.prod(float(each[first : first + size].mean()) for first, size in bits.layout.regions)
    return float(ones.mean()) ** bits.layout.num_hashes


@pytest.mark.parametrize(("expansion", "ratio", "layers"), [(2, 0.5, 5), (1, 0.9, 30), (3, 0.3, 3)])
@pytest.mark.parametrize("layout", planning.NAMES)
def test_the_rate_of_scaling_filters(
    digests: Callable[[int], Sequence[str]], layout: Any, expansion: int, ratio: float, layers: int
) -> None:
    """The layers together have the predicted rate, within four deviations, below the configured one."""
    head = planning.whole(10_000, 1e-2, layout, ScalingRecord.kind)
    record = ScalingRecord(head=head, expansion=expansion, tightening_ratio=ratio).complete()
    expected = rate = variance = 0.0
    for layer in map(record.planned, range(layers)):
        bits = Bits(planning.stored(layer))
        for start in range(0, layer.capacity, AT_A_TIME):
            bits.add_many(digests(min(AT_A_TIME, layer.capacity - start)))
        rate += rate_of(bits)
        expected += planning.expected_error_rate(layer, layer.capacity)
        variance += (layer.error_rate * SPREAD[layout]) ** 2 / layer.capacity
    assert expected < 1e-2 * (1 - ratio**layers)
    assert expected > 0.94 * 1e-2 * (1 - ratio**layers)
    assert abs(rate - expected) <= 4 * math.sqrt(variance)


@pytest.mark.faults
def test_the_rate_of_several_blocks(digests: Callable[[int], Sequence[str]]) -> None:
    """With twice the planned items a configured 1e-6 is frequent enough to measure, and as predicted."""
    layout = blocked_sizing.plan_blocked(50_000, 1e-6)
    bits = Bits(layout)
    bits.add_many(digests(100_000))
    theory = blocked_sizing.expected_error_rate(100_000, layout)
    assert 0.9 <= found(bits, digests, 5_000_000) / 5_000_000 / theory <= 1.1
