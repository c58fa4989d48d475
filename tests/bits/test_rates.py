"""The false-positive rate that was asked for is the one that is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from bloomredis import BloomFilter
from bloomredis.bits import blocked_sizing, hashing
from bloomredis.bits.bitmap import Bits
from bloomredis.stored import planning
from tests.support.servers import Server
from tests.support.sizes import long, short

AT_A_TIME = 100_000


def measured(
    server: Server, layout: str, capacity: int, error_rate: float, *, filters: int, probes: int
) -> float:
    """Fill filters to capacity and probe each with its share of so many other items."""
    false_positives = 0
    with server.client() as client:
        for number in range(filters):
            f = BloomFilter(client, f"rate-{number}", capacity=capacity, error_rate=error_rate, layout=layout)
            f.reserve()
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
@pytest.mark.parametrize("layout", planning.NAMES)
def test_the_rate_at_capacity(
    any_server: Server, layout: str, *, error_rate: float, capacity: int, filters: int, probes: int
) -> None:
    """Over that many probes of a server it is within 0.9 to 1.1 of the configured rate."""
    rate = measured(any_server, layout, capacity, error_rate, filters=filters, probes=probes)
    assert 0.9 <= rate / error_rate <= 1.1


@pytest.fixture
def digests(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Sequence[str]]:
    """Make so many random items, without the time that it takes to hash any."""
    generator = np.random.default_rng(1)
    monkeypatch.setattr(hashing, "digests", lambda items: generator.bytes(16 * len(items)))
    return lambda count: [""] * count


def found(bits: Bits, digests: Callable[[int], Sequence[str]], probes: int) -> int:
    """Return how many of so many other items are taken for present."""
    sizes = [AT_A_TIME] * (probes // AT_A_TIME) + [probes % AT_A_TIME]
    return sum(int(bits.has_many(digests(size)).sum()) for size in sizes)


@pytest.mark.parametrize(("error_rate", "probes"), [(1e-2, 1_000_000), (1e-3, 4_000_000), (1e-4, 15_000_000)])
@pytest.mark.parametrize("capacity", [1_000, 200_000])
@pytest.mark.parametrize("layout", planning.NAMES)
def test_the_rate_in_simulated_filters(
    digests: Callable[[int], Sequence[str]], layout: str, capacity: int, error_rate: float, probes: int
) -> None:
    """With enough probes for a chance error of 3% at most it is within 0.9 to 1.1 of the configured rate."""
    filters = 10 if capacity > AT_A_TIME else 100  # small ones differ more from each other
    false_positives = 0
    for _ in range(filters):
        bits = Bits(planning.plan(layout, capacity, error_rate))
        bits.add_many(digests(capacity))
        false_positives += found(bits, digests, probes // filters)
    assert 0.9 <= false_positives / probes / error_rate <= 1.1


def test_the_rate_of_several_blocks(digests: Callable[[int], Sequence[str]]) -> None:
    """With twice the items planned, 1e-6 becomes frequent enough to count; it is what theory says."""
    layout = blocked_sizing.plan(50_000, 1e-6)
    bits = Bits(layout)
    bits.add_many(digests(100_000))
    theory = blocked_sizing.expected_error_rate(100_000, layout.num_bits // 256, 2, layout.bits_per_block)
    assert 0.9 <= found(bits, digests, 10_000_000) / 10_000_000 / theory <= 1.1
