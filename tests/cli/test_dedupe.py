"""`bloomredis dedupe`, run as a separate process on real servers."""

from __future__ import annotations

import functools
import os
import pty
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bloomredis.cli.dedupe import RETRIES
from tests.support.commands import COMMAND, ENVIRONMENT, answer, printed, run_command, started
from tests.support.servers import Server
from tests.support.values import for_each
from tests.support.waiting import wait_until


@functools.cache
def log(count: int = 30_000) -> bytes:
    """Return a log of client addresses and requests, with every oddity that real logs have."""
    rng = random.Random(0)
    clients = [f"10.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(256)}" for _ in range(3000)]
    parts = []
    for _ in range(count):
        client = rng.choice(clients) + rng.choice(["", "", "\xe9", "\xff\xfe"])
        gap = rng.choice([" ", " ", "\t", " \t "])
        rest = f"-{gap}[{rng.randrange(1000)}]{gap}/page/{rng.randrange(500)}{gap}{rng.randrange(9)}{gap}"
        parts.append(rng.choice(["", "", " ", "\t "]) + client + gap + rest + rng.choice(["", "", "\r"]))
        if rng.random() < 0.01:
            parts.append("")
    return "\n".join([*parts, "no newline here"]).encode("latin-1")


def first_of_each(data: bytes, field: int) -> bytes:
    """Return what awk '$field == "" || !seen[$field]++' prints; awk itself prints it if it is installed."""
    if awk := shutil.which("awk"):
        program = f'${field} == "" || !seen[${field}]++'
        return subprocess.run(
            [awk, program], input=data, capture_output=True, check=True, env=ENVIRONMENT
        ).stdout
    found: dict[bytes | int, bytes] = {}
    for number, line in enumerate(data.removesuffix(b"\n").split(b"\n")):
        columns = re.findall(rb"[^ \t]+", line)
        found.setdefault(columns[field - 1] if len(columns) >= field else number, line)
    return b"".join(line + b"\n" for line in found.values())


def whole_lines(data: bytes) -> bytes:
    """Return the first of each set of equal lines."""
    return b"".join(line + b"\n" for line in dict.fromkeys(data.split(b"\n")))


@pytest.mark.parametrize("field", [1, 4, 9])
def test_dedupe_prints_what_awk_prints(any_server: Server, field: int) -> None:
    """The output equals awk's for tabs, leading blanks, missing columns, CRLF, bad UTF-8, no last newline."""
    data, command = log(8_000), ("dedupe", "--keep-cr", "--url", any_server.url)
    assert run_command(*command, "--field", field, data=data).stdout == first_of_each(data, field)


def test_dedupe_of_whole_lines(any_server: Server) -> None:
    """Without --field, whole lines are compared, including empty ones."""
    data = log(8_000) + b"\n" + log(8_000)
    assert printed("dedupe", "--keep-cr", "--url", any_server.url, data=data) == whole_lines(data)


def test_two_at_once_share_a_filter(any_server: Server, tmp_path: Path) -> None:
    """Two runs each read the whole log; together they print every client once."""
    data = log(8_000)
    options = ["--url", any_server.url, "--keep-cr", "--name", "shared", "--field", "1", "--missing", "drop"]
    with (tmp_path / "one").open("wb") as one, (tmp_path / "two").open("wb") as two:
        racers = [
            subprocess.Popen(
                [*COMMAND, "dedupe", *options], stdin=subprocess.PIPE, stdout=to, env=ENVIRONMENT
            )
            for to in (one, two)
        ]
        for racer in racers:  # a line that both have to answer before the others
            assert racer.stdin is not None
            racer.stdin.write(b"first\n")
            racer.stdin.flush()
        with any_server.client() as client:
            wait_until("both have connected", lambda: len(client.client_list()) > len(racers))
        with ThreadPoolExecutor() as pool:
            for each in [pool.submit(racer.communicate, data, 120) for racer in racers]:
                each.result()
        assert [racer.returncode for racer in racers] == [0, 0]
    outputs = (tmp_path / "one").read_bytes() + (tmp_path / "two").read_bytes()
    wanted = [line for line in first_of_each(b"first\n" + data, 1).splitlines(True) if line.split()]
    assert sorted(outputs.splitlines(True)) == sorted(wanted)


