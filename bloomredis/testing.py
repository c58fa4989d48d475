"""Test helpers for programs that use filters: a server in the test's process, and its faults.

They need the extra `embedded`, and the fixture needs pytest.  The server is `memory://` (fakeredis with Lua):
each client gets a new, empty server.
"""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any
from unittest import mock

import redis

from bloomredis import connect
from bloomredis.arguments import shown
from bloomredis.later import imported
from bloomredis.protocol import clock
from bloomredis.protocol.keys import as_bytes, auxiliary_prefix

__all__ = ["later", "lose", "unreachable"]

try:
    import pytest
except ModuleNotFoundError:
    pass  # the rest is for any test runner
else:
    __all__ += ["bloom_client"]

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


def lose(filter: Any) -> int:  # noqa: A002 - the word for it
    """Delete all keys of a filter, as an eviction or a flush would; return their number.

    A filter object that has used the filter raises `FilterLostError` at its next call.

    :param filter: of any class; a filter of `bloomredis.asyncio` must be on `memory://`.
    :raises TypeError: it is no filter, or a filter of `bloomredis.asyncio` on another server.
    """
    client, key = _client_of(filter), filter.name.encode()
    if inspect.iscoroutinefunction(client.execute_command):
        client = imported("fakeredis").FakeRedis(server=_server_of(client))
    own = re.compile(
        re.escape(auxiliary_prefix(key)) + rb".*|\{%b:\d+:\d+\}(?:::.*)?" % re.escape(key), re.DOTALL
    )
    keys = {each for each in client.scan_iter() if own.fullmatch(as_bytes(each))} | {key}
    return int(client.delete(*keys))


@contextmanager
def unreachable(filter: Any) -> Iterator[None]:  # noqa: A002 - the word for it
    """Make the server of a filter unreachable in this block: each call to it fails and does nothing.

    :param filter: a filter on `memory://`, or its client.
    :raises TypeError: the server is not `memory://`.
    """
    server = _server_of(filter if hasattr(filter, "connection_pool") else _client_of(filter))
    server.connected = False
    try:
        yield
    finally:
        server.connected = True


def _client_of(filter_: Any) -> Any:
    if not hasattr(filter_, "_operations"):
        raise TypeError(f"this takes a filter, such as a BloomFilter, not {shown(filter_)}")
    return filter_._client  # noqa: SLF001 - users have the client if they made it


def _server_of(client: Any) -> Any:
    """Return the server in this process that a client has."""
    pool = getattr(client, "connection_pool", None)
    server = pool and pool.connection_kwargs.get("server")
    if server is None or not hasattr(server, "connected"):
        raise TypeError(
            "this takes a filter on memory://, or a client from connect() with that URL, not one on the "
            f"server of {client!r:.100}"
        )
    return server
