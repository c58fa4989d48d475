"""Script calls over connections taken directly from the pool: no user of redis-py can notice it."""

from __future__ import annotations

import asyncio
import gc
import importlib
import itertools
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import fakeredis
import pytest
import redis
import redis.asyncio
import redis.sentinel
from redis.backoff import NoBackoff
from redis.retry import Retry

import bloomredis.asyncio
from bloomredis import BloomFilter, ConnectionFailedError, OutcomeUnknownError, ShardedBloomFilter
from bloomredis.drivers.connections.direct import DirectClient
from bloomredis.drivers.driven import connect_direct
from tests.support.kept_calls import RENAMED
from tests.support.lines import Interrupt, at_line, interrupt
from tests.support.proxy import Proxy, lost, passed, proxied, silent
from tests.support.retries import async_retrying
from tests.support.servers import WITH_RESP3, Server, binaries, running
from tests.support.tls import Certificate, with_tls
from tests.support.values import for_each
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
CLIENTS = Path(sys.prefix) / "clients"
VERSIONS = ("newest", "redis-5", "redis-6", "redis-pre", "valkey")
FACTS = {
    "answers": [True, False, True, False],
    "together": [50, 0],
    "closed": True,
    "unread": [False, True],
    "interrupted": [False, True],
    "forgotten": [True, False],
    "full": [True, True],
    "observed": ["EVALSHA"],
    "asyncio answers": [50, True, False],
    "asyncio together": 9_900,
    "asyncio closed": True,
    "asyncio cancelled": [False, True],
}
"""The observations that `tests.support.kept_calls` must make with every version of the clients."""

SIZE: dict[str, Any] = {"capacity": 10_000, "error_rate": 1e-9}


@pytest.fixture
def collected() -> Iterator[None]:
    """Collect a pool that an interrupt left locked, here in the thread that holds the lock."""
    yield
    gc.collect()


def make(client: Any) -> BloomFilter:
    return BloomFilter(client, "kept", **SIZE)


def kept(client: Any) -> BloomFilter:
    """Return a filter whose calls bypass the client's methods."""
    assert isinstance(connect_direct(client), DirectClient)
    return make(client)


def free(client: redis.Redis) -> Any:
    """Return the connection that the next call uses."""
    connection = client.connection_pool.get_connection()
    client.connection_pool.release(connection)
    return connection


def connections(client: redis.Redis) -> int:
    return len(client.client_list())


@pytest.fixture
def own(any_server: Server) -> Any:
    """A client without retries, on an empty server."""
    with any_server.client(retry=Retry(NoBackoff(), 0)) as made:
        made.flushall()
        yield made


def installed(version: str) -> Path:
    """Return the folder where a version of the clients is installed."""
    if not (CLIENTS / version).exists():
        reason = f"{CLIENTS} has no {version}: `make test` installs it"
        (pytest.fail if os.environ.get("BLOOMREDIS_CLIENTS") == "required" else pytest.skip)(reason)
    return CLIENTS / version


def seen(server: Server, *path: Path, package: str = "redis") -> tuple[dict[str, Any], list[str]]:
    """Return a program's observations with the clients on a path, and its log."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.support.kept_calls", package, server.socket],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT)))},
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return json.loads(ran.stdout), ran.stderr.splitlines()


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_of_the_clients(any_server: Server, version: str) -> None:
    """With every version of the clients nothing is missed, and most calls bypass the client's methods.

    A version whose internals differ would work too, but slowly.
    """
    path = [installed(version)] if version.startswith("redis-") else []
    found, logged = seen(any_server, *path, package="valkey" if version == "valkey" else "redis")
    assert {fact: found[fact] for fact in FACTS} == FACTS
    assert not logged
    for name in ("kept", "asyncio kept"):
        assert found[name] < 8  # of 20 or 30; one call a second checks the capacity by the longer path


@for_each("names", [["available_connections", "in_use_connections"], ["sock", "parser", "writer"]])
def test_a_version_whose_private_names_are_others(
    any_server: Server, tmp_path: Path, names: list[str]
) -> None:
    """If private names of pools or connections differ, the client makes the calls; the log says so once."""
    copy = tmp_path / "-".join(names)
    shutil.copytree(Path(redis.__file__).parent, copy / "redis", ignore=shutil.ignore_patterns("__pycache__"))
    private = re.compile(rf"\b_({'|'.join(names)})\b")
    for file in copy.rglob("*.py"):
        file.write_text(private.sub(lambda found: RENAMED.format(found[1]), file.read_text("utf-8")), "utf-8")
    found, logged = seen(any_server, copy)
    of_the_client = {fact: found[fact] for fact in ("together", "interrupted")}
    assert {fact: found[fact] for fact in FACTS} == FACTS | of_the_client
    assert found["kept"] >= 30  # each call takes its connection from the pool
    assert found["asyncio kept"] >= 20
    assert [line for line in logged if "keeps its connections" in line] == logged
    assert len(logged) == 1


class Overriding(redis.Redis):
    """A client that overrides `execute_command`."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]  # redis-py's


