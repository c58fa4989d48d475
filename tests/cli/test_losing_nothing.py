"""`bloomredis dedupe` reports every loss: growth, warnings, lines not read, missing fields."""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

import bloomredis
import bloomredis.compat
from bloomredis.cli.kinds import CLASSES, Kind
from tests.support.commands import COMMAND, ENVIRONMENT, answer, printed, run_command, started
from tests.support.servers import Server
from tests.support.sizes import sized
from tests.support.values import for_each

pytestmark = pytest.mark.faults

FIXED = ("--kind", "fixed", "--capacity", 100)


def numbers(count: int, start: int = 0) -> bytes:
    """Return that many different lines, each as long as a line of a log."""
    return b"".join(b"%060d\n" % i for i in range(start, start + count))


def piped(server: Server, reader: str, *options: object, log: Path) -> tuple[bytes, bytes]:
    """Run `dedupe --name x | reader`; return what the reader printed, and dedupe's messages."""
    command = [*COMMAND, "dedupe", "--url", server.url, "--name", "x", *map(str, options), str(log)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=ENVIRONMENT) as ours:
        theirs = subprocess.run(["/bin/sh", "-c", reader], stdin=ours.stdout, capture_output=True, check=True)
        assert ours.stdout is not None
        assert ours.stderr is not None
        ours.stdout.close()
        return theirs.stdout, ours.stderr.read()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A file of 5,000 different lines."""
    (tmp_path / "log").write_bytes(numbers(5000))
    return tmp_path / "log"


# -- growth


def test_it_grows(any_server: Server) -> None:
    """Without options a filter grows: 50 times its capacity of lines are printed completely."""
    data = numbers(5000)
    assert printed("dedupe", "--url", any_server.url, "--capacity", 100, data=data) == data


@pytest.mark.parametrize("kind", CLASSES)
def test_each_kind(any_server: Server, kind: Kind) -> None:
    """--kind creates a filter of each kind, and the next run uses it as it is."""
    own = ("--window", "1h") if kind is Kind.ROTATING else ()
    command = ("dedupe", "--url", any_server.url, "--name", "x")
    assert printed(*command, "--kind", kind.value, *own, data=b"a\nb\na\n") == b"a\nb\n"
    assert printed(*command, data=b"b\nc\n") == b"c\n"
    with any_server.client() as client:
        assert getattr(bloomredis, CLASSES[kind]).open(client, "x").contains("c")


def test_a_window_alone_means_a_filter_that_rotates(any_server: Server) -> None:
    """--window without --kind means a rotating filter; another window for a stored filter is refused."""
    command = ("dedupe", "--url", any_server.url, "--name", "x", "--window")
    assert printed(*command, "1h", data=b"a\n") == b"a\n"
    done = run_command(*command, "2h", data=b"a\n")
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
    assert b"--window 3600.0, not 7200.0" in done.stderr


def test_a_bitmap_of_another_system(any_server: Server) -> None:
    """--layout shares the lines seen with programs of another system."""
    with any_server.client() as client:
        bloomredis.BloomFilter(client, "x", layout=bloomredis.compat.go_zero(20_000)).add("a")
    command = ("dedupe", "--url", any_server.url, "--name", "x", "--layout", "go_zero:20000")
    assert printed(*command, data=b"a\nb\n") == b"b\n"


# -- warnings


def test_a_warning_comes_while_it_runs(any_server: Server) -> None:
    """The library's warning comes while the input is open, once a filter of fixed size is full."""
    with started("dedupe", "--url", any_server.url, *FIXED) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        answer(process, numbers(100))
        assert not select.select([process.stderr], [], [], 0.3)[0]
        answer(process, numbers(100, start=100))
        assert select.select([process.stderr], [], [], 60)[0], "no warning in a minute"
        assert b"is full" in os.read(process.stderr.fileno(), 1000)


# -- readers that go away


