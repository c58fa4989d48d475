"""The program as a whole: its version, help, shell completion, and `python -m bloomredis`."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from bloomredis.cli.commands import COMMANDS as EVERY
from tests.support.commands import ENVIRONMENT, printed, run_command, run_process
from tests.support.servers import Server
from tests.support.values import for_each


def test_version() -> None:
    """--version prints the installed version."""
    assert printed("--version") == f"bloomredis {version('bloomredis')}\n".encode()


def test_python_m() -> None:
    """`python -m bloomredis` starts the program, and so does `python -m bloomredis.cli`."""
    command = [sys.executable, "-m", "bloomredis", "dedupe"]
    done = subprocess.run(command, input=b"a\na\nb\n", capture_output=True, env=ENVIRONMENT, check=True)
    assert (done.stdout, done.stderr) == (b"a\nb\n", b"")


def test_demo_by_python_m() -> None:
    """The demo's worker processes start under `python -m bloomredis` too."""
    command = [sys.executable, "-m", "bloomredis", "demo", "--events", "1000", "--workers", "1"]
    done = subprocess.run(command, capture_output=True, env=ENVIRONMENT, check=True)
    assert b"processed twice" in done.stdout


def test_completion(tmp_path: Path) -> None:
    """--install-completion writes the shell's start-up files."""
    done = run_process(
        *("--install-completion", "bash"),
        HOME=str(tmp_path),
        _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1",
    )
    assert done.returncode == 0
    assert "bloomredis" in (tmp_path / ".bashrc").read_text()


COMMANDS = ["dedupe", "create", "add", "check", "info", "delete", "plan", "doctor", "demo"]


@for_each("command", COMMANDS)
def test_help(command: str) -> None:
    """Every command has a help text."""
    assert b"Usage" in run_command(command, "--help").stdout


ELSEWHERE = ["watch", "demo", "export"]
"""Commands that last, or need another package; other tests run them."""


def test_the_examples_of_the_help_run(
    any_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other, in the order of the help."""
    monkeypatch.chdir(tmp_path)
    for name in ("lines.txt", "urls.txt"):
        Path(name).write_text("https://example.org/\nhttps://example.net/\n")
    url = any_server.url
    run_command(
        "create", "in-stock", "--kind", "counting", "--capacity", 10, "--error-rate", 0.1, BLOOMREDIS_URL=url
    )
    run_command("add", "in-stock", 4711, BLOOMREDIS_URL=url)
    for name, command in EVERY.items():
        words = command.example.split()
        assert words[0] == name
        if name not in ELSEWHERE:
            done = run_command(*words, BLOOMREDIS_URL=url)
            assert done.returncode == 0, (words, done.stderr)
