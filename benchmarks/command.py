"""The command `dedupe` beside `awk '!seen[$0]++'` and `sort -u`, and a run of one line beside `import redis`.

Each side is a process of its own; they take turns.  A ratio is the median of those of single rounds.  Besides
wall time there is processor time, which other programs on the machine disturb less.  With `--server`, a run
with `--name` is compared with the slower of its two sides: the processor time of the command, and that of the
server.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import redis

from benchmarks.runner import versions
from bloomredis import connect

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
    """Print the wall time of a shared run beside the processor time of its slower side."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"embedded://{folder}/server"
        client: redis.Redis = connect(url)
        used: Callable[[], float] = lambda: sum(  # noqa: E731
            float(value)
            for name, value in client.info("cpu").items()
            if name in ("used_cpu_user", "used_cpu_sys")
        )
        ratios = []
        for i in range(rounds):
            before = used()
            command = (*_DEDUPE, "--url", url, "--name", f"run{i}")
            run, server = _measured(Side("", command, file)), used() - before
            client.flushall()
            ratios.append(run.wall / max(run.processor, server))
            print(
                f"shared run: {run.wall:.2f} s wall; processor: {run.processor:.2f} s, server {server:.2f} s"
            )
        print(f"shared run beside its slower side: {statistics.median(ratios):.2f} times")


if __name__ == "__main__":
    main()
