"""The steps that have to pass before a change lands, each with its CPU time beside its budget.

The environments are created first.  Then `make test` runs alone, since everybody waits for it.  The later
steps run two at a time: tests wait for servers, packages for the network.  A run picks parts of the series by
lot.  A step that fails keeps no other from running, unless an environment could not be created.

CPU time is the user and system time of a step's processes, which depends little on what else a machine does.
A process counts once its parent has waited for it: a daemon does not, nor a process whose parent has died.
A step over its budget gets a remark; one over twice its budget fails, on however slow a machine.  At the end
stand the sizes of the parts, which `size.py` holds to a budget.
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

import size

ROOT: Final = Path(__file__).parents[1]
MAKE: Final = ("make", "--no-print-directory")
SOME: Final = ("operations/test_filter", "drivers/test_forks_and_pickles", "test_documents")
PYTHONS: Final = " ".join(("-m 'not long'", *(f"tests/{name}.py" for name in SOME)))
"""The tests to run with another version of Python; `make test-pythons` without TESTS runs all."""

Step = tuple[str, tuple[str, ...], int]
"""A name, the arguments of make, and a budget in seconds of CPU time."""

FENCE: Final = 2
"""A step fails that takes so many times its budget."""

LANES: Final = 2

STAGES: Final[list[list[Step]]] = [
    [
        ("environment", (".venv/ready",), 90),
        ("environment of contrib", (".venv-contrib/ready",), 90),
    ],
    [("test", ("test",), 350)],
    [
        ("test-faults", ("test-faults", "ONE_IN=2"), 400),
        ("test-contrib", ("test-contrib", "ONE_IN=3"), 250),
        ("test-long", ("test-long", "PART=24"), 450),
        ("package", ("package",), 200),
        ("test-pythons", ("test-pythons", "ONE_PYTHON=yes", f"TESTS={PYTHONS}"), 150),
        ("types", ("types",), 120),
        ("test-numpy", ("test-numpy",), 80),
        ("docs", ("docs",), 80),
        ("lint", ("lint",), 80),
    ],
]
"""The stages run one after another; within a stage, two steps run at a time, the longest first."""


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
        over = "  OVER TWICE ITS BUDGET" if ran.cpu > FENCE * budget else "  over" * (ran.cpu > budget)
        remark = "  FAILED" * (not ran.succeeded) + over
        print(f"{name:24}{ran.cpu:8.0f}{budget:8}{ran.wall:8.0f}{remark}")
    budgets = sum(budget for (_, _, budget), _ in steps)
    print(f"{'all':24}{sum(ran.cpu for _, ran in steps):8.0f}{budgets:8}{time.monotonic() - start:8.0f}")
    failed = any(not ran.succeeded or ran.cpu > FENCE * budget for (_, _, budget), ran in steps)
    return max(failed, size.main())


if __name__ == "__main__":
    sys.exit(main())