def test_delimiter(any_server: Server) -> None:
    r"""--delimiter is a plain string or \t, and each one separates; an empty column counts like any other."""
    dots = ["dedupe", "--url", any_server.url, "--field", 2, "--delimiter", "."]
    assert printed(*dots, data=b"a.x.1\nb.x.2\nc..x\nd.\n.y") == b"a.x.1\nc..x\n.y\n"
    assert printed(*dots[:-1], r"\t", data=b"a b\tx\nc\tx\n") == b"a b\tx\n"


def test_carriage_return_is_part_of_a_column(any_server: Server) -> None:
    """Only spaces and tabs separate columns; mawk treats CR as a blank, gawk does not."""
    command = ("dedupe", "--keep-cr", "--url", any_server.url, "--field", 1)
    assert printed(*command, data=b"a\r\na\n") == b"a\r\na\n"


def test_count(any_server: Server) -> None:
    """--count prints only how many lines were read and how many of them were new."""
    assert printed("dedupe", "--url", any_server.url, "--count", data=b"a\nb\na") == b"read  3\nnew   2\n"


def test_files_and_stdin(any_server: Server, tmp_path: Path) -> None:
    """Files are read one after another, - is stdin, and the end of a file ends a line."""
    (tmp_path / "f").write_bytes(b"a\nb")
    arguments = ["dedupe", "--url", any_server.url, tmp_path / "f", "-", tmp_path / "f"]
    assert printed(*arguments, data=b"b\nc") == b"a\nb\nc\n"


def test_interactive_pipe(any_server: Server) -> None:
    """Each line is printed before the next one arrives; a filter without a name is deleted at the end."""
    with started("dedupe", "--url", any_server.url) as process:
        assert [answer(process, line) for line in (b"a\n", b"b\n", b"a\nc\n")] == [b"a\n", b"b\n", b"c\n"]
        assert len(any_server.keys()) == 2  # the record and a layer
        process.communicate()
    assert any_server.keys() == []


def test_without_url() -> None:
    """Without --url, the command needs no server."""
    assert printed("dedupe", data=b"a\na\nb\n") == b"a\nb\n"


def test_a_private_run_needs_no_server() -> None:
    """Without --url, no client is imported, and numpy only for more lines than a loop reads in its time."""
    program = (
        "import sys; sys.argv[1:] = ['dedupe']\n"
        "from bloomredis.cli import main\n"
        "try: main()\n"
        "finally: sys.stderr.write(str({'redis', 'fakeredis', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=b"a\na\nb\n", capture_output=True, check=True
    )
    assert (done.stdout, done.stderr) == (b"a\nb\n", b"set()")


def test_a_private_run_prints_what_a_server_lets_pass(any_server: Server, tmp_path: Path) -> None:
    """Though thousands of different lines are more than its first layers hold."""
    data = b"".join(
        log().splitlines(keepends=True)[:4000]
    )  # one batch: two at once would have no fixed order
    (tmp_path / "log").write_bytes(data)
    options = ("--capacity", 100, "--error-rate", 0.1, "--keep-cr", tmp_path / "log")
    ours = printed("dedupe", *options)
    assert ours == printed("dedupe", "--url", any_server.url, *options)
    assert ours.count(b"\n") < whole_lines(data).count(b"\n")


@for_each("options", [("--kind", "fixed"), ("--kind", "counting"), ("--layout", "classic")])
def test_a_filter_that_only_a_server_has(options: tuple[str, str]) -> None:
    """Without --url, a kind or layout that a private run does not have is bad usage."""
    done = run_command("dedupe", *options, data=b"a\n")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"need --url and --name" in done.stderr


