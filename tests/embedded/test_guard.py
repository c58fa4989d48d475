"""Servers and guards that are killed or do not start."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from bloomredis import connect
from bloomredis.embedded import connecting, guard
from tests.support.programs import Program, is_alive, server_of
from tests.support.waiting import wait_until


def test_a_new_server_follows_one_that_was_killed(start: Callable[..., Program], kept: str) -> None:
    """After the server was killed, the next connect() starts a new one with the data."""
    client = connect(kept)
    client.set("key", 1)
    os.kill(server_of(client)[0], signal.SIGKILL)
    assert connect(kept).get("key") == b"1"


def answers(client: redis.Redis) -> bool:
    """Return whether a server listens on the client's socket."""
    return guard.ask(Path(client.connection_pool.connection_kwargs["path"]), b"PING") == b"+PONG"


def kill_guard(client: redis.Redis, how: signal.Signals) -> None:
    """Send a signal to the parent of a client's server, and wait for its end."""
    pid, directory = server_of(client)
    parent = subprocess.check_output(["ps", "-o", "ppid=", "-p", str(pid)])  # noqa: S607 - ps is in PATH
    os.kill(int(parent), how)
    wait_until("the guard ends", guard.Home(directory, private=True).has_ended)


def test_a_new_server_follows_one_whose_guard_was_killed(kept: str) -> None:
    """After the guard was killed, the next connect() starts one new server on the data, and no second."""
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
    """SIGTERM to the guard shuts the server down cleanly."""
    client = connect("embedded://")
    pid, directory = server_of(client)
    kill_guard(client, signal.SIGTERM)
    assert not is_alive(pid)
    assert not directory.exists()


@pytest.mark.parametrize("url", ["embedded://", "kept"])
def test_a_server_that_does_not_start_says_why(
    url: str, kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error contains the server's output, and no private directory remains."""
    binary = tmp_path / "server"
    binary.write_text("#!/bin/sh\necho no memory for $PWD\n")
    binary.chmod(0o700)
    monkeypatch.setattr(connecting, "_binary", lambda: str(binary))
    with pytest.raises(redis.ConnectionError, match="no memory for ") as caught:
        connect(kept if url == "kept" else url)
    directory = re.search("for (.*)", str(caught.value))
    assert directory is not None
    assert Path(directory[1]).exists() is (url == "kept")


def test_the_directory_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of another user, or writable by everybody, is refused and left unchanged."""
    kept = tmp_path / "kept"
    kept.mkdir()
    kept.chmod(0o777)
    with pytest.raises(PermissionError, match="mode 777: everybody can write to it"):
        connect(f"embedded://{kept}")
    kept.chmod(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: kept.stat().st_uid + 1)
    with pytest.raises(PermissionError, match=r"belongs to user \d+, not to \d+"):
        connect(f"embedded://{kept}")
    assert not list(kept.iterdir())


def test_a_server_that_cannot_be_run_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is no executable gives an error with the reason too."""
    monkeypatch.setattr(connecting, "_binary", lambda: "/nonexistent/valkey-server")
    with pytest.raises(redis.ConnectionError, match=r"No such file .*/nonexistent/valkey-server"):
        connect("embedded://")


def test_the_reason_is_logged_before_the_home_goes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The guard logs the reason before it deletes the private directory, so the error has it."""

    def unable(_: list[str]) -> None:
        raise FileNotFoundError("no such server")

    said: list[str] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fork", lambda: 0)
    monkeypatch.setattr(signal, "pthread_sigmask", lambda *_: None)
    monkeypatch.setattr(guard, "guard_server", unable)
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: said.append(capsys.readouterr().err))
    guard.main(str(tmp_path / "runtime"), "valkey-server")
    assert "FileNotFoundError: no such server" in said[0]
