"""The steps that have to pass before a change lands, each with its CPU time beside its budget.

The environments are created first.  Then `make test` runs alone, since everybody waits for it.  The later
steps run two at a time: tests wait for servers, packages for the network.  A step that fails keeps no other
from running, unless an environment could not be created.

CPU time is the user and system time of a step's processes, which depends little on what else a machine does.
A process counts once its parent has waited for it: a daemon does not, nor a process whose parent has died.
A budget is no fence: a step over it gets a remark, and does not fail.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
MAKE: Final = ("make", "--no-print-directory")
SOME: Final = ("operations/test_filter", "drivers/test_forks_and_pickles", "test_documents")
PYTHONS: Final = " ".join(f"tests/{name}.py" for name in SOME)
"""The tests to run with the other versions of Python; `make test-pythons` without TESTS runs all."""

Step = tuple[str, tuple[str, ...], int]
"""A name, the arguments of make, and a budget in seconds of CPU time."""

LANES: Final = 2

STAGES: Final[list[list[Step]]] = [
    [
        ("environment", (".venv/ready",), 60),
        ("environment of contrib", (".venv-contrib/ready",), 60),
    ],
    [("test", ("test",), 500)],
    [
        ("test-contrib", ("test-contrib", "ONE_IN=2"), 250),
        ("test-faults", ("test-faults",), 430),
        ("test-long", ("test-long",), 150),
        ("package", ("package",), 120),
        ("test-pythons", ("test-pythons", f"TESTS={PYTHONS}"), 120),
        ("types", ("types",), 30),
        ("test-numpy", ("test-numpy",), 40),
        ("docs", ("docs",), 20),
        ("lint", ("lint",), 5),
    ],
]
"""The stages run one after another; within a stage, two steps run at a time, the longest first."""

LAYERS: Final = ("bits", "protocol", "stored", "operations", "drivers")
PARTS: Final = {
    "core": [f"bloomredis/{layer}/*.py" for layer in LAYERS],
    "Lua": ["lua/*.lua"],
    "command": ["bloomredis/cli/*.py"],
    "adapters": ["bloomredis/contrib/*.py"],
    "tests": ["tests/*.py"],
}
"""The parts whose lines are counted, as patterns of git, whose `*` also matches `/`."""

GENERATED: Final = "# Made from "
"""The beginning of a generated file, whose lines are counted apart."""

BASE: Final = "cdc11e4"
"""The commit whose lines are shown beside those of today, until there is a tag."""


class Ran(NamedTuple):
    """What a step took, in seconds, and whether it succeeded."""

    cpu: float
    wall: float
    succeeded: bool


def run(step: Step) -> Ran:
    """Run a step, and print its output at the end."""
    name, targets, _ = step
    start = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([*MAKE, *targets], cwd=ROOT, stdout=output, stderr=output)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)  # Popen would wait for it too
        ran = Ran(used.ru_utime + used.ru_stime, time.monotonic() - start, status == 0)
        output.seek(0)
        sys.stdout.buffer.write(f"== {name}: {ran.wall:.0f} s\n".encode() + output.read())
    sys.stdout.flush()
    return ran


def count_lines(patterns: list[str], commit: str = "") -> int:
    """Return the number of lines of the tracked files, as they are or as they were in a commit."""
    command = ["git", "grep", "--count", "-e", "", *filter(None, [commit]), "--", *patterns]
    counted = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    return sum(int(line.rpartition(":")[2]) for line in counted.splitlines())


def generated(patterns: list[str], commit: str = "") -> list[str]:
    """Return the generated ones of the tracked files."""
    command = ["git", "grep", "--files-with-matches", f"^{GENERATED}.*make generate"]
    found = subprocess.run(
        [*command, *filter(None, [commit]), "--", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    return [line.removeprefix(f"{commit}:") for line in found.splitlines()]


def by_hand(patterns: list[str], commit: str = "") -> int:
    """Return the number of lines that are not generated."""
    made = generated(patterns, commit)
    return count_lines([*patterns, *(f":(exclude){file}" for file in made)], commit)


def base() -> str:
    """Return the last tag or the base commit; nothing if a shallow clone has neither."""
    for command in (("describe", "--tags", "--abbrev=0"), ("rev-parse", "--short", f"{BASE}^{{commit}}")):
        found = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=False)
        if found.returncode == 0:
            return found.stdout.strip()
    return ""


def print_lines() -> None:
    """Print the number of lines of each part, beside that of the base."""
    before = base()
    print(f"\n{'lines':24}{'now':>8}{before:>12}")
    for part, patterns in PARTS.items():
        then = f"{by_hand(patterns, before):12,}" if before else ""
        made = sum(count_lines([file]) for file in generated(patterns))
        print(f"{part:24}{by_hand(patterns):8,}{then}" + f"  and {made:,} generated" * bool(made))


def main() -> int:
    """Run all stages, print the tables, and return the status."""
    start = time.monotonic()
    steps: list[tuple[Step, Ran]] = []
    for stage in STAGES:
        with ThreadPoolExecutor(LANES) as pool:
            steps += zip(stage, pool.map(run, stage), strict=True)
        if stage is STAGES[0] and not all(ran.succeeded for _, ran in steps):
            break
    print(f"\n{'step':24}{'CPU s':>8}{'budget':>8}{'wall s':>8}  load {os.getloadavg()[0]:.1f}")
    for (name, _, budget), ran in steps:
        remark = "  FAILED" * (not ran.succeeded) + "  over" * (ran.cpu > budget)
        print(f"{name:24}{ran.cpu:8.0f}{budget:8}{ran.wall:8.0f}{remark}")
    budgets = sum(budget for (_, _, budget), _ in steps)
    print(f"{'all':24}{sum(ran.cpu for _, ran in steps):8.0f}{budgets:8}{time.monotonic() - start:8.0f}")
    print_lines()
    return int(not all(ran.succeeded for _, ran in steps))


if __name__ == "__main__":
    sys.exit(main())
