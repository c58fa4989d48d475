"""Counting filters, and their expected counters."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from bloomredis import CountingBloomFilter
from bloomredis.bits import limits
from bloomredis.bits.classic import Counting
from bloomredis.stored import header, planning

MOST = 15


def make(bloom: Any, client: Any, name: str = "seen", **options: Any) -> Any:
    options = {"capacity": 1000, "error_rate": 1e-6} | options
    return bloom(client, name, kind="CountingBloomFilter", **options)


def store_earlier(client: Any, *, capacity: int, error_rate: float, num_bits: int, num_hashes: int) -> None:
    """Store an empty filter of an earlier release, with that many counters."""
    made = planning.new_header(capacity, error_rate, kind=header.COUNTING)
    made = replace(made, num_bits=num_bits, num_hashes=num_hashes, generation=b"earlier!")
    client.set("seen", made.pack() + bytes(made.size_bytes - limits.HEADER_BYTES))


def stored_counters(client: Any) -> dict[int, int]:
    """Return the non-zero counters by number."""
    pairs: bytes = client.getrange("seen", limits.HEADER_BYTES, -1)
    values = [half for pair in pairs for half in (pair >> 4, pair & 15)]
    return {number: value for number, value in enumerate(values) if value}


def expected_counters(layout: Counting, items: Counter[Any]) -> dict[int, int]:
    """Return the expected counters if none has been at 15."""
    counters: Counter[int] = Counter()
    for item, times in items.items():
        counters.update({counter: times for counter in set(layout.offsets(item)) if times})
    return dict(counters)


PLANNED = planning.plan_counting(1000, 1e-6)


def counting(client: Any, **options: Any) -> CountingBloomFilter:
    return CountingBloomFilter(client, "seen", capacity=1000, error_rate=1e-6, **options)