def test_head_leaves_one_line_at_most(any_server: Server, log: Path) -> None:
    """After two runs of `dedupe --name x | head -1`, at most the two lines in the pipes are missing."""
    parts = [piped(any_server, "head -1", log=log)[0] for _ in range(2)]
    assert [part.count(b"\n") for part in parts] == [1, 1]
    rest = printed("dedupe", "--url", any_server.url, "--name", "x", log)
    assert len(rest.splitlines()) >= 5000 - 2 - 2
    assert not set(rest.splitlines()) & set(b"".join(parts).splitlines())


def test_what_the_reader_left_is_counted(any_server: Server, log: Path) -> None:
    """The number of marked lines that were not read is reported, and no other line is missing."""
    reader = "dd bs=61 count=40 iflag=fullblock 2>/dev/null"  # reads its lines and not a byte more
    taken, said = piped(any_server, reader, log=log)
    rest = printed("dedupe", "--url", any_server.url, "--name", "x", log)
    told = int(said.split(b" line")[0].split()[-1]) if said else 0
    assert len(taken.splitlines()) == 40
    assert len(taken.splitlines()) + told + len(rest.splitlines()) == 5000
    assert told <= 40


def test_a_filter_that_counts_gives_back(any_server: Server, log: Path) -> None:
    """With --kind counting, lines that were not read are new to the next run, and none is missing."""
    reader = "dd bs=61 count=40 iflag=fullblock 2>/dev/null"
    taken, said = piped(any_server, reader, "--kind", "counting", log=log)
    rest = printed("dedupe", "--url", any_server.url, "--name", "x", log)
    assert (sorted((taken + rest).splitlines()), said) == (log.read_bytes().splitlines(), b"")


def test_a_reader_that_goes_in_a_large_write(any_server: Server, tmp_path: Path) -> None:
    """The lines that are still in the pipe were not read either."""
    (tmp_path / "log").write_bytes(numbers(20_000))
    reader = "dd bs=61 count=3000 iflag=fullblock 2>/dev/null"
    taken, _ = piped(any_server, reader, "--kind", "counting", log=tmp_path / "log")
    rest = printed("dedupe", "--url", any_server.url, "--name", "x", tmp_path / "log")
    assert sorted((taken + rest).splitlines()) == numbers(20_000).splitlines()


def test_a_signal_that_ends_the_reader_too(any_server: Server) -> None:
    """As Ctrl-C in a terminal does: the lines that were not read are new to the next run."""
    data = numbers(2000)
    with started("dedupe", "--url", any_server.url, "--name", "x", "--kind", "counting") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(data)
        assert select.select([process.stdout], [], [], 60)[0]
        process.send_signal(signal.SIGINT)
        process.stdout.close()
        assert process.wait(60) == 128 + signal.SIGINT
    assert printed("dedupe", "--url", any_server.url, "--name", "x", data=data) == data


def test_a_slow_reader_gets_everything(any_server: Server, log: Path) -> None:
    """The command waits for a slow reader and reports nothing."""
    taken, said = piped(any_server, "sleep 0.5; cat", log=log)
    assert (taken, said) == (log.read_bytes(), b"")


def test_a_full_disk(any_server: Server, log: Path) -> None:
    """Lines that a full disk refused are reported with exit status 2, and the next run prints the rest."""
    command = [*COMMAND, "dedupe", "--url", any_server.url, "--name", "x", str(log)]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False)
    assert done.returncode == 2
    assert b"1 line is marked as seen in 'x'" in done.stderr
    assert b"No space left" in done.stderr
    assert len(printed("dedupe", "--url", any_server.url, "--name", "x", log).splitlines()) == 4999


STOPS = {
    "full disk": "ulimit -f {blocks}; exec {command} > {out}",
    "closed pipe": "{command} | dd bs=61 count={taken} iflag=fullblock of={out}",
    "Ctrl-C": "{command} > {out} & child=$!; while [ ! -s {out} ]; do :; done; kill -INT $child; wait $child",
}
"""Programs of a shell that stop a run after about half of its lines."""


