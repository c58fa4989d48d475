"""How filters come in from other systems' files, and go out again.

With an asyncio client or filter each function returns a coroutine of what it returns otherwise.
"""

from __future__ import annotations

import inspect
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

import bloomredis.asyncio
from bloomredis.compat.guava import Guava, read_guava, write_guava
from bloomredis.compat.redisbloom import read_redisbloom
from bloomredis.drivers import aio, filters, sync
from bloomredis.drivers.binding import is_asyncio
from bloomredis.errors import FilterMismatchError
from bloomredis.protocol.steps import Op
from bloomredis.stored import restore

T = TypeVar("T")


def from_guava(client: Any, name: str, data: bytes) -> Any:
    """Store what Guava's `BloomFilter.writeTo()` has written under a new key; return the filter.

    :raises ValueError: `data` is no such stream.
    :raises FilterMismatchError: the key is taken; it is left untouched.
    """
    layout, bits = read_guava(bytes(data))
    made = _filters(client)(client, name, layout=layout)
    return _run(client, restore.place(name, layout.key(name).encode(), bits), made)


def to_guava(filter_: Any) -> Any:
    """Return the bytes that Guava's `BloomFilter.readFrom()` reads, of a filter with Guava's layout.

    :raises TypeError: the filter has another layout.
    """
    layout = filter_._operations.layout  # noqa: SLF001 - what no caller has to see
    if not isinstance(layout, Guava):
        raise TypeError(f"to_guava takes a filter with layout=guava(...), not {layout!r}")
    snapshot = filter_.snapshot()

    async def later() -> bytes:
        return write_guava(layout, (await snapshot).bits)

    return later() if inspect.iscoroutine(snapshot) else write_guava(layout, snapshot.bits)


def from_redisbloom(client: Any, name: str, chunks: Iterable[tuple[int, bytes]]) -> Any:
    """Store a RedisBloom filter under a new key and return it; it answers the same, and is only read.

    `chunks` are the replies of BF.SCANDUMP, `(iterator, data)` in their order.  A filter that has scaled is
    several links: the oldest is under `name`, the others under keys beside it.  To open it elsewhere, send
    the filter there (it pickles), or give its `layout` to `BloomFilter(client, name, layout=...)`.

    :raises ValueError: `chunks` are no whole dump.
    :raises FilterMismatchError: a key is taken; no key is overwritten.
    """
    chain = read_redisbloom(chunks)
    layout = chain.layout
    made = _filters(client)(client, name, layout=layout)

    def store() -> Op[None]:
        placed: list[bytes] = []
        try:
            for (key, _), link in zip(layout.links(name), reversed(chain.links), strict=True):
                yield from restore.place(name, key.encode(), link.bits)
                placed.append(key.encode())
        except FilterMismatchError:
            if placed:
                yield ("UNLINK", *placed)
            raise

    return _run(client, store(), made)


def _filters(client: Any) -> Any:
    return bloomredis.asyncio.BloomFilter if is_asyncio(client) else filters.BloomFilter


def _run(client: Any, operation: Op[object], answer: T) -> T | Coroutine[Any, Any, T]:
    async def later() -> T:
        await aio.drive(client, operation)
        return answer

    if is_asyncio(client):
        return later()
    sync.drive(client, operation)
    return answer
