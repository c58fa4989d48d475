"""Both drivers behind one interface, so that each test of behaviour runs on both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import fakeredis
import redis
import redis.asyncio
from redis.backoff import NoBackoff

import bloomredis
import bloomredis.asyncio
from tests.support.retries import async_retrying
from tests.support.shards_away import AsyncShardsAway, ShardsAway
from tests.support.wrapping import is_wrapped, wrapped

SAME = {"db", "username", "password", "decode_responses", "protocol", "host", "port"}
"""The options that a client and its counterpart share."""


class Sync:
    """Makes filters over the test's synchronous client."""

    def __call__(self, client: Any, name: str, *, kind: str = "BloomFilter", **options: Any) -> Any:
        return getattr(bloomredis, kind)(client, name, **options)

    def open(self, client: Any, name: str, kind: str = "BloomFilter", **options: Any) -> Any:
        return getattr(bloomredis, kind).open(client, name, **options)

    def sharded(self, client: Any, name: str, **options: Any) -> Any:
        return bloomredis.ShardedBloomFilter(client, name, **options)

    def restore(self, client: Any, name: str, file: Any, kind: str = "BloomFilter") -> Any:
        return getattr(bloomredis, kind).restore(client, name, file)

    def copy(self, filter_: Any, client: Any, name: str, **options: Any) -> Any:
        return filter_.copy(client, name, **options)

    def wait(self, answer: Any) -> Any:
        return answer


class Asyncio:
    """Makes asyncio filters on the same server, and waits for each call."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._clients: list[Any] = []

    def __call__(self, client: Any, name: str, *, kind: str = "BloomFilter", **options: Any) -> Any:
        made = getattr(bloomredis.asyncio, kind)(self.twin(client), name, **options)
        return _Waited(self._loop, made)

    def open(self, client: Any, name: str, kind: str = "BloomFilter", **options: Any) -> Any:
        opening = getattr(bloomredis.asyncio, kind).open(self.twin(client), name, **options)
        return _Waited(self._loop, self._loop.run_until_complete(opening))

    def sharded(self, client: Any, name: str, **options: Any) -> Any:
        made = bloomredis.asyncio.ShardedBloomFilter(self.twin(client), name, **options)
        return _Waited(self._loop, made)

    def restore(self, client: Any, name: str, file: Any, kind: str = "BloomFilter") -> Any:
        restoring = getattr(bloomredis.asyncio, kind).restore(self.twin(client), name, file)
        return _Waited(self._loop, self._loop.run_until_complete(restoring))

    def copy(self, filter_: Any, client: Any, name: str, **options: Any) -> Any:
        return _Waited(self._loop, filter_.copy(self.twin(client), name, **options))

    def wait(self, awaitable: Any) -> Any:
        return self._loop.run_until_complete(awaitable)

    def close(self) -> None:
        for client in self._clients:
            self._loop.run_until_complete(client.aclose())
        self._loop.close()

    def twin(self, client: Any) -> Any:
        if isinstance(client, ShardsAway):
            return AsyncShardsAway(self.twin(client.client), client.away)
        twin: Any
        if isinstance(client, fakeredis.FakeRedis):
            twin = fakeredis.FakeAsyncRedis(server=client.connection_pool.connection_kwargs["server"])
        elif isinstance(client, redis.RedisCluster):
            node: Any = client.get_primaries()[0]  # type: ignore[no-untyped-call]  # redis-py is untyped
            twin = redis.asyncio.RedisCluster(host=node.host, port=node.port)
        else:
            options = client.connection_pool.connection_kwargs
            retry: Any = _same_retry(options["retry"]) if "retry" in options else {}
            same = {name: options[name] for name in SAME & options.keys()}
            same |= {"unix_socket_path": options["path"]} if "path" in options else {}
            twin = redis.asyncio.Redis(**same, **retry)
            twin = wrapped(twin) if is_wrapped(client) else twin
        self._clients.append(twin)
        return twin


def _same_retry(retry: Any) -> dict[str, Any]:
    """Return a client's retry option for its counterpart, if it retries without delay or never."""
    retries = getattr(retry, "_retries", 0)
    if retries and not isinstance(retry._backoff, NoBackoff):
        return {}
    return async_retrying(retries)


class _Waited:
    """An asyncio filter whose calls are waited for."""

    def __init__(self, loop: asyncio.AbstractEventLoop, filter_: Any) -> None:
        self._loop = loop
        self._filter = filter_

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._filter, name)
        if name in ("name", "_operations"):
            return found
        if name == "dedupe":
            return lambda items, **options: self._drain(found(items, **options))

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
