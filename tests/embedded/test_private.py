"""A private embedded server never outlives the programs that use it."""

from __future__ import annotations

import gc
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from bloomredis import BloomFilter, connect
from tests.support.inside import client_of
from tests.support.programs import WAIT, Program, is_alive, server_of
from tests.support.waiting import wait_until


def test_each_private_server_is_its_own() -> None:
    """A second embedded:// in the same process starts another server."""
    first, second = connect("embedded://"), connect("embedded://")
    assert server_of(first) != server_of(second)


def test_a_private_server_is_the_users_alone() -> None:
    """The directory and the socket of a server have mode 700, and it listens on no port."""
    client = connect("embedded://")
    path = client.connection_pool.connection_kwargs["path"]
    assert [stat.S_IMODE(Path(p).stat().st_mode) for p in (path, server_of(client)[1])] == [0o700] * 2
    assert client.config_get("port") == {"port": "0"}


def test_a_server_ends_with_the_last_that_can_use_it() -> None:
    """A server lives while a filter refers to its client, and no longer."""
    seen = BloomFilter(connect("embedded://"), "seen", capacity=1000, error_rate=0.01)
    pid, directory = server_of(client_of(seen))
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
        ("sys.exit(3)", None),
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


@pytest.mark.parametrize("then", ["", "1 / 0", "del client, other"])
def test_a_program_that_exits_waits_for_the_end(then: str, start: Callable[..., Program], kept: str) -> None:
    """When a program has exited normally, its servers have ended."""
    second = (
        f"other = connect({kept!r})\n"
        "print(other.info('server')['process_id'], other.config_get('dir')['dir'], flush=True)\n"
    )
    program = start("embedded://", second + then)
    (private, gone), (shared, stays) = program.server(), program.server()
    program.end()
    assert (is_alive(private), is_alive(shared)) == (False, False)
    assert (gone.exists(), stays.exists()) == (False, True)


def test_an_orderly_program_gives_no_warnings(start: Callable[..., Program]) -> None:
    """A program that uses a server runs without warnings in Python's development mode."""
    program = start("embedded://", "del client; connect('embedded://'); c = connect('embedded://')", "-Xdev")
    assert program.end()[1] == ""


def test_ctrl_c_does_not_reach_the_server(start: Callable[..., Program]) -> None:
    """A program that survives Ctrl-C keeps its server."""
    program = start(
        "embedded://", f"try: print(flush=True); {WAIT}\nexcept KeyboardInterrupt: print(client.ping())"
    )
    program.server()
    program.line()
    os.killpg(program.process.pid, signal.SIGINT)
    assert program.line() == "True"


def test_a_forked_worker_shares_the_server(start: Callable[..., Program]) -> None:
    """A forked child uses its parent's server, and the child's end does not stop the server."""
    child = "if not os.fork(): client.incr('n'); sys.exit()\nos.wait(); print(client.get('n'))"
    program = start("embedded://", child)
    program.server()
    assert program.line() == "b'1'"


def test_a_server_lives_as_long_as_a_forked_worker(start: Callable[..., Program]) -> None:
    """A forked child keeps the server after its parent was killed; the server ends with the child."""
    child = "if os.fork(): os.kill(os.getpid(), signal.SIGKILL)\nsys.stdin.readline(); print(client.ping())"
    program = start("embedded://", child)
    pid, directory = program.server()
    program.process.wait(timeout=60)
    assert is_alive(pid)
    assert program.end()[0] == "True\n"
    wait_until("nothing is left", lambda: not is_alive(pid) and not directory.exists())
