"""The false-positive rate that was asked for is the one that is measured."""

from __future__ import annotations

import pytest

from bloomredis import BloomFilter
from tests.servers import Server

PROBES = 1_000_000


def measured(server: Server, capacity: int, error_rate: float, filters: int) -> float:
    """Fill filters to capacity and probe each with its share of a million other items."""
    false_positives = 0
    with server.client() as client:
        for number in range(filters):
            f = BloomFilter(client, f"rate-{number}", capacity=capacity, error_rate=error_rate)
            f.delete()
            for start in range(0, capacity, 10_000):
                f.add_many(f"{number}-in-{i}" for i in range(start, min(capacity, start + 10_000)))
            for start in range(0, PROBES // filters, 10_000):
                false_positives += sum(
                    f.contains_many(f"{number}-out-{i}" for i in range(start, start + 10_000))
                )
            f.delete()
    return false_positives / PROBES


@pytest.mark.parametrize("error_rate", [1e-2, 1e-3])
@pytest.mark.parametrize(("capacity", "filters"), [(1_000, 20), (1_000_000, 1)])
def test_the_rate_at_capacity(any_server: Server, capacity: int, filters: int, error_rate: float) -> None:
    """Over 1,000,000 probes it is within 0.9 to 1.1 of the configured rate."""
    assert 0.9 <= measured(any_server, capacity, error_rate, filters) / error_rate <= 1.1
