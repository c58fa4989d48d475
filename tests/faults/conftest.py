"""The mark that puts this folder into `make test-faults`, and proxies in front of the servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.proxy import Proxy, proxied
from tests.support.servers import Server


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark each test of this folder."""
    item.add_marker(pytest.mark.faults)


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