def test_progress_is_for_a_terminal(any_server: Server) -> None:
    """With a terminal on stderr, a bar tells after a while how many lines were read and new, and how fast."""
    ours, theirs = pty.openpty()
    program = "from bloomredis.cli import main, progress; progress._PATIENCE = 0; main()"
    command = [sys.executable, "-c", program, "dedupe", "--url", any_server.url]
    data = log()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=theirs, env=ENVIRONMENT
    ) as process:
        os.close(theirs)
        assert process.stdin is not None
        process.stdin.write(data)  # while the input is open, the last totals stay
        told = b""
        while not re.search(rb"[1-9][\d,]* read, [1-9][\d,]* new, [\d,]+/s", told):
            told += os.read(ours, 10_000)
        process.kill()
    os.close(ours)


def test_named_filter_is_kept(any_server: Server) -> None:
    """A second run with the same --name knows the lines of the first."""
    command = ["dedupe", "--url", any_server.url, "--name", "kept"]
    assert printed(*command, data=b"a\nb\n") == b"a\nb\n"
    assert printed(*command, data=b"b\nc\n") == b"c\n"


@for_each("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_clean_up(any_server: Server, number: signal.Signals) -> None:
    """Ctrl-C, SIGTERM and SIGHUP end the command with 128 + their number, without a message or a key."""
    with started("dedupe", "--url", any_server.url) as process:
        assert answer(process, b"a\n") == b"a\n"
        process.send_signal(number)
        assert process.communicate()[1] == b""
    assert process.returncode == 128 + number
    assert any_server.keys() == []


def test_signal_loses_no_line(any_server: Server, tmp_path: Path) -> None:
    """An interrupted run has printed each line it marked in a shared filter; the next prints the rest."""
    (tmp_path / "log").write_bytes(log())
    options = ["--url", any_server.url, "--name", "interrupted", "--error-rate", "1e-9", "--keep-cr"]
    command = ["dedupe", *options, tmp_path / "log"]
    with started(*command) as process:
        assert process.stdout is not None
        begun = process.stdout.read(1)
        process.send_signal(signal.SIGTERM)
        begun += process.communicate()[0]
    rest = printed(*command)
    assert process.returncode == 128 + signal.SIGTERM
    assert sorted((begun + rest).split(b"\n")[:-1]) == sorted(set(log().split(b"\n")))


@pytest.mark.faults
def test_connections_that_are_cut(any_server: Server, tmp_path: Path) -> None:
    """A run with --name reconnects each time, and prints what it would have printed."""
    (tmp_path / "log").write_bytes(log())
    options = ["--url", any_server.url, "--name", "x", "--keep-cr"]
    command = [*COMMAND, "dedupe", *options, str(tmp_path / "log")]
    cuts = before = 0
    with (tmp_path / "out").open("wb") as out, any_server.client() as client:
        process = subprocess.Popen(command, stdout=out, env=ENVIRONMENT)
        while process.poll() is None:
            size = os.fstat(out.fileno()).st_size
            if cuts < RETRIES and size > before:  # more cuts might meet one call at each of its retries
                client.client_kill_filter(_type="normal", skipme=True)
                cuts, before = cuts + 1, size
            time.sleep(0.005)  # let the command run
    assert (process.returncode, cuts) == (0, RETRIES)
    assert (tmp_path / "out").read_bytes() == whole_lines(log())


def test_reader_that_goes(any_server: Server) -> None:
    """`| head -1` ends the command with SIGPIPE's status, without a message or a remaining key."""
    with started("dedupe", "--url", any_server.url) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        assert answer(process, b"a\n") == b"a\n"
        process.stdout.close()
        process.stdin.write(b"b\n")
        assert process.wait(60) == 141
        assert process.stderr.read() == b""
    assert any_server.keys() == []
