"""Import and export of filters in the serialised forms of other systems.

With an asyncio client or filter, each function returns a coroutine.
"""

from __future__ import annotations

import inspect
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar, overload

from bloomredis.compat.guava import Guava, read_guava, write_guava
from bloomredis.compat.redisbloom import read_redisbloom
from bloomredis.drivers import aio_kinds, aio_running, kinds, running
from bloomredis.drivers.binding import is_asyncio
from bloomredis.drivers.connections.clients import AsyncClient, SyncClient
from bloomredis.protocol.steps import Op
from bloomredis.stored.saved import writing as restore

T = TypeVar("T")


@overload
def from_guava(client: SyncClient, name: str, data: bytes) -> kinds.BloomFilter: ...
@overload
def from_guava(client: AsyncClient, name: str, data: bytes) -> Coroutine[Any, Any, aio_kinds.BloomFilter]: ...
def from_guava(client: Any, name: str, data: bytes) -> Any:
    """Store the stream of Guava's `BloomFilter.writeTo()` under a new key; return the filter.

    :raises ValueError: `data` is not a valid stream.
    :raises FilterMismatchError: the key exists; it is left unchanged.
    """
    layout, bits = read_guava(bytes(data))
    made = _filters(client)(client, name, layout=layout)
    return _run(client, restore.put_strings(name, {layout.key(name).encode(): bits}), made)


@overload
def to_guava(filter_: kinds.BloomFilter[Any]) -> bytes: ...
@overload
def to_guava(filter_: aio_kinds.BloomFilter[Any]) -> Coroutine[Any, Any, bytes]: ...
def to_guava(filter_: Any) -> Any:
    """Return a filter with Guava's layout as the stream that `BloomFilter.readFrom()` reads.

    :raises TypeError: the filter has another layout.
    """
    layout = filter_._operations.layout  # noqa: SLF001 - not part of the public class
    if not isinstance(layout, Guava):
        raise TypeError(f"to_guava takes a filter with layout=guava(...), not {layout!r}")
    snapshot = filter_.snapshot()

    async def later() -> bytes:
        return write_guava(layout, (await snapshot)._bits)  # noqa: SLF001 - as above

    return later() if inspect.iscoroutine(snapshot) else write_guava(layout, snapshot._bits)  # noqa: SLF001 - as above


@overload
def from_redisbloom(
    client: SyncClient, name: str, chunks: Iterable[tuple[int, bytes]]
) -> kinds.BloomFilter: ...
@overload
def from_redisbloom(
    client: AsyncClient, name: str, chunks: Iterable[tuple[int, bytes]]
) -> Coroutine[Any, Any, aio_kinds.BloomFilter]: ...
def from_redisbloom(client: Any, name: str, chunks: Iterable[tuple[int, bytes]]) -> Any:
    """Store a RedisBloom filter under a new key; return it as a read-only filter with the same answers.

    `chunks` are the replies `(iterator, data)` of BF.SCANDUMP in their order.  A filter that has grown has
    several links: the oldest is stored under `name`, the others under auxiliary keys.  To open it elsewhere,
    pickle the filter, or give its `layout` to `BloomFilter(client, name, layout=...)`.

    :raises ValueError: `chunks` are not a complete dump.
    :raises FilterMismatchError: a key exists; no key is overwritten.
    """
    chain = read_redisbloom(chunks)
    layout = chain.layout
    made = _filters(client)(client, name, layout=layout)

    links = zip(layout.links(name), reversed(chain.links), strict=True)
    return _run(
        client, restore.put_strings(name, {key.encode(): link.bits for (key, _), link in links}), made
    )


def _filters(client: Any) -> Any:
    return aio_kinds.BloomFilter if is_asyncio(client) else kinds.BloomFilter


def _run(client: Any, operation: Op[object], answer: T) -> T | Coroutine[Any, Any, T]:
    async def later() -> T:
        await aio_running.drive(client, operation)
        return answer

    if is_asyncio(client):
        return later()
    running.drive(client, operation)
    return answer
