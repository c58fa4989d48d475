"""The header and the counters of a counting filter, byte by byte."""

from __future__ import annotations

from typing import Any

import pytest
import redis
import redis.asyncio

from bloomredis import CountingBloomFilter
from bloomredis.bits.classic import Counting
from bloomredis.stored import header, planning
from tests.support.counting import store_earlier
from tests.support.values import for_each
from tests.support.vectors import as_header, vectors

VECTORS = vectors("counting")


@for_each("case", VECTORS["headers"])
def test_golden_headers(case: dict[str, Any]) -> None:
    """Each vector packs to its bytes, and is read back only as a counting filter."""
    data = bytes.fromhex(case["hex"])
    assert as_header(case["fields"]).pack() == data
    assert header.parse(data, header.COUNTING) == as_header(case["fields"])
    assert isinstance(planning.stored(header.parse(data, header.COUNTING)), Counting)
    with pytest.raises(ValueError, match="a CountingBloomFilter"):
        header.parse(data)


@for_each(
    ("at", "byte", "complaint"), [(7, 2, "no filter"), (9, 1, "no filter"), (11, 1, "options 0100000000")]
)
def test_a_damaged_header_is_refused(at: int, byte: int, complaint: str) -> None:
    """Only the classic layout has counters."""
    good = bytes.fromhex(VECTORS["headers"][0]["hex"])
    with pytest.raises(ValueError, match=complaint):
        header.parse(good[:at] + bytes([byte]) + good[at + 1 :], header.COUNTING)


def test_too_many_counters_are_refused() -> None:
    """More counters than fit into a string are refused."""
    good = bytes.fromhex(VECTORS["headers"][0]["hex"])
    with pytest.raises(ValueError, match="num_bits"):
        header.parse(good[:16] + (2**30).to_bytes(8) + good[24:], header.COUNTING)


@for_each("case", VECTORS["counters"])
def test_golden_counters(client: redis.Redis, case: dict[str, Any]) -> None:
    """Adds and removals leave the vector's bytes, in a filter of an earlier release."""
    sizes = {name: case[name] for name in ("capacity", "error_rate", "num_bits", "num_hashes")}
    store_earlier(client, **sizes)
    f = CountingBloomFilter(client, "seen", capacity=case["capacity"], error_rate=case["error_rate"])
    f.add_many(bytes.fromhex(item) for item in case["added"])
    assert all(f.remove(bytes.fromhex(item)) for item in case["removed"])
    stored: Any = client.getrange("seen", 64, -1)
    assert stored.hex() == case["hex"]
