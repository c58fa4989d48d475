"""An error after retries says how many attempts were made, and in how many seconds."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import redis
import redis.asyncio
import valkey
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ConstantBackoff
from redis.retry import Retry

import bloomredis
import bloomredis.asyncio
from bloomredis import BloomError, BloomFilter, ConnectionFailedError
from tests.support.proxy import Proxy, silent
from tests.support.servers import Server, running
from tests.support.values import for_each

SIZE: Final[dict[str, Any]] = {"capacity": 1000, "error_rate": 1e-9}
TIMEOUT: Final = 0.2
SAID: Final = re.compile(r"; (\d+) attempts in (\d+\.\d) s\)")

Call = Callable[[Any], Any]
CALLS: Final[list[Call]] = [
    lambda f: f.add("x"),
    lambda f: f.contains("x"),
    lambda f: f.add_many(["x", "y"]),
    lambda f: f.claim("x"),
    lambda f: f.info(),
]


def attempts_said(error: BloomError, begun: float) -> int:
    """Return the number of attempts in the text of an error, whose seconds are those since `begun`."""
    said = SAID.search(str(error))
    assert said, str(error)
    assert float(said[2]) <= time.monotonic() - begun + 0.05
    return int(said[1])


def options(retries: int, kind: type[Any] = Retry) -> dict[str, Any]:
    """Return the options of a client with so many retries."""
    return {"retry": kind(ConstantBackoff(0.01), retries), "socket_timeout": TIMEOUT}


@pytest.fixture
def dead() -> Iterator[int]:
    """A port on which nobody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        yield one.getsockname()[1]


@for_each("call", CALLS)
def test_nobody_listens(dead: int, call: Call) -> None:
    """The client retries the connection."""
    with redis.Redis(port=dead, **options(2)) as client:
        begun = time.monotonic()
        with pytest.raises(BloomError) as failed:
            call(BloomFilter(client, "seen", **SIZE))
        assert attempts_said(failed.value, begun) == 3


@for_each("call", CALLS)
def test_nobody_listens_with_asyncio(dead: int, call: Call) -> None:
    """The same with asyncio; the advice does not depend on the half."""

    async def main() -> None:
        async with redis.asyncio.Redis(port=dead, **options(2, AsyncRetry)) as client:
            begun = time.monotonic()
            with pytest.raises(BloomError, match="start the server, or give the client its host") as failed:
                await call(bloomredis.asyncio.BloomFilter(client, "seen", **SIZE))
            assert attempts_said(failed.value, begun) == 3

    asyncio.run(main())


def test_a_url(dead: int) -> None:
    """Three retries, as documented."""
    with pytest.raises(ConnectionFailedError) as failed:
        BloomFilter.from_url(f"redis://127.0.0.1:{dead}", "seen", **SIZE).add("x")
    assert SAID.search(str(failed.value))[1] == "4"  # type: ignore[index]


@for_each("package", [redis.Redis, valkey.Valkey])
@for_each("call", CALLS[:4])
def test_a_server_that_hangs(any_proxy: Proxy, package: Any, call: Call) -> None:
    """The seconds include the first attempt, over a connection that was open."""
    retry = Retry if package is redis.Redis else valkey.retry.Retry
    errors = {} if package is redis.Redis else {"retry_on_error": [valkey.TimeoutError]}
    with package(port=any_proxy.port, **options(2, retry), **errors) as client:
        f = BloomFilter(client, "seen", **SIZE)
        f.add("x")
        f.contains("x")
        any_proxy.fate = silent
        begun = time.monotonic()
        with pytest.raises(BloomError) as failed:
            call(f)
        any_proxy.calm()
        assert attempts_said(failed.value, begun) == 3
        assert float(SAID.search(str(failed.value))[2]) > 2.9 * TIMEOUT  # type: ignore[index]


@for_each("call", CALLS[:4])
def test_a_server_that_hangs_with_asyncio(any_proxy: Proxy, call: Call) -> None:
    """Callers that share a round trip get its number of attempts."""

    async def main() -> None:
        async with redis.asyncio.Redis(port=any_proxy.port, **options(2, AsyncRetry)) as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", **SIZE)
            await f.add("x")
            await f.contains("x")
            any_proxy.fate = silent
            begun = time.monotonic()
            met = await asyncio.gather(*(call(f) for _ in range(3)), return_exceptions=True)
            any_proxy.calm()
            for error in met:
                assert isinstance(error, BloomError)
                assert attempts_said(error, begun) == 3
                assert float(SAID.search(str(error))[2]) > 2.9 * TIMEOUT  # type: ignore[index]

    asyncio.run(main())


@for_each("call", CALLS)
def test_one_attempt_is_not_counted(any_proxy: Proxy, call: Call) -> None:
    """Without retries the text is that of the client."""
    any_proxy.fate = silent
    with redis.Redis(port=any_proxy.port, **options(0)) as client, pytest.raises(BloomError) as failed:
        call(BloomFilter(client, "seen", **SIZE))
    any_proxy.calm()
    assert "attempt" not in str(failed.value)


def test_a_refusal_is_no_failure(any_proxy: Proxy) -> None:
    """A refusal is an answer, and nothing is retried."""
    with redis.Redis(port=any_proxy.port, **options(2)) as client:
        client.set("seen", "text")
        with pytest.raises(BloomError) as failed:
            BloomFilter(client, "seen", **SIZE).add("x")
    assert "attempt" not in str(failed.value)


def test_a_commit(any_server: Server) -> None:
    """A commit is repeated until its lease has ended."""
    with running(any_server.binary) as server, server.client(**options(0)) as client:
        claim = BloomFilter(client, "seen", **SIZE).claim("a", lease=0.6, renew=False)
        server.stop()
        with pytest.raises(BloomError, match=r"; the commit was repeated \d+ times in 0\.\d s; ") as failed:
            claim.commit()
    assert str(failed.value).count("repeated") == 1
