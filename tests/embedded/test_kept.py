"""An embedded server in a kept directory: programs share it, and its data survive them."""

from __future__ import annotations

import gc
import signal
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from bloomredis import connect
from tests.support.programs import WAIT, Program, is_alive, server_of
from tests.support.sizes import sized
from tests.support.values import for_each
from tests.support.waiting import wait_until


def test_a_kept_directory_is_made(kept: str) -> None:
    """embedded:///some/directory creates the directory, with mode 700."""
    _, directory = server_of(connect(kept))
    assert kept.endswith(str(directory))
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


@pytest.mark.parametrize("how", [None, signal.SIGTERM, signal.SIGKILL])
def test_a_kept_directory_keeps_the_data(
    how: signal.Signals | None, start: Callable[..., Program], kept: str
) -> None:
    """The next program finds the data of the last one, however that ended."""
    program = start(kept, f"client.set('key', 1); print(); {WAIT}")
    pid, _ = program.server()
    program.line()
    program.end(how)
    wait_until("the server ends", lambda: not is_alive(pid))
    assert connect(kept).get("key") == b"1"


def test_programs_share_a_kept_server(start: Callable[..., Program], kept: str) -> None:
    """Programs that name one directory share one server, which ends with the last of them."""
    first, second = start(kept), start(kept, f"{WAIT}; print(client.ping())")
    pid, _ = first.server()
    assert second.server()[0] == pid
    first.end()
    assert is_alive(pid)
    assert second.end()[0] == "True\n"
    assert not is_alive(pid)


@sized("count", make_test=3, make_test_all=6)
def test_programs_that_start_at_once_share_a_server(
    start: Callable[..., Program], kept: str, count: int
) -> None:
    """Of programs that start at the same moment, one starts the server for all."""
    programs = [start(kept) for _ in range(count)]
    assert len({program.server()[0] for program in programs}) == 1


def test_clients_of_one_process_share_a_kept_server(kept: str) -> None:
    """Two clients of one directory share one server, also after one of them is gone."""
    first, second = connect(kept), connect(kept + "/../kept/")
    pid = server_of(first)[0]
    del first
    gc.collect()
    assert server_of(second)[0] == pid


@pytest.mark.faults
def test_no_write_is_lost_while_programs_come_and_go(start: Callable[..., Program], kept: str) -> None:
    """A program that starts while another ends the server waits for it, and finds all its writes."""
    churn = "for _ in range(15): del client; client = connect(sys.argv[1]); client.incr('n')"
    programs = [start(kept, churn) for _ in range(4)]
    assert [program.end()[1] for program in programs] == [""] * 4
    assert connect(kept).get("n") == b"60"


@for_each("name", ["n" * 150, "a b", "100%", "?#@:", "quote'\"", "-dash", "ünï"])
def test_a_directory_may_have_any_name(name: str, tmp_path: Path) -> None:
    """Long names and percent-encoded special characters work."""
    assert server_of(connect(f"embedded://{quote(str(tmp_path / name))}"))[1] == tmp_path / name
    gc.collect()
    wait_until("the server ends", lambda: not (tmp_path / name / "server.socket").is_symlink())


def test_a_long_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TMPDIR too long for a socket's path is not used."""
    long = tmp_path / ("n" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    assert connect("embedded://").ping()