class Unknown:
    """A client of no package that the library knows, without attributes."""

    __slots__ = ()

    def execute_command(self, *args: Any) -> Any: ...

    def pipeline(self) -> Any: ...


class OwnConnection(redis.Connection):
    """A user's own connection class."""


def _patched() -> redis.Redis:
    client = redis.Redis()
    client.execute_command = client.execute_command  # type: ignore[method-assign]  # as instrumentation does
    return client


def _sentinel() -> Any:
    sentinel: Any = redis.sentinel.Sentinel
    return sentinel([("127.0.0.1", 1)]).master_for("any")


OTHERS: dict[str, Callable[[], Any]] = {
    "a subclass": Overriding,
    "a wrapper": _patched,
    "a blocking pool": lambda: redis.Redis(connection_pool=redis.BlockingConnectionPool.from_url("redis://")),
    "a sentinel": _sentinel,
    "a connection class": lambda: redis.Redis(
        connection_pool=redis.ConnectionPool(connection_class=OwnConnection)
    ),
    "a command packer": lambda: redis.Redis(connection_pool=redis.ConnectionPool(command_packer=object())),
    "fakeredis": fakeredis.FakeRedis,
    "asyncio's blocking pool": lambda: redis.asyncio.Redis(
        connection_pool=redis.asyncio.BlockingConnectionPool()
    ),
    "a class of its own": Unknown,
}


@for_each("name", OTHERS)
def test_other_clients_are_used_as_they_are(name: str) -> None:
    """If something could notice the difference, calls use the client's own methods."""
    client = OTHERS[name]()
    assert connect_direct(client) is client


def test_single_connection_clients(own: redis.Redis, any_server: Server) -> None:
    """A single-connection client uses its one connection and no pool."""
    with any_server.client(single_connection_client=True) as single:
        f = make(single)
        assert (connect_direct(single), f.add("a"), f.add("a")) == (single, True, False)


class Cached(redis.connection.UnixDomainSocketConnection):
    """A caching client's connection, which is asked for its host and port."""

    host, port = "", 0


def test_a_client_with_a_cache_of_its_own() -> None:
    """Calls that read bits skip the client's own stale cache, and see the newest adds of others."""
    if redis.VERSION < (6,):
        pytest.skip("the cache of redis-py 5 takes only some parsers")
    cache = importlib.import_module("redis.cache").CacheConfig()
    with running(binaries()["redis-8"]) as server, server.client() as another:
        pool = redis.ConnectionPool(
            connection_class=Cached, path=server.socket, protocol=3, cache_config=cache
        )
        client = redis.Redis(connection_pool=pool)
        f, g = (BloomFilter(each, "seen", capacity=1000, error_rate=1e-9) for each in (client, another))
        for number in range(1, 4):
            assert g.add(str(number))
            assert f.info().fill_ratio == g.info().fill_ratio
            assert f.snapshot().contains(str(number))
        other = BloomFilter(another, "other", capacity=1000, error_rate=1e-9)
        other.add("a")
        f.merge(other)
        assert g.contains("a")
        pool.disconnect()


