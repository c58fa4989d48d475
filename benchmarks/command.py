"""The command `dedupe` beside `awk '!seen[$0]++'` and `sort -u`, and a run of one line beside `import redis`.

Each side is a process of its own; they take turns.  A ratio is the median of those of single rounds.  Besides
wall time there is processor time, which other programs on the machine disturb less.

With `--server`, a run with `--name` is compared with the slower of its two sides.  The client alone is the
processor time of the command, to which a wait adds nothing.  The server alone is the wall time in which it
answers the same calls if it never waits for one.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import redis

from benchmarks.runner import versions
from bloomredis import ScalingBloomFilter, connect
from bloomredis.cli.dedupe import CAPACITY, ERROR_RATE
from tests.support.proxy import Exchange, Proxy, passed

_ROOT: Final = Path(__file__).parents[1]
_DEDUPE: Final = (sys.executable, "-m", "bloomredis", "dedupe")


class Side(NamedTuple):
    """What is measured: a command and its input."""

    name: str
    command: Sequence[str]
    file: Path


class Times(NamedTuple):
    """The wall time and the processor time of a process, in seconds."""

    wall: float
    processor: float


def main() -> None:
    """Print the times of each side, and the ratios."""
    parser = argparse.ArgumentParser("python -m benchmarks.command", description=__doc__)
    parser.add_argument(
        "--lines", type=int, default=400_000, help="lines of the file, 73%% of them different"
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--server", action="store_true", help="measure a run with --name on a private server")
    given = parser.parse_args()
    about = versions.machine()
    packages = ", ".join(
        f"{name} {about['packages'][name]}" for name in ("bloomredis", "redis", "mmh3", "numpy")
    )
    awk = Path(shutil.which("awk") or "awk").resolve().name
    print(f"Python {about['python']}, {packages}, {awk}")
    print(f"{about['cores']} cores of {about['cpu']}, {about['date']}")
    with tempfile.TemporaryDirectory() as folder:
        many, one = Path(folder, "many"), Path(folder, "one")
        _write(many, given.lines)
        one.write_bytes(b"line\n")
        lines = f"{given.lines:,} lines"
        sides = [
            Side(f"{awk}, {lines}", ("awk", "!seen[$0]++"), many),
            Side(f"sort -u, {lines}", ("sort", "-u"), many),
            Side(f"dedupe, {lines}", _DEDUPE, many),
            Side("import redis", (sys.executable, "-c", "import redis"), one),
            Side("dedupe, 1 line", _DEDUPE, one),
        ]
        found = _in_turns(sides, given.rounds)
        for base, own in ((0, 2), (1, 2), (3, 4)):
            _print_ratio(sides[own].name, sides[base].name, found[own], found[base])
        if given.server:
            _with_server(many, given.rounds)


def _write(path: Path, lines: int) -> None:
    """Write lines of some 40 bytes, of which 73% are different."""
    draw = random.Random(1)
    with path.open("w") as file:
        for _ in range(lines):
            file.write(f"https://example.org/{draw.randrange(int(1.46 * lines)):x}?page=1\n")


def _in_turns(sides: Sequence[Side], rounds: int) -> list[list[Times]]:
    found: list[list[Times]] = [[] for _ in sides]
    print(f"load average at the beginning: {os.getloadavg()[0]:.1f}")
    for i in range(rounds + 1):
        for at in (*range(i % len(sides), len(sides)), *range(i % len(sides))):
            times = _measured(sides[at])
            if i:  # the first round compiles and fills the caches
                found[at].append(times)
    print(f"load average at the end: {os.getloadavg()[0]:.1f}")
    for side, each in zip(sides, found, strict=True):
        wall, processor = (statistics.median(column) for column in zip(*each, strict=True))
        print(f"{side.name:<32} {wall:7.3f} s wall, {processor:7.3f} s processor")
    return found


def _measured(side: Side) -> Times:
    before, begin = os.times(), time.perf_counter()
    with side.file.open("rb") as read:
        subprocess.run(
            side.command,
            stdin=read,
            stdout=subprocess.DEVNULL,
            env=_environment(side.file.parent),
            check=True,
        )
    wall, after = time.perf_counter() - begin, os.times()
    return Times(wall, sum(after[2:4]) - sum(before[2:4]))


def _environment(folder: Path) -> dict[str, str]:
    """Return an environment in which this checkout is imported, and compiled once."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    own = {"PYTHONPYCACHEPREFIX": str(folder / "compiled"), "PYTHONPATH": str(_ROOT), "LC_ALL": "C"}
    return kept | own