@pytest.mark.parametrize("stop", STOPS)
@sized("count", make_test=12_000, make_test_all=2_000_000)
def test_no_line_is_lost_in_silence(any_server: Server, tmp_path: Path, stop: str, count: int) -> None:
    """However a run is stopped: each line is printed, told to be marked, or printed by the next run."""
    (tmp_path / "log").write_bytes(numbers(count))
    own = ("--url", any_server.url, "--name", "x", "--capacity", str(count), "--error-rate", "1e-9")
    command = shlex.join([*COMMAND, "dedupe", *own, str(tmp_path / "log")])
    out = tmp_path / "out"
    program = STOPS[stop].format(blocks=count * 61 // 2048, taken=count // 2, command=command, out=out)
    shell = ["/bin/bash", "-mc", program]  # -m: a job in the background hears SIGINT
    done = subprocess.run(shell, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False)
    told = sum(map(int, re.findall(rb"([\d,]+) lines? (?:is|are) marked", done.stderr.replace(b",", b""))))
    taken = out.read_bytes().splitlines(keepends=True)
    whole = [line for line in taken if len(line) == 61]
    rest = printed("dedupe", *own, tmp_path / "log").splitlines(keepends=True)
    assert (len(whole) + told + len(rest), len({*whole, *rest})) == (count, len(whole) + len(rest))
    assert whole
    assert rest or stop == "Ctrl-C"


def test_a_server_that_dies(any_server: Server, log: Path) -> None:
    """The message of a server failure speaks of lines, not of tokens."""
    with started("dedupe", "--url", any_server.url, "--name", "x") as process:
        assert answer(process, b"a\n") == b"a\n"
        with any_server.client() as client:
            client.config_set("maxclients", 1)
            client.client_kill_filter(_type="normal", skipme=True)
            _, said = process.communicate(b"b\n", timeout=60)
            client.config_set("maxclients", 1000)
    assert process.returncode == 3
    assert b"may be marked as seen and were not printed" in said
    assert b"token" not in said


# -- columns


def test_missing_columns(any_server: Server) -> None:
    """Lines without the field pass by default; they can be dropped, or end the run after the lines before."""
    command = ("dedupe", "--url", any_server.url, "--field", 2)
    data = b"a\nb x\na\nd x\ne y\n"
    done = run_command(*command, data=data)
    assert (done.returncode, done.stdout) == (0, b"a\nb x\na\ne y\n")
    assert b"lines that were kept without the column or key: 2 of 5" in done.stderr
    assert run_command(*command, "--missing", "drop", data=data).stdout == b"b x\ne y\n"
    totals = json.loads(run_command(*command, "--json", data=data).stdout)
    assert totals == {"read": 5, "new": 4, "missing": 2}
    done = run_command(*command, "--missing", "error", data=b"b x\nd\nc y\n")
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"b x\n", 1)
    assert b"line 2 has no such column" in done.stderr


def test_missing_columns_in_a_shared_filter(any_server: Server) -> None:
    """Lines without the field keep their place in the output, and are never marked."""
    command = ("dedupe", "--url", any_server.url, "--name", "x", "--field", 2)
    assert run_command(*command, data=b"a\nb x\na\nd x\ne y\n").stdout == b"a\nb x\na\ne y\n"
    assert run_command(*command, data=b"a\nb x\nf z\n").stdout == b"a\nf z\n"


def test_totals_as_json(any_server: Server) -> None:
    """--json prints the totals as one object."""
    done = printed("dedupe", "--url", any_server.url, "--json", data=b"a\nb\na\n")
    assert json.loads(done) == {"read": 3, "new": 2}


# -- private filters on somebody's server


@for_each("kind", CLASSES)
def test_a_killed_run_leaves_nothing_for_ever(any_server: Server, kind: Kind) -> None:
    """After kill -9 each key of a filter without a name expires within a day and a minute."""
    own = ("--window", "1h") if kind is Kind.ROTATING else ()
    with started("dedupe", "--url", any_server.url, "--kind", kind.value, *own) as process:
        assert answer(process, b"a\n") == b"a\n"
    with any_server.client() as client:
        times = [client.pttl(key) for key in client.scan_iter()]
    assert times
    assert all(0 < time <= 86_460_000 for time in times)
