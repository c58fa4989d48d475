"""Asyncio calls that were not awaited and are used like answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis.asyncio

from bloomredis.asyncio import BloomFilter


def test_a_claim_in_progress_has_no_truth_value() -> None:
    """It would be true whoever holds the item."""

    async def work() -> None:
        f = BloomFilter(redis.asyncio.Redis(), "seen", capacity=10, error_rate=0.1)
        claim = f.claim("a")
        assert "await it" in repr(claim)
        with pytest.raises(TypeError, match="await it"):
            bool(claim)
        wrong: Any = f.claim("a")
        with pytest.raises(TypeError, match="with async with"), wrong:
            pass

    asyncio.run(work())


def test_in_is_refused() -> None:
    """`in` cannot await; the error names the method that can."""
    f: Any = BloomFilter(redis.asyncio.Redis(), "seen")
    with pytest.raises(TypeError, match=r"await f\.contains\(item\)"):
        assert "a" in f
