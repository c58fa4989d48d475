"""A check that tests fail if a fix is taken out of the code.

`python .ci/fixes.py --seed 7 --count 10` draws commits from the history that changed little code and some
tests, and whose code can still be reverted.  It reverts one at a time.  Then it runs the tests of the commit,
`make test` and `make test-faults`, until a test fails.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
CODE: Final = ("bloomredis", "lua")
MOST_LINES: Final = 30
"""Lines of code that a fix may change."""

SUITES: Final = {"make test": (), "make test-faults": ("-m", "faults and not long")}


def git(*command: str, given: str | None = None, at: Path = ROOT) -> str:
    """Return the output of git."""
    done = subprocess.run(("git", *command), cwd=at, input=given, text=True, capture_output=True, check=True)
    return done.stdout


def fixes() -> Iterator[tuple[str, str, list[str]]]:
    """Yield commits that change little code and some tests, each with its reverse patch and its tests."""
    for commit in git("log", "--min-parents=1", "--max-parents=1", "--format=%h", "--", *CODE).split():
        tests = git("diff", "--name-only", f"{commit}~", commit, "--", "tests").split()
        undo = git("diff", commit, f"{commit}~", "--", *CODE)
        lines = re.findall(r"^[+-](?![+-])", undo, re.MULTILINE)
        if tests and len(lines) <= MOST_LINES:
            yield commit, undo, [test for test in tests if Path(test).name.startswith("test_")]


def failure(checkout: Path, *selected: str) -> str | None:
    """Return the first test that fails, None if all pass."""
    command = (sys.executable, "-m", "pytest", "-q", "-x", "--numprocesses", "auto", "-p", "no:cacheprovider")
    own = os.environ | {"PYTHONPATH": str(checkout)}  # for the programs that tests start
    done = subprocess.run(
        (*command, *selected), cwd=checkout, env=own, text=True, capture_output=True, check=False
    )
    found = re.search(r"^(?:FAILED|ERROR|SUBFAILED\S*) .*", done.stdout, re.MULTILINE)
    if done.returncode not in (0, 5) and found is None:
        return done.stdout[-300:]
    return found[0] if found else None


def noticed(checkout: Path, tests: list[str]) -> str:
    """Return the first test that fails without a fix, "nothing" if all pass."""
    own = [test for test in tests if (checkout / test).exists()]
    if own and (found := failure(checkout, *own)):
        return found
    for suite, marks in SUITES.items():
        if found := failure(checkout, *marks):
            return f"{suite}: {found}"
    return "nothing"


def main() -> int:
    """Draw fixes, take each out, and print the test that fails; return the number of fixes without one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--count", type=int, default=10)
    options = parser.parse_args()
    drawn = list(fixes())
    random.Random(options.seed).shuffle(drawn)
    print(f"--seed {options.seed}: of {len(drawn)} fixes")
    missed = tried = 0
    for commit, undo, tests in drawn:
        with tempfile.TemporaryDirectory() as directory:
            checkout = Path(directory) / "checkout"
            git("clone", "--quiet", str(ROOT), str(checkout))
            try:
                git("apply", "--3way", "-", given=undo, at=checkout)
            except subprocess.CalledProcessError:
                continue
            by = noticed(checkout, tests)
        tried, missed = tried + 1, missed + (by == "nothing")
        print(f"{git('log', '-1', '--format=%h %s', commit).strip()}\n    {by}", flush=True)
        if tried == options.count:
            break
    return missed


if __name__ == "__main__":
    sys.exit(main())
