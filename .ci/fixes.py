"""A check that tests fail if a fix is taken out of the code, or a hole is opened again.

`python .ci/fixes.py --seed 7 --count 10` draws commits from the history that changed little code and some
tests, and whose code can still be reverted.  It reverts one at a time.  Then it runs the tests of the commit,
`make test`, `make test-faults` and what `make lint docs` tests, until a test fails.  `--all` takes all of
these commits, newest first.

`--holes` takes the holes of tests/simulation/holes.py instead: the simulator searches for each of them, then
tests/faults run with it.  `--table FILE` keeps a line for each commit or hole: id, subject, the suites that
notice it, the first test that fails.  A line that the file has is kept, unless something was not run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
CODE: Final = ("bloomredis", "lua")
MOST_LINES: Final = 30
"""Lines of code that a fix may change."""

ADAPTERS: Final = "tests/contrib"
ADAPTERS_PYTHON: Final = str(ROOT / ".venv-contrib/bin/python")
FAULTS: Final = ("-m", "faults and not long")
SUITES: Final = {"make test": (), "make test-faults": FAULTS, "make lint docs": ("-m", "lint or docs")}
SEARCH: Final = "tests/simulation/test_holes.py::test_a_hole_is_found[{}]"
HOLES: Final = "from tests.simulation.holes import HOLES, WITH; print(*WITH, '/', *HOLES)"
NOTHING: Final = "nothing"
NOT_RUN: Final = "not run"
UNSEPARATED: Final = "cannot be reverted"


class Noticed(NamedTuple):
    """The suites that notice that something is missing, and the first test that fails."""

    suites: str
    test: str = ""


class Tests:
    """Runs tests in a checkout.

    :ivar is_short: whether to leave out what takes minutes.
    """

    def __init__(self, checkout: Path, options: argparse.Namespace) -> None:
        self.checkout, self.is_short = checkout, options.short
        self._workers, self._seconds = options.workers, options.minutes * 60

    def failure(self, *selected: str, hole: str = "") -> str | None:
        """Return the first test that fails, None if all pass; `TimeoutError` if they take too long."""
        python = ADAPTERS_PYTHON if selected and selected[0].startswith(ADAPTERS) else sys.executable
        command = (python, "-m", "pytest", "-q", "-x", "-n", self._workers, "-p", "no:cacheprovider")
        # by the environment, for the programs that tests start
        own = {"PYTHONPATH": str(self.checkout), "BLOOMREDIS_HOLE": hole}
        own |= {"BLOOMREDIS_CONTRIB": "required"} if python == ADAPTERS_PYTHON else {}
        with subprocess.Popen(
            (*command, *selected),
            cwd=self.checkout,
            env=os.environ | own,
            text=True,
            stdout=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=self._seconds)
            except subprocess.TimeoutExpired:
                for ending in (signal.SIGINT, signal.SIGKILL):  # tests end what they have started
                    os.killpg(process.pid, ending)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.communicate(timeout=60)
                        break
                raise TimeoutError from None
        found = re.search(r"^(?:FAILED|ERROR|SUBFAILED\S*) .*", output, re.MULTILINE)
        if process.returncode not in (0, 5) and found is None:
            return " ".join(output[-300:].split())
        return " ".join(found[0].split()) if found else None

    def without_fix(self, undo: str, tests: list[str]) -> Noticed:
        """Return what notices that a fix is reverted."""
        git("reset", "--quiet", "--hard", at=self.checkout)
        try:
            git("apply", "--3way", "-", given=undo, at=self.checkout)
        except subprocess.CalledProcessError:
            return Noticed(UNSEPARATED)
        own = [test for test in tests if (self.checkout / test).exists()]
        adapters = [test for test in own if test.startswith(ADAPTERS)]
        others = [test for test in own if test not in adapters]
        suites = {"its tests": others, "its faults": [*others, *FAULTS]} if others else {}
        suites |= {"its adapters": adapters} if adapters else {}
        for suite, selected in (suites | SUITES).items():
            if self.is_short and suite in SUITES:
                return Noticed(NOT_RUN, suite)
            try:
                if found := self.failure(*selected):
                    return Noticed(suite, found)
            except TimeoutError:
                return Noticed(NOT_RUN, suite)
        return Noticed(NOTHING)

    def with_hole(self, hole: str, *, is_simulated: bool, is_opened: bool) -> Noticed:
        """Return what notices a hole.

        :param is_simulated: whether the simulator searches for it.
        :param is_opened: whether it can be opened outside the simulator.
        """
        suites, test = list[str](), ""
        try:
            if is_simulated and not self.failure(SEARCH.format(hole), *FAULTS):
                suites.append("simulator")
            if is_opened and self.is_short:
                suites.append(NOT_RUN)
            elif is_opened and (test := self.failure("tests/faults", "-m", "not long", hole=hole) or ""):
                suites.append("tests/faults")
        except TimeoutError:
            suites.append(NOT_RUN)
        return Noticed(", ".join(suites) or NOTHING, test)


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


def rows(tests: Tests, options: argparse.Namespace) -> Iterator[tuple[str, str, Callable[[], Noticed]]]:
    """Yield an id and a subject for each fix or hole, and the function that tries it."""
    if options.holes:
        listed = subprocess.run(
            (sys.executable, "-c", HOLES), cwd=tests.checkout, text=True, stdout=subprocess.PIPE, check=True
        )
        simulated, opened = (names.split() for names in listed.stdout.split("/"))
        for hole in sorted({*simulated, *opened}):
            where = {"is_simulated": hole in simulated, "is_opened": hole in opened}
            yield "hole", hole, partial(tests.with_hole, hole, **where)
        return
    drawn = list(fixes())
    if not options.all:
        random.Random(options.seed).shuffle(drawn)
        print(f"--seed {options.seed}: of {len(drawn)} fixes")
    for commit, undo, own in drawn:
        yield commit, git("log", "-1", "--format=%s", commit).strip(), partial(tests.without_fix, undo, own)


def known(table: Path | None) -> dict[tuple[str, str], Noticed]:
    """Return the rows of a table by id and subject."""
    lines = [line.split("\t") for line in table.read_text().splitlines()] if table and table.exists() else []
    return {(id_, subject): Noticed(*noticed) for id_, subject, *noticed in lines}


def main() -> int:
    """Try fixes or holes, and print the test that fails for each; return the number of those without one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--count", type=int, default=10, help="of the fixes that are drawn")
    parser.add_argument("--all", action="store_true", help="all fixes")
    parser.add_argument("--holes", action="store_true", help="all holes")
    parser.add_argument("--table", type=Path, metavar="FILE", help="of the lines, which is read and written")
    parser.add_argument("--short", action="store_true", help="a fix's own tests, and the simulator's search")
    parser.add_argument("--minutes", type=float, default=60, help="the most for a suite")
    parser.add_argument("--workers", default="auto", help="processes of pytest")
    options = parser.parse_args()
    found, missed, tried = known(options.table), 0, 0
    with tempfile.TemporaryDirectory() as directory:
        tests = Tests(Path(directory) / "checkout", options)
        git("clone", "--quiet", str(ROOT), str(tests.checkout))
        for id_, subject, noticed in rows(tests, options):
            if NOT_RUN not in found.get((id_, subject), Noticed(NOT_RUN)).suites:
                continue
            row = found[id_, subject] = noticed()
            print(f"{id_} {subject}\n    {row.suites}: {row.test}", flush=True)
            if options.table:
                options.table.write_text(
                    "".join("\t".join((*key, *each)) + "\n" for key, each in sorted(found.items()))
                )
            tried, missed = tried + (row.suites != UNSEPARATED), missed + (row.suites == NOTHING)
            if tried == options.count and not (options.all or options.holes):
                break
    return missed


if __name__ == "__main__":
    sys.exit(main())
