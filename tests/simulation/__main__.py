"""The simulator on the command line."""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

from tests.simulation import kinds
from tests.simulation.faults import FAULTS as FAULTS_OF_ONE
from tests.simulation.holes import WITH, opened
from tests.simulation.many.faults import FAULTS as FAULTS_OF_MANY
from tests.simulation.many.schedule import CALLS
from tests.simulation.running import WAYS, Failure, Simulator
from tests.simulation.schedule import WALL_CLOCKS
from tests.simulation.shrinking import shrunk

FAULTS: Final = [*dict.fromkeys([*FAULTS_OF_ONE, *FAULTS_OF_MANY]), WALL_CLOCKS]
"""The names of all faults."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run schedules; print the first failure, or the first of each rule."""
    options = _parsed(arguments)
    faults = {*FAULTS}.intersection(*(WITH[hole] for hole in options.hole))
    names = (faults if options.faults is None else {*options.faults}) | calls()
    names -= {*options.without}
    simulator = Simulator()
    with simulator.installed(), opened(options.hole):
        if options.digests:
            return _digested(simulator, options, names)
        if options.seed is not None:
            found = [simulator.draw(options.seed, options.kind[0], names, steps=options.steps)]
            return _told(simulator, [failure for failure in found if failure], trace=options.trace)
        return _many(simulator, options, names)


def _digested(simulator: Simulator, options: argparse.Namespace, names: set[str]) -> int:
    """Print a digest of all messages and answers for each seed and kind, to compare two commits."""
    for kind in options.kind:
        for seed in range(options.first, options.first + options.digests):
            digest = hashlib.blake2s(digest_size=8)
            failure = simulator.draw(seed, kind, names, digest=digest)
            say(f"{kind} {seed} {digest.hexdigest()} {failure.violation.rule if failure else 'held'}")
    return 0


def calls() -> set[str]:
    """Return the names of all calls."""
    return {name for kind in kinds.KINDS.values() for name in kind.calls} | CALLS


def say(line: str) -> None:
    """Print a line and flush it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.simulation", description=__doc__)
    names = ", ".join(FAULTS)
    parser.add_argument("--seed", type=int, help="replay the run of this seed")
    parser.add_argument("--first", type=int, default=0, help="start with this seed")
    digests = "print digests of the messages and answers of that many runs; reproducible --without fork"
    parser.add_argument("--digests", type=int, help=digests)
    parser.add_argument("--steps", type=int, help="total number of steps; with --seed, steps of that run")
    parser.add_argument("--kind", type=_list, default=list(WAYS), help=", ".join(WAYS))
    parser.add_argument("--faults", type=_list, help=f"use only these: {names}")
    without = f"leave out these faults or calls ({', '.join(sorted(calls()))})"
    parser.add_argument("--without", type=_list, default=[], help=without)
    parser.add_argument("--hole", type=_list, default=[], help=f"open one of these holes: {', '.join(WITH)}")
    parser.add_argument("--ignore", type=_list, default=[], help="only count the violations of these rules")
    parser.add_argument("--trace", action="store_true", help="print every event of the shortest schedule")
    parser.add_argument("--all", action="store_true", help="continue after a failure; print one a rule")
    return parser.parse_args(arguments)


def _list(text: str) -> list[str]:
    return text.split(",")


def _many(simulator: Simulator, options: argparse.Namespace, names: set[str]) -> int:
    """Run the seeds in order, each with every kind."""
    begun, seed = time.perf_counter(), options.first
    failures: dict[tuple[str, str], Failure] = {}
    found: Counter[tuple[str, str]] = Counter()
    schedules = 0
    while simulator.steps < (options.steps or 100_000):
        for kind in options.kind:
            failure = simulator.draw(seed, kind, names)
            schedules += 1
            if failure:
                found[kind, failure.violation.rule] += 1
                failures.setdefault((kind, failure.violation.rule), failure)
        seed += 1
        if not options.all and any(rule not in options.ignore for _, rule in failures):
            break
    seconds = time.perf_counter() - begun
    say(
        f"{simulator.steps} steps, {schedules} schedules in {seconds:.1f} s: "
        f"{simulator.steps / seconds:.0f} steps a second, {schedules / seconds * 60:.0f} schedules a minute"
    )
    for (kind, rule), times in found.most_common():
        say(f"{times:6} {kind}: {rule}")
    return _told(
        simulator,
        [each for (_, rule), each in failures.items() if rule not in options.ignore],
        trace=options.trace,
    )


def _told(simulator: Simulator, failures: Sequence[Failure], *, trace: bool = False) -> int:
    """Print the failures of runs, each with its shortest schedule."""
    for failure in failures:
        say(report(simulator, failure, trace=trace))
    return 1 if failures else 0


def report(simulator: Simulator, failure: Failure, *, trace: bool = False) -> str:
    """Return a failure as text: seed, rule and the shortest schedule found."""
    rule = failure.violation.rule

    def fails(actions: Sequence[object]) -> bool:
        violation = simulator.replay(failure.scenario, actions)  # type: ignore[arg-type]  # they are actions
        return violation is not None and violation.rule == rule

    if not fails(failure.actions):
        return f"seed {failure.seed}: {failure.violation} (not repeatable)"
    actions = shrunk(failure.actions, fails)
    happened: list[str] = []
    violation = simulator.replay(failure.scenario, actions, happened)
    scenario = failure.scenario
    lines = [f"--seed {failure.seed} --kind {scenario.kind}: {violation}"]
    lines += [
        f"  {each}" for each in scenario.processes if any(each.name in str(action) for action in actions)
    ]
    return "\n".join([*lines, *(f"    {each}" for each in (happened if trace else actions))])


if __name__ == "__main__":
    sys.exit(main())
