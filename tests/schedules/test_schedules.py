"""Each schedule breaks its rule while its hole is open, and none otherwise."""

from __future__ import annotations

import sys

import pytest

from tests.schedules.lines import HELD, Schedule, read
from tests.schedules.running import outcomes
from tests.simulation.holes import WITH
from tests.simulation.running import Simulator

IS_3_11 = sys.version_info[:2] == (3, 11)
"""Whether signals come where the schedules say; other versions of CPython look for them elsewhere."""
SCHEDULES = read()
HELD_SCHEDULES = read(HELD)


def test_each_hole_has_a_schedule() -> None:
    """`python -m tests.schedules` searches and writes those that are missing."""
    assert {each.hole for each in SCHEDULES} == set(WITH)


def test_a_line_is_the_schedule() -> None:
    """A schedule that is written and read again is the same."""
    every = SCHEDULES + HELD_SCHEDULES
    assert [Schedule.of_line(each.line()) for each in every] == every


def test_the_rule_is_broken_through_the_hole_alone() -> None:
    """A replay takes milliseconds; the searches of `make test-faults` find other schedules, too."""
    simulator = Simulator()
    chosen = [
        each for each in SCHEDULES if IS_3_11 or "interrupt_inside" not in {act.name for act in each.actions}
    ]
    with simulator.installed():
        found = {each.hole: outcomes(simulator, each) for each in chosen}
    assert found == {each.hole: (each.rule, None) for each in chosen}


@pytest.mark.parametrize("schedule", HELD_SCHEDULES, ids=[each.says for each in HELD_SCHEDULES])
def test_a_schedule_breaks_no_rule(schedule: Schedule) -> None:
    """A schedule that somebody wrote for a fault runs to its end without a broken rule."""
    simulator = Simulator()
    with simulator.installed():
        assert outcomes(simulator, schedule) == (None, None)
