"""The first call after an idle time finds its connection gone, and costs its caller no error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest

import bloomredis
import bloomredis.asyncio
from tests.support.proxy import Proxy, silent
from tests.support.servers import Server, binaries, running
from tests.support.waiting import wait_until

SIZE: Final[dict[str, Any]] = {"capacity": 1000, "error_rate": 1e-9}


def reset(proxy: Proxy) -> None:
    """Reset each connection, as a sidecar does."""
    proxy.reset()


def swallow(proxy: Proxy) -> None:
    """Forget each connection without a word: what is sent over it is never answered."""
    proxy.plan("add", silent)
    proxy.plan("contains", silent)


@pytest.mark.parametrize("end", [reset, swallow])
def test_a_proxy_ends_idle_connections(any_proxy: Proxy, end: Callable[[Proxy], None]) -> None:
    """A client by URL retries over a new connection; the add is counted once."""
    url = f"redis://127.0.0.1:{any_proxy.port}?socket_timeout=0.2"
    with bloomredis.connect(url) as client:
        f = bloomredis.BloomFilter(client, "seen", **SIZE)
        assert f.add("a")
        for item in ("b", "c"):
            end(any_proxy)
            assert f.add(item)
            assert not f.add(item)
        end(any_proxy)
        assert "a" in f
        assert f.info().count == 3


@pytest.mark.parametrize("end", [reset, swallow])
def test_the_same_with_tasks(any_proxy: Proxy, end: Callable[[Proxy], None]) -> None:
    """Tasks that share a round trip share its retry."""

    async def main() -> None:
        url = f"redis://127.0.0.1:{any_proxy.port}?socket_timeout=0.2"
        async with bloomredis.asyncio.connect(url) as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", **SIZE)
            assert await f.add("a")
            end(any_proxy)
            assert all(await asyncio.gather(*(f.add(f"x{i}") for i in range(20))))
            assert (await f.info()).count == 21

    asyncio.run(main())


def test_the_server_ends_idle_connections() -> None:
    """With `timeout 1` the server closes them itself."""

    def clients(server: Server) -> int:
        with server.client() as other:
            return len(other.client_list()) - 1

    with running(binaries()["redis-8"], "--timeout", "1") as server, bloomredis.connect(server.url) as client:
        f = bloomredis.BloomFilter(client, "seen", **SIZE)
        assert f.add("a")
        assert clients(server) == 1
        wait_until("the server closes the connection", lambda: clients(server) == 0)
        assert f.add("b")
        assert f.contains_many(["a", "b", "c"]) == [True, True, False]
