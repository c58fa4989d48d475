"""Bad usage and missing servers: an exit status, and one line on standard error without passwords."""

from __future__ import annotations

import contextlib
import os
import re
import select
import subprocess
import sys

import pytest

from bloomredis import BloomFilter, cli
from bloomredis.cli.server import redacted
from tests.support.commands import COMMAND, ENVIRONMENT, run_command
from tests.support.servers import Server
from tests.support.values import for_each


def test_stdout_that_would_block() -> None:
    """A full non-blocking pipe is an error of one line."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, bytes(select.PIPE_BUF))
    command = [*COMMAND, "plan", "--capacity", "1000", "--error-rate", "0.01"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False)
    os.close(reading)
    os.close(writing)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"non-blocking" in done.stderr


BAD_USAGE = {
    "field 0": ["dedupe", "--field", "0"],
    "columns that end before they begin": ["dedupe", "--field=3-1"],
    "delimiter alone": ["dedupe", "--delimiter", ","],
    "empty delimiter": ["dedupe", "--field", "1", "--delimiter", ""],
    "capacity 0": ["dedupe", "--url", "memory://", "--capacity", "0"],
    "error rate 1": ["dedupe", "--url", "memory://", "--error-rate", "1"],
    "empty name": ["dedupe", "--url", "memory://", "--name", ""],
    "empty file name": ["dedupe", ""],
    "name without url": ["dedupe", "--name", "x"],
    "window of another kind": ["dedupe", "--kind", "sharded", "--window", "1h"],
    "rotating without window": ["dedupe", "--kind", "rotating"],
    "window that is no time": ["dedupe", "--window", "soon"],
    "unknown kind": ["dedupe", "--kind", "nonsense"],
    "unknown layout": ["info", "x", "--url", "memory://", "--layout", "nonsense"],
    "layout without numbers": ["info", "x", "--url", "memory://", "--layout", "go_zero"],
    "layout with a wrong number": ["info", "x", "--url", "memory://", "--layout", "go_zero:x"],
    "layout with too many": ["info", "x", "--url", "memory://", "--layout", "go_zero:1,2"],
    "layout of another kind": ["dedupe", "--kind", "scaling", "--layout", "go_zero:20000"],
    "cluster without a port": ["dedupe", "--url", "memory://", "--cluster"],
    "create without numbers": ["create", "x", "--url", "memory://"],
    "create with half": ["create", "x", "--url", "memory://", "--capacity", "5"],
    "ttl of a rotating filter": [
        *("create", "x", "--url", "memory://", "--capacity", "5", "--error-rate", "0.1"),
        *("--window", "1h", "--ttl", "1h"),
    ],
    "plan of far too much": ["plan", "--capacity", "1" + "0" * 30, "--error-rate", "0.001"],
    "plan of an unknown layout": ["plan", "--capacity", "5", "--error-rate", "0.1", "--layout", "nonsense"],
    "missing file": ["dedupe", "--url", "memory://", "/there/is/no/such/file"],
    "unknown scheme": ["dedupe", "--url", "http://example.org"],
    "unknown option": ["dedupe", "--nonsense"],
    "unknown command": ["nonsense"],
    "demo in memory": ["demo", "--url", "memory://"],
    "info without url": ["info", "x"],
    "plan without numbers": ["plan"],
    "plan of too few shards": ["plan", "--capacity", "10000000000", "--error-rate", "0.01", "--shards", "2"],
    "plan on no nodes": ["plan", "--capacity", "1000", "--error-rate", "0.01", "--nodes", "0"],
}


@pytest.mark.parametrize("arguments", BAD_USAGE.values(), ids=BAD_USAGE)
def test_bad_usage(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Bad usage is exit status 2, with a reason and no traceback on stderr and nothing on stdout."""
    monkeypatch.setattr(sys, "argv", ["bloomredis", *arguments])
    monkeypatch.delenv("BLOOMREDIS_URL", raising=False)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capfd.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert err
    assert "Traceback" not in err


def test_other_parameters_than_the_stored(any_server: Server) -> None:
    """Another capacity for a shared filter is bad usage, in one line that gives both."""
    with any_server.client() as client:
        stored = BloomFilter(client, "other", capacity=77, error_rate=0.01)
        stored.create()
        done = run_command("dedupe", "--url", any_server.url, "--name", stored.name, "--capacity", 88)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert re.search(rb"77.*88", done.stderr)


ELSEWHERE = "redis://:hunter2@127.0.0.1:1"


@pytest.mark.parametrize(
    "command",
    [
        *(["dedupe", "--url", ELSEWHERE], ["dedupe", "--name", "x"], ["info", "x"]),
        *(["demo", "--url", ELSEWHERE], ["check", "x", "y", "--cluster"]),
    ],
)
def test_server_that_is_not_there(command: list[str]) -> None:
    """A missing server is exit status 3, in one line without the password that says what to do."""
    done = run_command(*command, BLOOMREDIS_URL=ELSEWHERE)
    assert (done.returncode, done.stderr.count(b"\n")) == (3, 1)
    assert b"hunter2" not in done.stderr
    assert b"is a server running there?" in done.stderr


def test_a_server_of_the_environment_is_no_playground() -> None:
    """`dedupe` without --name and `demo` use a private server, whatever the environment says."""
    done = run_command("dedupe", "--count", data=b"a\na\n", BLOOMREDIS_URL=ELSEWHERE)
    assert (done.returncode, done.stdout) == (0, b"read  2\nnew   1\n")


@for_each(
    "url", ["redis://:hunt/ter2@h", "redis://:hunt?ter2@h", "redis://me:12#ter2@h", "redis://:ter2@h:ter2"]
)
def test_misread_password(url: str) -> None:
    """A URL broken by a special character in the password is bad usage, and no part of it is shown."""
    done = run_command("info", "x", "--url", url)
    assert done.returncode == 2
    assert b"ter2" not in done.stderr
    assert b"hunt" not in done.stderr


def test_redacted() -> None:
    """A redacted URL shows only the server and database: no user, password or option."""
    assert redacted("redis://me:hunter2@example.org:1/2") == "redis://***@example.org:1/2"
    assert redacted("redis://h?password=hunter2") == "redis://h"
    assert redacted("redis://h?password=hun@ter2") == "redis://***@"
    assert redacted("embedded:///some/where") == "embedded:///some/where"


def test_without_typer() -> None:
    """Without the extra, the command says how to install it, with exit status 2."""
    program = "import sys; sys.modules['typer'] = None; from bloomredis.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 2
    assert b"pip install 'bloomredis[cli]'" in done.stderr


def test_ctrl_c_before_the_command_listens() -> None:
    """While modules are imported, Ctrl-C ends the command without a traceback."""
    program = (
        "import sys, builtins\n"
        "from bloomredis import cli\n"
        "def interrupted(*_, **__): raise KeyboardInterrupt\n"
        "builtins.__import__ = interrupted\n"
        "cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (130, b"")


def test_help_is_frugal() -> None:
    """`--help` imports no client library or progress bar, and needs no server."""
    program = (
        "import sys; sys.argv[1:] = ['--help']\n"
        "from bloomredis.cli import main\n"
        "try: main()\n"
        "except SystemExit: sys.exit(bool({'redis', 'fakeredis', 'rich'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
