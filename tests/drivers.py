"""Both drivers behind one face, so that each test of behaviour runs on both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import fakeredis
import redis
import redis.asyncio

import bloomredis
import bloomredis.asyncio


class Sync:
    """Makes filters over the synchronous client that the test has."""

    def __call__(self, client: Any, name: str, **options: Any) -> Any:
        return bloomredis.BloomFilter(client, name, **options)

    def open(self, client: Any, name: str) -> Any:
        return bloomredis.BloomFilter.open(client, name)

    def wait(self, answer: Any) -> Any:
        return answer


class Asyncio:
    """Makes asyncio filters on the same server, and waits for each call."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._clients: list[Any] = []

    def __call__(self, client: Any, name: str, **options: Any) -> Any:
        return _Waited(self._loop, bloomredis.asyncio.BloomFilter(self._twin(client), name, **options))

    def open(self, client: Any, name: str) -> Any:
        opening = bloomredis.asyncio.BloomFilter.open(self._twin(client), name)
        return _Waited(self._loop, self._loop.run_until_complete(opening))

    def wait(self, awaitable: Any) -> Any:
        return self._loop.run_until_complete(awaitable)

    def close(self) -> None:
        for client in self._clients:
            self._loop.run_until_complete(client.aclose())
        self._loop.close()

    def _twin(self, client: Any) -> Any:
        twin: Any
        if isinstance(client, fakeredis.FakeRedis):
            twin = fakeredis.FakeAsyncRedis(server=client.connection_pool.connection_kwargs["server"])
        elif isinstance(client, redis.RedisCluster):
            node: Any = client.get_primaries()[0]  # type: ignore[no-untyped-call]  # redis-py has it so
            twin = redis.asyncio.RedisCluster(host=node.host, port=node.port)
        else:
            twin = redis.asyncio.Redis(unix_socket_path=client.connection_pool.connection_kwargs["path"])
        self._clients.append(twin)
        return twin


class _Waited:
    """An asyncio filter whose calls are waited for."""

    def __init__(self, loop: asyncio.AbstractEventLoop, filter_: bloomredis.asyncio.BloomFilter) -> None:
        self._loop = loop
        self._filter = filter_

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._filter, name)
        if name in ("name", "_operations"):
            return found
        if name == "dedupe":
            return lambda items: self._drain(found(items))

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._loop.run_until_complete(_awaited(found(*args, **kwargs)))

        return call

    def __contains__(self, item: Any) -> bool:
        return bool(self.contains(item))

    def _drain(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        while True:
            try:
                yield self._loop.run_until_complete(anext(items))
            except StopAsyncIteration:
                return


async def _awaited(call: Awaitable[Any]) -> Any:
    return await call


DRIVERS: dict[str, Callable[[], Any]] = {"sync": Sync, "asyncio": Asyncio}
