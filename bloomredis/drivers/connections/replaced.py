"""Connections to a server that is no primary any more: they are closed, so that new ones reach its successor.

Behind the endpoint of a managed service, a Kubernetes service or a proxy, an address leads to another server
after a failover, while open connections stay with the old one.  That is a replica by then, and refuses every
write (READONLY).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final
from weakref import WeakKeyDictionary

from bloomredis.protocol import clock
from bloomredis.protocol.replies import word_of

PAUSE: Final = 1.0
"""The seconds for which a pool is left alone after its connections were closed."""

_closed: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
"""The pools whose connections were closed, and when."""


def close_free(transport: Any, outcomes: Iterable[object]) -> None:
    """Close the free connections of a synchronous client's pool after a refusal with READONLY.

    Others close theirs when they get it: no call in flight is disturbed.
    """
    if (pool := _pool_to_close(transport, outcomes)) is None:
        return
    with suppress(Exception):  # the caller gets the refusal
        if _spares_others(pool):
            pool.disconnect(inuse_connections=False)
        else:
            connection = pool.get_connection("EVALSHA")
            connection.disconnect()
            pool.release(connection)


async def close_free_async(transport: Any, outcomes: Iterable[object]) -> None:
    """Do the same for an asyncio client."""
    if (pool := _pool_to_close(transport, outcomes)) is None:
        return
    with suppress(Exception):
        await pool.disconnect(inuse_connections=False)


def _pool_to_close(transport: Any, outcomes: Iterable[object]) -> Any:
    """Return the pool that leads to a replica; None if no outcome says so, or it was closed just now."""
    if not any(isinstance(each, Exception) and word_of(each) == "READONLY" for each in outcomes):
        return None
    pool = getattr(transport, "connection_pool", None) or getattr(transport, "pool", None)
    if pool is None:  # a cluster's client, which looks for the new primary by itself
        return None
    now = clock.now()
    if now - _closed.get(pool, -PAUSE) < PAUSE:
        return None
    _closed[pool] = now
    return pool


def _spares_others(pool: Any) -> bool:
    """Return whether a pool can close its free connections alone; older blocking pools close all."""
    return "inuse_connections" in inspect.signature(pool.disconnect).parameters
