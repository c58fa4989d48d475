"""The caller's own pipelines."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis
import redis.asyncio

import bloomredis.asyncio
from bloomredis import BloomFilter
from tests.support.servers import Server
from tests.support.values import for_each


def make(client: Any, **options: Any) -> BloomFilter:
    return BloomFilter(client, "seen", capacity=100_000, error_rate=1e-9, **options)


@for_each("transaction", [True, False])
def test_a_pipeline_after_script_flush(client: redis.Redis, transaction: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """500 queued adds get 500 correct answers on a server without scripts, every time."""
    f = make(client)
    f.create()
    pipe = client.pipeline(transaction=transaction)
    for round_ in range(2):
        client.script_flush()
        for i in range(500):
            f.queue_add(pipe, f"{round_}-{i // 2}")
        pipe.set("other", "x")
        f.queue_contains(pipe, f"{round_}-0")
        f.queue_contains(pipe, "absent")
        assert pipe.execute() == [*[1, 0] * 250, True, 1, 0]
    assert f.info().count == 500


def test_pipelines_share_sessions(any_client: redis.Redis) -> None:
    """The number of receipts is bounded by the longest pipeline, not by the number of calls."""
    f = make(any_client)
    f.create()
    for round_ in range(5):
        pipe = any_client.pipeline()
        for i in range(10):
            f.queue_add(pipe, f"{round_}-{i}")
        pipe.execute()
        del pipe
    assert any_client.dbsize() <= 1 + 20


def test_a_watching_pipeline_is_refused(any_client: redis.Redis) -> None:
    """It would execute at once, so it is refused; the message says what to call first."""
    f = make(any_client)
    with any_client.pipeline() as pipe:
        pipe.watch("other")  # type: ignore[no-untyped-call]  # redis-py is untyped here
        with pytest.raises(ValueError, match="multi"):
            f.queue_add(pipe, "a")
        pipe.multi()
        f.queue_add(pipe, "a")
        assert pipe.execute() == [1]


def test_asyncio_pipelines(server: Server) -> None:
    """The same works with an asyncio pipeline."""

    async def main() -> list[Any]:
        async with redis.asyncio.Redis(unix_socket_path=server.socket) as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", capacity=1000, error_rate=1e-6)
            async with client.pipeline(transaction=True) as pipe:
                for item in ("a", "b", "a"):
                    await f.queue_add(pipe, item)
                await f.queue_contains(pipe, "b")
                return list(await pipe.execute())

    assert asyncio.run(main()) == [1, 1, 0, 1]
