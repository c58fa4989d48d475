"""Proxies in front of the servers, and a clock that can be advanced."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.clock import Clock, patched
from tests.support.proxy import Proxy, proxied
from tests.support.servers import Server


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """A proxy in front of each real server in turn."""
    with proxied(server.socket) as made:
        yield made


@pytest.fixture
def any_proxy(any_server: Server) -> Iterator[Proxy]:
    """A proxy in front of one real server, for facts that do not depend on the server."""
    with proxied(any_server.socket) as made:
        yield made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The monotonic clock of bloomredis."""
    return patched(monkeypatch)
