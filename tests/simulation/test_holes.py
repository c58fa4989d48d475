"""The simulator finds repaired holes once they are opened again."""

from __future__ import annotations

import pytest

from tests.simulation.holes import WITH, opened
from tests.simulation.running import Simulator
from tests.simulation.searching import found


@pytest.mark.faults
@pytest.mark.one_in(4)  # since `tests.schedules` replays a schedule of each hole in every run
@pytest.mark.parametrize("hole", WITH)
def test_a_hole_is_found(hole: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The hole is found within 10,000 schedules; the same schedule breaks no rule without it."""
    simulator = Simulator()
    with simulator.installed():
        with opened([hole]):
            schedules, failure = found(simulator, hole)
        with capsys.disabled():
            print(f"\n{hole}: {schedules} schedules, {failure and failure.violation}")  # noqa: T201 - the figures that are asked for
        assert failure is not None
        assert simulator.replay(failure.scenario, failure.actions) is None