def test_a_copy_decides_by_its_own_client(
    own: redis.Redis, any_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter that was pickled gets its transport with its client."""
    copy = pickle.loads(pickle.dumps(make(own)))  # noqa: S301 - its own pickle
    taken = []
    for client in (own, Overriding(unix_socket_path=any_server.socket)):
        f = copy.with_client(client)
        f.add("a")
        get = Mock(wraps=client.connection_pool.get_connection)
        monkeypatch.setattr(client.connection_pool, "get_connection", get)
        f.add("b")
        taken.append(get.call_count)
    assert taken == [0, 1]


def test_a_wrapper_of_the_class_sees_calls(own: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Instrumentation installed after the filter was made sees every call."""
    execute: Any = redis.Redis.execute_command
    f, seen = make(own), []
    f.add("a")

    def wrapper(self: Any, *args: Any, **options: Any) -> Any:
        seen.append(args[0])
        return execute(self, *args, **options)

    monkeypatch.setattr(redis.Redis, "execute_command", wrapper)
    f.add("b")
    assert seen == ["EVALSHA"]


def test_instrumented_connections_are_left_alone(own: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that wraps the sending of commands sees every command."""
    kind: Any = redis.UnixDomainSocketConnection
    seen, send = [], kind.send_command

    def send_command(self: Any, *args: Any, **options: Any) -> Any:
        seen.append(args[0])
        return send(self, *args, **options)

    monkeypatch.setattr(kind, "send_command", send_command)
    f = make(own)
    f.add("a")
    seen.clear()
    f.add("b")
    assert seen == ["EVALSHA"]


class Posing:
    """A wrapper whose class pretends to be that of the method, like wrapt's."""

    def __init__(self, method: Any, calls: list[object]) -> None:
        self._method, self._calls = method, calls

    def __getattribute__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_method"), name)

    def __get__(self, instance: object, kind: type) -> Any:
        if instance is None:
            return self
        object.__getattribute__(self, "_calls").append(instance)
        return object.__getattribute__(self, "_method").__get__(instance, kind)


def test_a_wrapper_that_poses_as_a_method_is_seen(own: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its __class__ is that of a method, yet calls go through the wrapper."""
    calls = list[object]()
    posing = Posing(redis.Redis.execute_command, calls)
    assert isinstance(posing, type(redis.Redis.execute_command))
    f = make(own)
    f.add("a")
    monkeypatch.setattr(redis.Redis, "execute_command", posing)
    f.add("b")
    assert calls == [own]


def test_a_response_callback_is_called(own: redis.Redis) -> None:
    """A callback that the caller sets for EVALSHA is called, whenever it was set."""
    f, seen = make(own), []
    f.add("a")

    def callback(reply: Any, **_: Any) -> Any:
        seen.append(reply)
        return reply

    own.set_response_callback("EVALSHA", callback)
    assert (f.add("b"), seen) == (True, [1])


def test_metrics_of_the_package(own: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """If redis-py measures calls, they use the client's own methods."""
    providers = pytest.importorskip("redis.observability.providers")
    make(own).add("a")
    direct = connect_direct(own)
    taken = direct.take()
    assert taken
    direct.give(taken)
    instance = providers.ObservabilityInstance()
    monkeypatch.setattr(instance, "_provider_manager", object())
    monkeypatch.setattr(providers, "_observability_instance", instance)
    assert not direct.take()


@pytest.mark.parametrize(
    "options",
    [{"decode_responses": True}, *WITH_RESP3, {"protocol": 2}, {"db": 1}, {"client_name": "me"}],
)
def test_options_of_the_client(any_server: Server, own: redis.Redis, options: dict[str, Any]) -> None:
    """The connection options of a client hold for direct calls."""
    with any_server.client(**options) as other:
        f = kept(other)
        assert [f.add("a"), f.add_many(["a", "b"]), f.contains("b")] == [True, [False, True], True]
        assert other.exists("kept")


def test_over_tls(tmp_path: Path) -> None:
    """A connection over TLS with nothing to read is not mistaken for one with data."""
    certificate = Certificate.made_in(tmp_path)
    with (
        with_tls(binaries()["valkey-9"], certificate) as (_, port),
        redis.Redis(host="127.0.0.1", port=port, ssl=True, ssl_ca_certs=str(certificate.authority)) as own,
    ):
        f = kept(own)
        f.add("warm")
        before = connections(own)
        assert [f.add(i % 50) for i in range(100)] == [True] * 50 + [False] * 50
        (connection,) = connect_direct(own).take()
        own.connection_pool.release(connection)
        assert connections(own) == before


def test_credentials_of_a_provider(any_server: Server, own: redis.Redis) -> None:
    """A reconnection authenticates again through the credential provider."""
    own.acl_setuser("worker", enabled=True, passwords=["+secret"], commands=["+@all"], keys=["*"])
    provider = redis.UsernamePasswordCredentialProvider("worker", "secret")
    with any_server.client(credential_provider=provider, retry=Retry(NoBackoff(), 0)) as other:
        f = kept(other)
        f.add("a")
        own.client_kill_filter(_type="normal", skipme=True)
        assert (f.add("b"), other.acl_whoami()) == (True, "worker")


def test_health_checks(any_server: Server, own: redis.Redis) -> None:
    """A connection idle for longer than the health check interval is checked first."""
    with any_server.client(health_check_interval=60) as other:
        f = make(other)
        f.add("a")
        own.config_resetstat()
        free(other).next_health_check = 0
        f.add("b")
        assert own.info("commandstats")["cmdstat_ping"]["calls"] == 1


def test_a_new_token_is_used_after_the_call(own: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that must authenticate again returns to the pool, which does it."""
    f, released = make(own), []
    f.add("a")
    connection = free(own)
    connection.set_re_auth_token(object())

    def release(each: Any) -> None:
        each.set_re_auth_token(None)
        released.append(each)

    monkeypatch.setattr(own.connection_pool, "release", release)
    f.add("b")
    assert released == [connection]


def test_many_short_threads(own: redis.Redis) -> None:
    """A thread that has ended keeps no connection."""
    f = make(own)
    f.add("warm")
    before = connections(own)
    for i in range(300):
        thread = threading.Thread(target=f.add, args=(i,))
        thread.start()
        thread.join()
    assert connections(own) == before


def test_others_may_use_the_whole_pool(any_server: Server, own: redis.Redis) -> None:
    """After use, threads leave every connection of a small pool to other users."""
    with any_server.client(max_connections=4) as small:
        f = kept(small)
        threads = [threading.Thread(target=f.add_many, args=(range(i, i + 50),)) for i in range(0, 200, 50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        taken = [small.connection_pool.get_connection() for _ in range(4)]
        for each in taken:
            small.connection_pool.release(each)
        assert f.contains(150)


def test_closing_the_client_closes_all(any_server: Server, own: redis.Redis) -> None:
    """Closing the client closes every connection, since all belong to the pool."""
    before = connections(own)
    with any_server.client() as other:
        f = make(other)
        f.add("a")
        other.close()
        wait_until("it is closed", lambda: connections(own) == before)
        assert f.contains("a")  # a closed client connects again, as for any call


def test_nothing_is_left_to_be_warned_of(any_server: Server) -> None:
    """A program that closes its client ends without ResourceWarnings."""
    program = (
        "import redis, bloomredis\n"
        f"with redis.Redis(unix_socket_path={any_server.socket!r}) as client:\n"
        "    f = bloomredis.BloomFilter(client, 'warned', capacity=100, error_rate=0.01)\n"
        "    f.add('a')\n"
    )
    run = [sys.executable, "-X", "dev", "-W", "always::ResourceWarning", "-c", program]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, cwd=ROOT, check=True)
    assert "ResourceWarning" not in done.stderr


def counted(proxy: Proxy, fate: Any) -> list[int]:
    """Count the adds that a proxy passes on."""
    seen: list[int] = []

    def counting(exchange: Any) -> bool:
        seen.append(1)
        done: bool = fate(exchange)
        return done

    proxy.always("add", counting)
    return seen


@pytest.mark.parametrize("retries", [0, 2])
def test_the_client_decides_about_retries(own: redis.Redis, any_server: Server, retries: int) -> None:
    """A call is sent as often as the client's retry policy says, including the first attempt."""
    with proxied(any_server.socket) as proxy:
        f = make(proxy.client(retries=retries))
        f.add("warm")
        seen = counted(proxy, lost)
        with pytest.raises(OutcomeUnknownError):
            f.add("a")
        assert len(seen) == 1 + retries


def test_a_retry_answers_as_the_first_attempt(own: redis.Redis, any_server: Server) -> None:
    """After a lost reply the retry, over another connection, gets the same answer."""
    with proxied(any_server.socket) as proxy:
        f = make(proxy.client(retries=1))
        f.add("warm")
        proxy.plan("add", lost)
        assert f.add("a")


@pytest.mark.parametrize("fates", [[silent], [passed, silent]], ids=["the first", "the second"])
def test_a_call_that_times_out_leaves_nothing_behind(
    own: redis.Redis, any_server: Server, fates: list[Any]
) -> None:
    """The connection is closed after a timeout, so a late reply reaches no other call."""
    with proxied(any_server.socket) as proxy:
        f = make(proxy.client(socket_timeout=1))
        f.add("warm")
        proxy.plan("reading", *fates)
        with pytest.raises(ConnectionFailedError):
            f.contains("warm")
        assert (f.contains("nobody"), f.contains("warm")) == (False, True)


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError, redis.ConnectionError])
def test_an_exception_before_the_reply_is_read(
    own: redis.Redis, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """If a signal handler raises before the reply, the connection is closed and the answer is kept."""
    f = make(own)
    f.add("warm")
    connection = free(own)
    with monkeypatch.context() as patch:
        patch.setattr(connection, "read_response", _raising(error))
        with pytest.raises((error, OutcomeUnknownError)):
            f.add("a")
    assert (f.contains("nobody"), f.add("a")) == (False, True)


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize(
    "where",
    [DirectClient.call, DirectClient.exchange, DirectClient.take, DirectClient.reply, DirectClient.give],
)
def test_an_exception_at_any_line_loses_no_connection(any_server: Server, where: Callable[..., Any]) -> None:
    """After an exception at any line the connection is in the pool once, never leaked."""
    single = any_server.client(max_connections=1, retry=Retry(NoBackoff(), 0))
    f = kept(single)
    f.add("warm")
    pool = single.connection_pool
    for number in itertools.count():
        try:
            with at_line(where, number, interrupt):
                f.add(f"item {number}")
        except Interrupt:
            connection = pool.get_connection()
            with pytest.raises(redis.ConnectionError):
                pool.get_connection()
            pool.release(connection)
        else:
            break
        assert (f.contains("nobody"), f.contains(f"item {number}") or f.add(f"item {number}")) == (
            False,
            True,
        )
    assert number >= 2
    single.close()


@pytest.mark.usefixtures("collected")
def test_an_alarm_is_not_taken_for_a_closed_connection(own: redis.Redis) -> None:
    """A TimeoutError that a signal handler raises is the call's error, wherever it is raised."""
    f = make(own)
    f.add("warm")

    def alarm() -> None:
        raise TimeoutError("too long")

    for number in itertools.count():
        with suppress(OutcomeUnknownError), at_line(DirectClient.take, number, alarm) as lines:
            f.add(f"item {number}")
            assert len(lines) <= number
            break
    assert number > 5


@pytest.mark.parametrize("error", [TypeError, AttributeError, ConnectionResetError(104, "reset")])
def test_a_connection_that_another_thread_closes(
    own: redis.Redis, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """If another thread closes the socket during the check, the client connects again."""
    f, direct = make(own), connect_direct(own)
    f.add("warm")
    connection = free(own)
    with monkeypatch.context() as patch:
        patch.setattr(connection._parser, "can_read", Mock(side_effect=error))  # as for a closed socket
        assert not direct.take()
    assert f.add("a")
    pool = own.connection_pool
    assert pool.get_connection() is connection  # it went back
    pool.release(connection)


@pytest.mark.parametrize("what", ["writelines", "transport"])
@pytest.mark.parametrize("kind", [RuntimeError, AttributeError])
def test_a_connection_that_was_just_closed(any_server: Server, what: str, kind: type[Exception]) -> None:
    """Then uvloop raises RuntimeError, and CPython 3.12 AttributeError; the client connects again."""

    async def main() -> None:
        async with redis.asyncio.Redis(unix_socket_path=any_server.socket, **async_retrying(1)) as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", capacity=100, error_rate=0.001)
            assert await f.add("warm")
            pool: Any = client.connection_pool
            connection = await pool.get_connection()
            await pool.release(connection)
            gone = Mock(wraps=connection._writer)  # the stream of the connection
            failing = gone if what == "writelines" else gone.transport
            name = "writelines" if what == "writelines" else "get_write_buffer_size"
            setattr(failing, name, Mock(side_effect=kind("the handler is closed")))
            connection._writer = gone  # until the connection is made again
            assert await f.add("a")
            assert not await f.add("a")

    asyncio.run(main())


@pytest.mark.skipif(
    not hasattr(redis.asyncio.Connection, "mark_for_reconnect"), reason="redis-py 5 and 6 do not have it"
)
@pytest.mark.parametrize("ending", [ConnectionError, asyncio.CancelledError])
def test_a_pool_that_fails_to_take_a_connection_back(
    any_server: Server, monkeypatch: pytest.MonkeyPatch, ending: type[BaseException]
) -> None:
    """The caller gets the pool's error or the cancellation; the connection is returned once."""

    async def check() -> None:
        async with redis.asyncio.Redis(unix_socket_path=any_server.socket) as client:
            f = bloomredis.asyncio.BloomFilter(client, "kept", **SIZE)
            await f.add("warm")
            pool: Any = client.connection_pool
            connection = await pool.get_connection()
            await pool.release(connection)
            connection.mark_for_reconnect()
            release, calls = client.connection_pool.release, []

            async def fail(given: Any) -> None:
                calls.append(given)
                await release(given)
                raise ending

            with monkeypatch.context() as patch:
                patch.setattr(client.connection_pool, "release", fail)
                with pytest.raises((ending, OutcomeUnknownError)):
                    await f.add("a")
            assert calls == [connection]
            assert await f.add("a")

    asyncio.run(check())


def _raising(error: type[BaseException]) -> Callable[..., Any]:
    def read_response(**_: object) -> Any:
        raise error

    return read_response


def test_an_exception_between_the_replies_of_a_pipeline(
    own: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No later call reads the remaining replies."""
    f = ShardedBloomFilter(own, "sharded", capacity=1000, error_rate=1e-9, shards=4)
    f.add_many(range(20))
    connection = free(own)
    replies = [connection.read_response, _raising(KeyboardInterrupt)]

    def read_response(**options: Any) -> Any:
        return replies.pop(0)(**options)

    with monkeypatch.context() as patch:
        patch.setattr(connection, "read_response", read_response)
        with pytest.raises(KeyboardInterrupt):
            f.add_many(range(20, 40))
    assert f.add_many(range(20, 40)) == [True] * 20


def test_a_script_that_uses_the_client_meanwhile(own: redis.Redis, any_server: Server) -> None:
    """A call within a call, as from a signal handler, uses another connection."""
    with proxied(any_server.socket) as proxy:
        f = make(proxy.client(socket_timeout=60))
        f.add("warm")
        inner: list[bool] = []

        def within(exchange: Any) -> bool:
            proxy.calm()
            inner.extend([f.add("inner"), f.contains("outer")])
            return passed(exchange)

        proxy.plan("add", within)
        assert (f.add("outer"), inner) == (True, [True, False])


def test_greenlets(any_server: Server, own: redis.Redis) -> None:
    """Concurrent greenlets of one thread get their own answers, with or without monkey-patching."""
    for patching in ("monkey.patch_all()", ""):
        program = (
            f"import gevent\nfrom gevent import monkey\n{patching}\n"
            "import redis, bloomredis\n"
            f"client = redis.Redis(unix_socket_path={any_server.socket!r})\n"
            "f = bloomredis.BloomFilter(client, 'green', capacity=10000, error_rate=1e-9)\n"
            "f.clear()\n"
            "f.add_many(range(0, 600, 2))\n"
            "jobs = [gevent.spawn(lambda k=k: [f.add(i) for i in range(k, 600, 20)]) for k in range(20)]\n"
            "gevent.joinall(jobs, timeout=50)\n"
            "assert [job.value for job in jobs] == [[k % 2 == 1] * 30 for k in range(20)]\n"
        )
        subprocess.run([sys.executable, "-c", program], timeout=60, cwd=ROOT, check=True)