def _print_ratio(name: str, base: str, own: Sequence[Times], other: Sequence[Times]) -> None:
    told = []
    for kind, column in (("wall", 0), ("processor", 1)):
        ratios = [x[column] / y[column] for x, y in zip(own, other, strict=True)]
        low, median, high = statistics.quantiles(ratios * 2 if len(ratios) == 1 else ratios, n=4)
        told.append(f"{median:.2f} times {kind} ({low:.2f} to {high:.2f})")
    print(f"{name} beside {base}: {', '.join(told)}")


def _with_server(file: Path, rounds: int) -> None:
    """Print the wall time of a shared run beside that of its slower side."""
    with tempfile.TemporaryDirectory() as folder:
        client: redis.Redis = connect(f"embedded://{folder}/server")
        path = client.connection_pool.connection_kwargs["path"]
        ScalingBloomFilter(client, "run", capacity=CAPACITY, error_rate=ERROR_RATE).create()
        empty = [(key, client.dump(key) or b"") for key in client.scan_iter()]
        calls = _calls(path, file)
        sides: list[Callable[[], Times]] = [
            lambda: _measured(Side("", (*_DEDUPE, "--url", f"unix://{path}", "--name", "run"), file)),
            lambda: _on_server_alone(client, path, calls),
        ]
        ratios = []
        print(f"{len(calls):,} calls; load average at the beginning: {os.getloadavg()[0]:.1f}")
        for i in range(rounds):
            found, written = {}, {}
            for at in (i % 2, 1 - i % 2):
                client.flushall()
                for key, value in empty:
                    client.restore(key, 0, value)
                client.config_resetstat()
                found[at] = sides[at]()
                written[at] = client.info("commandstats")["cmdstat_setrange"]["calls"]
            assert abs(written[0] - written[1]) < 0.01 * written[0], written
            run, server = found[0], found[1]
            ratios.append(run.wall / max(run.processor, server.wall))
            print(
                f"shared run: {run.wall:.2f} s wall; its client alone: {run.processor:.2f} s processor; its "
                f"server alone: {server.wall:.2f} s wall, {server.processor:.2f} s processor; "
                f"{ratios[-1]:.2f} times the slower"
            )
        print(f"load average at the end: {os.getloadavg()[0]:.1f}")
        print(f"shared run beside its slower side: {statistics.median(ratios):.2f} times")


def _calls(path: str, file: Path) -> list[bytes]:
    """Return the calls of a shared run, in the order in which they reach the server."""
    calls = []

    def kept(exchange: Exchange) -> bool:
        calls.append(exchange.request)
        return passed(exchange)

    proxy = Proxy(path, kept)
    url = ("--url", f"redis://127.0.0.1:{proxy.port}", "--no-cluster", "--name", "run")
    _measured(Side("", (*_DEDUPE, *url), file))
    proxy.close()
    return calls


def _on_server_alone(client: redis.Redis, path: str, calls: Sequence[bytes]) -> Times:
    """Return the times of the server for calls that are sent all at once, so that it never waits."""
    end = b"the end of the calls\r\n"
    sent = b"".join([*calls, b'ECHO "', end[:-2], b'"\r\n'])
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        before, begin, tail = _processor(client), time.perf_counter(), b""
        sender = threading.Thread(target=connection.sendall, args=(sent,))
        sender.start()
        while not tail.endswith(end):
            tail = tail[-len(end) :] + connection.recv(1 << 20)
        wall = time.perf_counter() - begin
        sender.join()
        return Times(wall, _processor(client) - before)


def _processor(client: redis.Redis) -> float:
    found = client.info("cpu")
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])


if __name__ == "__main__":
    main()
