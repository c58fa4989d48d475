"""An asyncio loop over `dedupe` that ends early."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import redis.asyncio

from bloomredis.asyncio import BloomFilter
from tests.support.servers import Server


async def as_read(items: list[str]) -> AsyncIterator[str]:
    """Yield items that are there at once."""
    for item in items:
        yield item


@pytest.mark.parametrize("live", [False, True])
def test_what_was_not_yielded_is_new_again(any_server: Server, live: bool) -> None:  # noqa: FBT001 - a parameter
    """To the very next call on the object, though the loop has not closed the generator by then."""

    async def answers() -> list[bool]:
        async with redis.asyncio.Redis(unix_socket_path=any_server.socket) as client:
            f = BloomFilter(client, "f", capacity=1000, error_rate=1e-6)
            async for _ in f.dedupe(as_read(["a", "b", "c"]) if live else ["a", "b", "c"]):
                break
            return [await f.add(item) for item in "bca"]

    assert asyncio.run(answers()) == [True, True, False]
