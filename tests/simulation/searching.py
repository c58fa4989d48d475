"""The search for a schedule that breaks a rule through an open hole."""

from __future__ import annotations

from typing import Final

from tests.simulation.__main__ import calls
from tests.simulation.holes import KIND_OF, ONLY, WITH
from tests.simulation.kinds import KINDS
from tests.simulation.running import Failure, Simulator

MOST_SCHEDULES: Final = 10_000
FIRST: Final = {
    "batches-not-kept": 4400,
    "cache-learns-for-newest": 2700,
    "claims-by-time": 700,
    "claims-not-kept": 1200,
    "debts-survive-fork": 400,
    "forks-unseen": 250,
    "last-attempt-of-cluster-judges": 2800,
    "last-error-judges": 2800,
    "looks-not-compared": 470,
    "losses-in-two-steps": 800,
    "nobody-is-told": 1300,
    "parts-stop-in-silence": 240,
    "record-revived": 2800,
    "shards-without-time": 400,
    "stale-drops": 100,
    "sweeps-too-far": 1700,
    "tokens-shared": 5900,
}
"""The first schedule of a search that would be long: slightly before the one that fails."""


def found(simulator: Simulator, hole: str) -> tuple[int, Failure | None]:
    """Return the number of schedules until one broke a rule, and its failure."""
    names = WITH[hole] | ONLY.get(hole, calls())
    kinds = [KIND_OF[hole]] if hole in KIND_OF else [*KINDS]
    first = FIRST.get(hole, 0)
    for number in range(first, first + MOST_SCHEDULES):
        seed, kind = divmod(number, len(kinds))
        if failure := simulator.draw(seed, kinds[kind], names):
            return number + 1, failure
    return first + MOST_SCHEDULES, None
