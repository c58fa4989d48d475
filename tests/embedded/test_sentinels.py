"""URLs of Sentinels, on a real Sentinel with a primary and its replica."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any
from unittest.mock import patch

import pytest
import redis

import bloomredis
import bloomredis.asyncio
from bloomredis import BloomFilter, ConnectionFailedError, connect
from tests.support.retries import FROM_6_ON
from tests.support.sentinels import NAME, Sentinel, watched
from tests.support.values import for_each
from tests.support.waiting import wait_until

SIZE: dict[str, Any] = {"capacity": 1000, "error_rate": 1e-6}


@for_each(
    ("url", "sentinels", "name", "wanted"),
    [
        ("sentinel://h/m", [("h", 26379)], "m", {}),
        ("redis+sentinel://h:1,g/m/2", [("h", 1), ("g", 26379)], "m", {"db": 2}),
        ("sentinel://u:p%40@[::1]:3,h/a%20b", [("::1", 3), ("h", 26379)], "a b", {"password": "p@"}),
        ("valkey+sentinel://h/m?db=3&socket_timeout=9", [("h", 26379)], "m", {"db": 3, "socket_timeout": 9}),
    ],
)
def test_what_a_url_says(
    url: str, sentinels: list[tuple[str, int]], name: str, wanted: dict[str, Any]
) -> None:
    """Sentinels with the default port, the primary's name, its database, user, password and options."""
    for made in (connect(url), bloomredis.asyncio.connect(url)):
        pool: Any = made.connection_pool
        found = [each.connection_pool.connection_kwargs for each in pool.sentinel_manager.sentinels]
        assert [(each["host"], each["port"]) for each in found] == sentinels
        assert all(each["password"] is None for each in found)
        assert (pool.service_name, pool.is_master) == (name, True)
        assert wanted.items() <= pool.connection_kwargs.items()


def test_tls_and_the_options_of_the_sentinels() -> None:
    """TLS and time limits are for both; other options of the Sentinels have names of their own."""
    more = "sentinel_username=a&sentinel_password=b&socket_timeout=2&ssl_ca_certs=/ca.pem"
    pool: Any = connect(f"rediss+sentinel://u:p@h/m?{more}").connection_pool
    (sentinel,) = (each.connection_pool for each in pool.sentinel_manager.sentinels)
    for each in (pool, sentinel):
        assert issubclass(each.connection_class, redis.SSLConnection)
        assert each.connection_kwargs["ssl_ca_certs"] == "/ca.pem"
        assert each.connection_kwargs["socket_timeout"] == 2
    provider: Any = sentinel.connection_kwargs["credential_provider"]
    assert provider.get_credentials() == ("a", "b")
    assert (pool.connection_kwargs["username"], pool.connection_kwargs["password"]) == ("u", "p")


@for_each("url", ["sentinel://", "sentinel://h", "sentinel://h:1,g/", "rediss+sentinel://h/?db=1"])
def test_a_url_without_a_name(url: str) -> None:
    """The error shows where it belongs; without a host, the URL is not valid at all."""
    with pytest.raises(ValueError, match=r"host2:26379/mymaster|is not valid"):
        connect(url)


@for_each("rest", ["h:x/m", "h:1:2/m", "h,/m", "[h/m", "h/m/x", "h/m/1/2", "h/m?db=x", "h/m?sentinel_db=x"])
def test_a_url_that_is_not_valid(rest: str) -> None:
    """It is refused before any I/O, by filters too."""
    with pytest.raises(ValueError, match=r"^the sentinel:// URL is not valid"):
        BloomFilter.from_url(f"sentinel://{rest}", "seen", **SIZE)


@pytest.fixture(scope="module")
def secured() -> Any:
    """A Sentinel and servers with passwords."""
    with watched("secret-of-primary", "secret-of-sentinel") as found:
        yield found


def url_of(sentinel: Sentinel, name: str = NAME, key: str = "secret-of-primary") -> str:
    """Return the URL of a primary, with both passwords."""
    return f"sentinel://:{key}@{sentinel.address}/{name}?sentinel_password={sentinel.password}"


def test_passwords(secured: Sentinel) -> None:
    """Both are used."""
    assert connect(url_of(secured)).ping()
    assert BloomFilter.from_url(url_of(secured), "passwords", **SIZE).add("x")


@for_each(
    "url",
    [
        lambda sentinel: url_of(sentinel, name="absent"),
        lambda sentinel: url_of(sentinel, key="secret-of-others"),
        lambda sentinel: url_of(sentinel).replace("of-sentinel", "of-others"),
        lambda sentinel: url_of(sentinel).replace(sentinel.address, "127.0.0.1:1"),
    ],
)
def test_errors_tell_no_password(secured: Sentinel, url: Any) -> None:
    """Of a name that the Sentinel does not know, a wrong password of either, and no Sentinel."""
    with pytest.raises(bloomredis.BloomError) as caught:
        BloomFilter.from_url(url(secured), "seen", **SIZE).add("x")
    error: BaseException | None = caught.value
    while error is not None:
        assert "secret" not in f"{error} {error!r}"
        error = error.__cause__ or error.__context__


@FROM_6_ON
def test_a_sentinel_that_is_down_costs_no_time(secured: Sentinel) -> None:
    """The next one is asked at once, instead of retries with pauses."""
    url = url_of(secured).replace(secured.address, f"127.0.0.1:1,{secured.address}")
    client: Any = connect(url)
    down, up = client.connection_pool.sentinel_manager.sentinels
    with patch.object(time, "sleep", side_effect=AssertionError("it waits")):
        assert client.ping()
    pool: Any = bloomredis.asyncio.connect(url).connection_pool
    assert {each.get_retry().get_retries() for each in pool.sentinel_manager.sentinels} == {0}
    assert (down.connection_pool.connection_kwargs["port"], up.ping()) == (1, True)


def test_a_failover_is_followed() -> None:
    """The filters of both drivers go on with the new primary, which has their items."""
    with watched() as sentinel, asyncio.Runner() as runner:
        url = f"sentinel://{sentinel.address}/{NAME}"
        seen = BloomFilter.from_url(url, "seen", **SIZE)
        twin = bloomredis.asyncio.BloomFilter.from_url(url, "seen", **SIZE)
        assert BloomFilter.from_url(url, "seen", **SIZE, min_replicas=1).add("before")

        def found() -> bool:
            with suppress(ConnectionFailedError):
                return seen.contains("before") and runner.run(contains(twin, "before"))
            return False

        assert found()
        sentinel.fail_over()
        wait_until("both go on", found)
        assert seen.add("after")
        assert runner.run(contains(twin, "after"))
        with sentinel.replica.client() as client:
            assert client.info("replication")["role"] == "master"
        runner.run(twin.close())


async def contains(seen: Any, item: str) -> bool:
    """Ask a filter of `bloomredis.asyncio`."""
    return bool(await seen.contains(item))
