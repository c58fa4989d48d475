"""No exception of one caller hangs or silences another caller of a shared call."""

from __future__ import annotations

import asyncio
from typing import Any

import redis

import bloomredis.asyncio
from bloomredis import BatchInterruptedError, BloomFilter, OutcomeUnknownError
from tests.support.proxy import Proxy, lost
from tests.support.sharing import shared

SIZE: dict[str, Any] = {"capacity": 10_000, "error_rate": 1e-9}


def test_equal_items_have_tokens_of_their_own(any_proxy: Proxy, any_client: redis.Redis) -> None:
    """Of callers with one item in a shared call, only the first's token reports the item as new."""

    async def main() -> list[Any]:
        async with any_proxy.asyncio_client() as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", **SIZE)
            return await shared(any_proxy, f, map(f.add, "xyxx"), lost)

    errors = asyncio.run(main())
    assert [type(error) for error in errors] == [OutcomeUnknownError] * 4
    assert len({id(error) for error in errors}) == len({error.token for error in errors}) == 4
    elsewhere = BloomFilter(any_client, "seen", **SIZE)
    told = [elsewhere.add(x, token=error.token) for x, error in zip("xyxx", errors, strict=True)]
    assert told == [True, True, False, False]


def test_equal_items_of_batches_are_answered_once(any_proxy: Proxy) -> None:
    """Batches of a lost shared call each retry their rest: every item was new once."""
    batches = [["x", "y"], ["x", "z"], ["z", "x"]]

    async def main() -> None:
        async with any_proxy.asyncio_client() as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", **SIZE)
            errors = await shared(any_proxy, f, map(f.add_many, batches), lost)
            assert [type(error) for error in errors] == [BatchInterruptedError] * 3
            told = [await f.add_many(error.rest) for error in errors]
            assert [error.results for error in errors] == [[]] * 3
            assert told == [[True, True], [False, True], [False, False]]

    asyncio.run(main())
