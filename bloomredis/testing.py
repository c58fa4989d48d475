"""Test helpers for programs that use filters: a server in the test's process, and its faults.

They need pytest and the extra `embedded`.  The server is `memory://` (fakeredis with Lua): each client gets
a new, empty server.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
import redis

from bloomredis import connect
from bloomredis.arguments import name as checked_name
from bloomredis.protocol import clock
from bloomredis.protocol.keys import as_bytes, auxiliary_prefix

__all__ = ["bloom_client", "later", "lose", "unreachable"]


@pytest.fixture
def bloom_client() -> Iterator[redis.Redis]:
    """Yield a client of an empty server in this process; `conftest.py` imports this fixture."""
    with connect("memory://") as client:
        yield client


@contextmanager
def later(delay: float | timedelta) -> Iterator[None]:
    """Set the clock ahead in this block, by seconds or a timedelta, for this process and `memory://`.

    Times to live, leases and the windows of rotating filters follow this clock.
    """
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    with ExitStack() as stack:
        for module, reading in ((time, "time"), (clock, "now")):
            stack.enter_context(mock.patch.object(module, reading, _ahead(getattr(module, reading), seconds)))
        yield


def _ahead(clock: Callable[[], float], seconds: float) -> Callable[[], float]:
    return lambda: clock() + seconds


def lose(client: redis.Redis, name: str) -> int:
    """Delete all keys of a filter, as an eviction or a flush would; return their number.

    A filter object that has used the filter raises `FilterLostError` at its next call.
    """
    key = checked_name(name).encode()
    own = re.compile(
        re.escape(auxiliary_prefix(key)) + rb".*|\{%b:\d+:\d+\}(?:::.*)?" % re.escape(key), re.DOTALL
    )
    keys = {each for each in client.scan_iter() if own.fullmatch(as_bytes(each))} | {key}
    return int(client.delete(*keys))


@contextmanager
def unreachable(client: Any) -> Iterator[None]:
    """Make the server of a `memory://` client unreachable in this block: each call fails and does nothing.

    :param client: from `bloomredis.connect` or `bloomredis.asyncio.connect`.
    :raises TypeError: the client's server is not `memory://`.
    """
    pool = getattr(client, "connection_pool", None)
    server = pool and pool.connection_kwargs.get("server")
    if server is None or not hasattr(server, "connected"):
        raise TypeError(
            "only the memory:// server of a client from connect() can be made "
            f"unreachable, not the server of {client!r:.100}"
        )
    server.connected = False
    try:
        yield
    finally:
        server.connected = True
