"""What has to pass before a change lands, each step with its time beside its budget.

Environments are made first, then `make test` has the machine for itself, since its time is the one that
everybody waits for.  The lanes after that run side by side: tests wait for servers, packages for the network.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
MAKE: Final = ("make", "--no-print-directory")
SOME: Final = ("operations/test_filter", "drivers/test_forks_and_pickles", "test_documents")
PYTHONS: Final = " ".join(f"tests/{name}.py" for name in SOME)
"""The tests that run with the other versions of Python; `make test-pythons` runs all of them there."""

Step = tuple[str, tuple[str, ...], int]
"""A name, what make is told, and a budget in seconds beside the other lane, on two processors alone."""

STAGES: Final[list[list[list[Step]]]] = [
    [
        [("environment", (".venv/ready",), 60)],
        [("environment of contrib", (".venv-contrib/ready",), 60)],
    ],
    [[("test", ("test",), 155)]],
    [
        [
            ("test-faults", ("test-faults",), 300),
            ("docs", ("docs",), 20),
            ("test-long", ("test-long",), 60),
        ],
        [
            ("lint", ("lint",), 10),
            ("types", ("types",), 120),
            ("test-contrib", ("test-contrib",), 200),
            ("test-numpy", ("test-numpy",), 30),
            ("package", ("package",), 60),
            ("test-pythons", ("test-pythons", f"TESTS={PYTHONS}"), 120),
        ],
    ],
]
"""Stages one after the other, lanes side by side, and their steps one after the other."""


def run(step: Step) -> tuple[float, bool]:
    """Run a step, print what it said when it is over, and return its seconds and whether it succeeded."""
    name, targets, _ = step
    start = time.monotonic()
    done = subprocess.run([*MAKE, *targets], cwd=ROOT, stdout=-1, stderr=-2, check=False)
    seconds = time.monotonic() - start
    sys.stdout.buffer.write(f"== {name}: {seconds:.0f} s\n".encode() + done.stdout)
    sys.stdout.flush()
    return seconds, done.returncode == 0


def lane(steps: list[Step]) -> list[tuple[Step, float, bool]]:
    """Run steps one after the other until one fails."""
    ran = []
    for step in steps:
        ran.append((step, *run(step)))
        if not ran[-1][-1]:
            break
    return ran


def main() -> int:
    """Run all stages until one fails, print the table, and return the status."""
    start, ran = time.monotonic(), []
    for stage in STAGES:
        with ThreadPoolExecutor(len(stage)) as pool:
            ran += [each for done in pool.map(lane, stage) for each in done]
        if not all(succeeded for *_, succeeded in ran):
            break
    print(f"\n{'step':24}{'seconds':>8}{'budget':>8}  load {os.getloadavg()[0]:.1f}")
    for (name, _, budget), seconds, succeeded in ran:
        remark = "  FAILED" * (not succeeded) + "  over" * (seconds > budget)
        print(f"{name:24}{seconds:8.0f}{budget:8}{remark}")
    print(f"{'all':24}{time.monotonic() - start:8.0f}{720:8}")
    return int(not all(succeeded for *_, succeeded in ran))


if __name__ == "__main__":
    sys.exit(main())
