"""Programs started with standard input, output or error closed never use a connection as a stream."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import redis
import typer

from bloomredis import BloomFilter, CountingBloomFilter
from bloomredis.cli.app import app
from tests.support.commands import COMMAND, ENVIRONMENT
from tests.support.servers import Server
from tests.support.values import for_each

pytestmark = pytest.mark.faults

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]  # the command is a group
CLOSED = {"stdin": "<&-", "stdout": ">&-", "stderr": "2>&-", "all": "<&- >&- 2>&-"}
LINES = b"FLUSHALL\nSET injected yes\nnonsense 1\n"
VALUES = {
    "name": "clicks",
    "names": "clicks",
    "capacity": "1000",
    "error_rate": "0.01",
    "events": "100",
    "workers": "2",
    "once": "",
}
"""The value of each parameter name, in every command that takes it; "" for a flag."""
SAVED = Path(tempfile.gettempdir()) / f"bloomredis-{os.getpid()}.bloom"
OWN = {
    "save": {"file": f"{SAVED}.again"},
    "restore": {"name": "restored", "file": str(SAVED)},
    "copy": {"new_name": "copied"},
    "merge": {"other": "clicks"},
    "watch": {"every": "0.1"},
    "import": {"name": "imported", "from_file": "-"},
    "expire": {"after": "1h"},
    "remove": {"name": "counted"},
}
"""Additional or other values for single commands."""


def run_closed(closed: str, *command: object, data: bytes = LINES) -> subprocess.CompletedProcess[bytes]:
    """Run a program to its end, with these streams closed from the start."""
    program = f"exec {shlex.join(map(str, command))} {CLOSED[closed]}"
    return subprocess.run(
        ["/bin/sh", "-c", program], input=data, capture_output=True, env=ENVIRONMENT, timeout=120, check=False
    )


def usual_call(name: str, url: str) -> list[str]:
    """Return a successful call of a command: every parameter from VALUES, and the server's URL."""
    values = VALUES | OWN.get(name, {}) | {"url": url}
    given = [parameter for parameter in COMMANDS[name].params if parameter.name in values]
    missing = {parameter.name for parameter in COMMANDS[name].params if parameter.required} - values.keys()
    assert not missing, f"bloomredis {name} needs {missing}: add a value to VALUES"
    named = [
        part
        for one in given
        if one.param_type_name == "option"
        for part in (one.opts[0], values[one.name])
        if part
    ]
    return [name, *named, *(values[one.name] for one in given if one.param_type_name == "argument")]


@pytest.fixture
def closed(seed: int) -> str:
    """One set of streams to close; other runs choose other sets."""
    return [*CLOSED][seed % len(CLOSED)]


@pytest.fixture
def observer(any_server: Server) -> Iterator[redis.Redis]:
    """A client of a server with a key `canary` and a saved filter `clicks`; its statistics are reset."""
    with any_server.client(decode_responses=True) as client:
        client.set("canary", "alive")
        clicks = BloomFilter(client, "clicks", capacity=1000, error_rate=0.01)
        clicks.add("FLUSHALL")
        clicks.save(SAVED)
        CountingBloomFilter(client, "counted", capacity=1000, error_rate=0.01).add("FLUSHALL")
        client.config_resetstat()
        yield client
    for path in (SAVED, Path(f"{SAVED}.again")):
        path.unlink(missing_ok=True)


def strays(client: redis.Redis) -> list[str]:
    """Return signs that the server received input, output or warnings as commands."""
    assert client.get("canary") == "alive"
    seen = client.info("commandstats").keys() & {"cmdstat_flushall"}
    unknown = client.info("errorstats").keys() & {"errorstat_ERR"}
    return [*seen, *unknown, *client.scan_iter("injected")]


@pytest.mark.parametrize("closed", CLOSED)
def test_a_command_talks_to_nobody_by_mistake(observer: redis.Redis, any_server: Server, closed: str) -> None:
    """No input, output or warning reaches the server as a command, whichever streams are closed."""
    check_closed(observer, any_server, "dedupe", closed)


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"dedupe"}))
def test_no_command_talks_to_the_server_by_mistake(
    observer: redis.Redis, any_server: Server, name: str, closed: str
) -> None:
    """The same holds for every command."""
    check_closed(observer, any_server, name, closed)


def check_closed(observer: redis.Redis, server: Server, name: str, closed: str) -> None:
    """Check a command without some of its streams; without stdout it does not even connect.

    Commands that read items read the lines of stdin.
    """
    done = run_closed(closed, *COMMAND, *usual_call(name, server.url))
    assert strays(observer) == []
    if closed in ("stdout", "all"):
        assert done.returncode == 2
        assert observer.info("stats")["total_connections_received"] == 0
        assert done.stderr.count(b"\n") == (closed == "stdout")
        assert b"standard output is closed" in done.stderr or closed == "all"
        return
    found_nothing = name in ("check", "remove") and closed == "stdin"
    cannot_run = name == "export" and find_spec("prometheus_client") is None
    assert done.returncode == (2 if cannot_run else int(found_nothing)), done.stderr


