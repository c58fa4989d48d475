"""The simulator finds repaired holes once they are opened again."""

from __future__ import annotations

from typing import Final

import pytest

from tests.simulation.holes import WITH, opened
from tests.simulation.running import Simulator
from tests.simulation.searching import found

LOTS: Final = 4
"""Of so many holes a run searches for one; `tests.schedules` replays a schedule of each, in every run."""


@pytest.mark.faults
@pytest.mark.parametrize("first", range(0, len(WITH), LOTS))
def test_a_hole_is_found(first: int, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The hole is found within 10,000 schedules; the same schedule breaks no rule without it."""
    hole = [*WITH][first : first + LOTS][seed % min(LOTS, len(WITH) - first)]
    simulator = Simulator()
    with simulator.installed():
        with opened([hole]):
            schedules, failure = found(simulator, hole)
        with capsys.disabled():
            print(f"\n{hole}: {schedules} schedules, {failure and failure.violation}")  # noqa: T201 - the figures that are asked for
        assert failure is not None
        assert simulator.replay(failure.scenario, failure.actions) is None
