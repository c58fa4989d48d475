"""The steps that have to pass before a change lands, each with its time beside its budget.

The environments are created first.  Then `make test` runs alone, since everybody waits for it.  The later
steps run two at a time: tests wait for servers, packages for the network.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
MAKE: Final = ("make", "--no-print-directory")
SOME: Final = ("operations/test_filter", "drivers/test_forks_and_pickles", "test_documents")
PYTHONS: Final = " ".join(f"tests/{name}.py" for name in SOME)
"""The tests to run with the other versions of Python; `make test-pythons` without TESTS runs all."""

Step = tuple[str, tuple[str, ...], int]
"""A name, the arguments of make, and a budget in seconds, with another step beside it on two processors."""

LANES: Final = 2

STAGES: Final[list[list[Step]]] = [
    [
        ("environment", (".venv/ready",), 60),
        ("environment of contrib", (".venv-contrib/ready",), 60),
    ],
    [("test", ("test",), 155)],
    [
        ("test-faults", ("test-faults",), 300),
        ("test-contrib", ("test-contrib",), 300),
        ("test-pythons", ("test-pythons", f"TESTS={PYTHONS}"), 120),
        ("package", ("package",), 120),
        ("test-long", ("test-long",), 80),
        ("types", ("types",), 40),
        ("test-numpy", ("test-numpy",), 30),
        ("docs", ("docs",), 20),
        ("lint", ("lint",), 10),
    ],
]
"""The stages run one after another; within a stage, two steps run at a time, the longest first."""


def run(step: Step) -> tuple[float, bool]:
    """Run a step, print its output at the end, and return its seconds and whether it succeeded."""
    name, targets, _ = step
    start = time.monotonic()
    done = subprocess.run([*MAKE, *targets], cwd=ROOT, stdout=-1, stderr=-2, check=False)
    seconds = time.monotonic() - start
    sys.stdout.buffer.write(f"== {name}: {seconds:.0f} s\n".encode() + done.stdout)
    sys.stdout.flush()
    return seconds, done.returncode == 0


def lane(waiting: deque[Step], ran: list[tuple[Step, float, bool]]) -> None:
    """Run the steps that no other lane has begun, until one has failed."""
    while waiting and all(succeeded for *_, succeeded in ran):
        step = waiting.popleft()
        ran.append((step, *run(step)))


def main() -> int:
    """Run all stages until one fails, print the table, and return the status."""
    start = time.monotonic()
    ran: list[tuple[Step, float, bool]] = []
    for stage in STAGES:
        with ThreadPoolExecutor(LANES) as pool:
            list(pool.map(lane, [deque(stage)] * LANES, [ran] * LANES))
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
