"""Replays of schedules, and the search for the shortest one that a hole lets break a rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tests.schedules.lines import Schedule
from tests.simulation.actions import Action, Scenario
from tests.simulation.holes import opened
from tests.simulation.kinds import KINDS
from tests.simulation.processes import Setup
from tests.simulation.running import Simulator
from tests.simulation.searching import found
from tests.simulation.shrinking import shrunk


def outcomes(simulator: Simulator, schedule: Schedule) -> tuple[str | None, str | None]:
    """Return the rules that a schedule breaks while its hole is open, and while it is closed."""

    def rule() -> str | None:
        violation = simulator.replay(schedule.scenario, schedule.actions)
        return None if violation is None else violation.rule

    with opened([schedule.hole] if schedule.hole else []):
        broken = rule()
    return broken, rule() if schedule.hole else broken


def is_right(simulator: Simulator, schedule: Schedule) -> bool:
    """Return whether a schedule breaks its rule through the hole, and none without it."""
    return outcomes(simulator, schedule) == (schedule.rule, None)


def search(simulator: Simulator, hole: str) -> Schedule | None:
    """Return a short schedule for a hole, if one is found."""
    with opened([hole]):
        _, failure = found(simulator, hole)
        if failure is None:
            return None
        rule = failure.violation.rule

        def breaks(scenario: Scenario, actions: Sequence[Action]) -> bool:
            violation = simulator.replay(scenario, actions)
            return violation is not None and violation.rule == rule

        scenario = replace(failure.scenario, calls=frozenset())  # they say what may be drawn
        if not breaks(scenario, failure.actions):
            return None
        actions = shrunk(failure.actions, lambda part: breaks(scenario, part))
    schedule = Schedule(hole, rule, scenario, tuple(actions))
    if not is_right(simulator, schedule):
        return None
    schedule = _simplest(simulator, schedule)
    with opened([hole]):
        actions = shrunk(schedule.actions, lambda part: breaks(schedule.scenario, part))
    shortest = replace(schedule, actions=tuple(actions))
    return shortest if is_right(simulator, shortest) else schedule


def _simplest(simulator: Simulator, schedule: Schedule) -> Schedule:
    """Return the schedule without what its scenario does not need."""
    while True:
        simpler = (replace(schedule, scenario=each) for each in _simpler(schedule.scenario))
        found = next((each for each in simpler if is_right(simulator, each)), None)
        if found is None:
            return schedule
        schedule = found


def _simpler(begun: Scenario) -> Iterator[Scenario]:
    """Yield scenarios that each lack one thing."""
    for i in range(len(begun.processes)) if len(begun.processes) > 1 else ():
        yield replace(begun, processes=_without(begun.processes, i))
    yield from (replace(begun, faults=begun.faults - {fault}) for fault in sorted(begun.faults))
    if begun.kind in KINDS:  # filters of many keys need all their options
        yield from (replace(begun, options=_without(begun.options, i)) for i in range(len(begun.options)))
    for i, setup in enumerate(begun.processes):
        for simpler in _simpler_setups(setup):
            processes = (*begun.processes[:i], simpler, *begun.processes[i + 1 :])
            yield replace(begun, processes=processes)
    if not begun.is_warm:
        yield replace(begun, is_warm=True)


def _simpler_setups(setup: Setup) -> Iterator[Setup]:
    """Yield processes that each lack one object, or one option."""
    if len(setup.objects) > 1:
        yield replace(setup, objects=setup.objects[:-1])
    for i, options in enumerate(setup.objects):
        for j in range(len(options)):
            objects = (*setup.objects[:i], _without(options, j), *setup.objects[i + 1 :])
            yield replace(setup, objects=objects)
    defaults: dict[str, Any] = {"retries": 0, "is_async": False, "is_cluster": False, "walls": (0.0,)}
    for name, value in defaults.items():
        if getattr(setup, name) != value:
            yield replace(setup, **{name: value})


def _without(values: Sequence[Any], place: int) -> tuple[Any, ...]:
    return (*values[:place], *values[place + 1 :])
