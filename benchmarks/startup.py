"""Start of a program: what this library takes beyond `import redis`, in seconds and in memory.

Each program is a process of its own; they take turns.  A difference is the median of those of single rounds,
with its quartiles.  All modules are compiled before, as an installer does it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.runner import versions

_STATUS: Final = Path("/proc/self/status")
_PRINT_PEAK: Final = f"; print(open('{_STATUS}').read().split('VmHWM:')[1].split()[0])"
_MB: Final = 1024  # what /proc calls kB
_ROOT: Final = Path(__file__).parents[1]


@dataclass(frozen=True)
class Program:
    """What is measured: the arguments of Python, and limits beyond `import redis`, None for none."""

    name: str
    arguments: Sequence[str]
    seconds: float | None = None
    megabytes: float | None = None


_REDIS: Final = Program("import redis", ("-c", "import redis"))
_PROGRAMS: Final = (
    Program("import BloomFilter", ("-c", "import redis; from bloomredis import BloomFilter"), 0.06, 10),
    Program("import bloomredis.asyncio", ("-c", "import redis, bloomredis.asyncio")),
    Program("import redis, numpy", ("-c", "import redis, numpy")),
    Program("bloomredis --version", ("-m", "bloomredis", "--version"), seconds=0.0),
    Program("bloomredis --help", ("-m", "bloomredis", "--help")),
)


def main() -> None:
    """Let the programs take turns, and print what each takes beyond `import redis`."""
    parser = argparse.ArgumentParser("python -m benchmarks.startup", description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    rounds: int = parser.parse_args().rounds
    about = versions.machine()
    packages = ", ".join(f"{name} {about['packages'][name]}" for name in ("redis", "mmh3", "numpy"))
    print(f"Python {about['python']}, {packages}; {about['cores']} cores of {about['cpu']}, {about['date']}")
    with tempfile.TemporaryDirectory() as compiled:
        _report(rounds, _environment(compiled))


def _environment(compiled: str) -> dict[str, str]:
    """Return an environment in which this checkout is imported, and compiled once."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": compiled, "PYTHONPATH": str(_ROOT)}


def _report(rounds: int, environment: Mapping[str, str]) -> None:
    programs = (_REDIS, *_PROGRAMS)
    for program in programs:
        _run(program, environment)
    times: dict[str, list[float]] = {program.name: [] for program in programs}
    for i in range(rounds):
        for program in (*programs[i % len(programs) :], *programs[: i % len(programs)]):
            start = time.perf_counter()
            _run(program, environment)
            times[program.name].append(time.perf_counter() - start)
    print(f"\n{'s beyond import redis':<28} median  quartiles         target")
    for program in _PROGRAMS:
        print(_row(program.name, times[program.name], times[_REDIS.name], program.seconds))
    if not _STATUS.exists():
        print("\nmemory: only on Linux")
        return
    print("\nMB beyond import redis, peak")
    imports = [program for program in programs if program.arguments[0] == "-c"]
    peaks = {program.name: [_peak(program, environment) for _ in range(5)] for program in imports}
    for program in imports[1:]:
        print(_row(program.name, peaks[program.name], peaks[_REDIS.name], program.megabytes))


def _run(program: Program, environment: Mapping[str, str]) -> None:
    subprocess.run(
        [sys.executable, *program.arguments], stdout=subprocess.DEVNULL, env=environment, check=True
    )


def _peak(program: Program, environment: Mapping[str, str]) -> float:
    """Return the most memory that a program has had at a time, in MB."""
    command = [sys.executable, "-c", program.arguments[1] + _PRINT_PEAK]
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=True)
    return int(done.stdout) / _MB


def _row(name: str, found: Sequence[float], base: Sequence[float], limit: float | None) -> str:
    low, median, high = statistics.quantiles([x - y for x, y in zip(found, base, strict=True)], n=4)
    verdict = "" if limit is None else f"≤ {limit:g}  {'met' if median <= limit else 'not met'}"
    return f"{name:<28} {median:6.3f}  {low:.3f} to {high:.3f}    {verdict}".rstrip()


if __name__ == "__main__":
    main()