def test_the_installed_program(observer: redis.Redis, any_server: Server, closed: str) -> None:
    """The program that pip installs behaves like `python -m bloomredis.cli`."""
    program = Path(sysconfig.get_path("scripts")) / "bloomredis"
    done = run_closed(closed, program, *usual_call("dedupe", any_server.url))
    assert strays(observer) == []
    assert done.returncode == (2 if closed in ("stdout", "all") else 0)


def test_closed_stdin_is_empty(observer: redis.Redis, any_server: Server) -> None:
    """A closed stdin counts as empty."""
    done = run_closed("stdin", *COMMAND, *usual_call("dedupe", any_server.url), "--count")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"read  0\nnew   0\n", b"")


def test_messages_to_a_closed_stderr_vanish(observer: redis.Redis, any_server: Server) -> None:
    """A warning to a closed stderr changes neither the output nor the exit status."""
    lines = b"".join(b"%d\n" % i for i in range(20))
    run = [
        *COMMAND,
        "dedupe",
        "--url",
        any_server.url,
        "--kind",
        "fixed",
        "--capacity",
        "10",
        "--error-rate",
        "1e-9",
    ]
    done = run_closed("stderr", *run, data=lines)
    assert strays(observer) == []
    assert (done.returncode, done.stdout) == (0, lines)


def test_errors_to_a_closed_stderr_vanish() -> None:
    """An error to a closed stderr still sets the exit status."""
    done = run_closed("stderr", *COMMAND, "info", "x", "--url", "redis://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (3, b"")


@for_each("closed", ["stdin", "stderr"])
def test_a_server_of_its_own(closed: str) -> None:
    """The private server of `dedupe` starts and works with any stream closed."""
    done = run_closed(closed, *COMMAND, "dedupe")
    assert (done.returncode, done.stdout) == (0, b"" if closed == "stdin" else LINES)


def test_imports_take_no_stream() -> None:
    """The imports before `main` is called leave no file open, so a stream's number is still free."""
    program = """
import bloomredis.cli, os
for descriptor in (0, 1, 2):
    try: os.fstat(descriptor)
    except OSError: continue
    os._exit(9)
"""
    assert run_closed("all", sys.executable, "-c", program).returncode == 0


def test_child_processes_have_the_streams() -> None:
    """Child processes find the streams that were closed open on the null device."""
    child = "import os; assert all(os.path.samestat(os.fstat(n), os.stat(os.devnull)) for n in range(3))"
    program = f"""
import subprocess, sys
from bloomredis.cli.streams import open_closed
assert open_closed() == {{"stdin", "stdout", "stderr"}}
assert (sys.stdin.fileno(), sys.stdout.fileno(), sys.stderr.fileno()) == (0, 1, 2)
subprocess.run([sys.executable, "-c", {child!r}], check=True)
"""
    assert run_closed("all", sys.executable, "-c", program).returncode == 0


def test_a_stream_whose_number_was_taken() -> None:
    """The program does not write to a file that a start-up hook has opened under a stream's number."""
    program = """
import os, sys
ours, theirs = os.pipe()  # they get numbers 0 and 1
assert theirs == 1
from bloomredis.cli.streams import open_closed
assert open_closed() == {"stdin", "stdout", "stderr"}
print("text", flush=True)
os.close(theirs)
assert os.read(ours, 10) == b""
"""
    assert run_closed("all", sys.executable, "-c", program).returncode == 0


def test_an_embedded_server_starts_without_streams(closed: str, tmp_path: Path) -> None:
    """An embedded server starts, is guarded, and ends, whichever streams its program lacks.

    /proc shows that neither the server nor its guard has a socket or pipe as a stream.
    """
    program = f"""
import os, re, sys
from pathlib import Path
import bloomredis
from bloomredis.embedded import guard
clients = []
for url in ("embedded://", "embedded://{tmp_path}/kept"):
    clients.append(client := bloomredis.connect(url))
    home = guard.Home(Path(client.config_get("dir")["dir"]), private=True)
    assert client.ping() and not home.has_ended() and home.has_users()
assert all(lock.fileno() > 2 for lock in guard._held)  # no other name has their numbers
for client in clients if sys.platform == "linux" else ():
    server = client.info("server")["process_id"]
    guarding = re.search(r"PPid:\\s*(\\d+)", Path(f"/proc/{{server}}/status").read_text())[1]
    for process in (server, guarding):
        found = [os.readlink(f"/proc/{{process}}/fd/{{number}}") for number in (0, 1, 2)]
        assert found[0] == os.devnull, found
        assert all(name.endswith("server.log") for name in found[1:]), found
"""
    done = run_closed(closed, sys.executable, "-c", program)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "kept" / "server.socket").is_symlink()
