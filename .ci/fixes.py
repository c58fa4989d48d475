"""Take single fixes out of the code, one at a time, and see whether the tests notice.

`python .ci/fixes.py --seed 7 --count 10`: drawn from the history are small changes of the package that came
with a change of a test, and that still apply backwards.  The tests that came with one run first, then
`make test`, then `make test-faults`, until something fails.
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
    """Return what git prints."""
    done = subprocess.run(("git", *command), cwd=at, input=given, text=True, capture_output=True, check=True)
    return done.stdout


def fixes() -> Iterator[tuple[str, str, list[str]]]:
    """Yield commits that change little code and some tests: the commit, how to undo it, and the tests."""
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
    """Return by what a fix is missed, and "nothing" if by nothing."""
    own = [test for test in tests if (checkout / test).exists()]
    if own and (found := failure(checkout, *own)):
        return found
    for suite, marks in SUITES.items():
        if found := failure(checkout, *marks):
            return f"{suite}: {found}"
    return "nothing"


def main() -> int:
    """Draw fixes, take each out, and print what notices; the status is the number that nothing does."""
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
