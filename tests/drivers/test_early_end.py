"""An asyncio loop over `dedupe` that ends early, as the docstring shows it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import redis.asyncio

from bloomredis.asyncio import BloomFilter
from tests.support.servers import Server


def test_what_was_not_yielded_is_new_again(any_server: Server) -> None:
    """To the next call on the object, once the generator is closed."""

    async def answers() -> list[bool]:
        async with redis.asyncio.Redis(unix_socket_path=any_server.socket) as client:
            f = BloomFilter(client, "f", capacity=1000, error_rate=1e-6)
            made: Any = f.dedupe(["a", "b", "c"])
            async with aclosing(made) as new:
                async for _ in new:
                    break
            return [await f.add(item) for item in "abc"]

    assert asyncio.run(answers()) == [False, True, True]
