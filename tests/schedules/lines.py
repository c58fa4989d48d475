"""Schedules as lines of JSON: `holes.jsonl` has one for each hole, `held.jsonl` those that break no rule."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from tests.simulation.actions import Action, Scenario
from tests.simulation.kinds import SECRET
from tests.simulation.processes import Setup

FILE: Final = Path(__file__).with_name("holes.jsonl")
HELD: Final = FILE.with_name("held.jsonl")
"""Schedules without a hole, written by hand; each says what its end shows."""

_ENCODERS: Final = {"secret": SECRET}
"""Functions that options have, by the names that stand for them in a line."""


@dataclass(frozen=True)
class Schedule:
    """A schedule that breaks a rule while a hole is open, and none otherwise.

    :ivar hole: empty for a schedule that breaks no rule; then `says` is what its end shows.
    """

    hole: str
    rule: str
    scenario: Scenario
    actions: tuple[Action, ...]
    says: str = ""

    @classmethod
    def of_line(cls, line: str) -> Schedule:
        """Return the schedule of a line."""
        values = json.loads(line)
        scenario = Scenario(
            kind=values["kind"],
            options=_options(values.get("options", {})),
            processes=tuple(map(_setup, values["processes"])),
            faults=frozenset(values.get("faults", ())),
            calls=frozenset(),  # they say what may be drawn
            is_warm=values.get("is_warm", False),
        )
        actions = tuple(Action(name, _tuples(args)) for name, *args in values["actions"])
        hole, rule = values.get("hole", ""), values.get("rule", "")
        return cls(hole, rule, scenario, actions, values.get("says", ""))

    def line(self) -> str:
        """Return the schedule as a line, without what has its default."""
        begun = self.scenario
        values: dict[str, Any] = {
            "hole": self.hole,
            "rule": self.rule,
            "says": self.says,
            "kind": begun.kind,
            "options": _named(begun.options),
            "faults": sorted(begun.faults),
            "is_warm": begun.is_warm,
            "processes": [_changed(each) for each in begun.processes],
            "actions": [[each.name, *each.args] for each in self.actions],
        }
        return json.dumps({name: value for name, value in values.items() if value})


def read(file: Path = FILE) -> list[Schedule]:
    """Return the schedules of a file."""
    return [Schedule.of_line(line) for line in file.read_text("utf-8").splitlines()]


def write(schedules: Iterable[Schedule]) -> None:
    """Write them."""
    FILE.write_text("".join(f"{each.line()}\n" for each in schedules), "utf-8")


def _named(options: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    names = {id(function): name for name, function in _ENCODERS.items()}
    return {name: names.get(id(value), value) for name, value in options}


def _options(values: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, _ENCODERS[value] if name == "encode" else value) for name, value in values.items())


def _changed(setup: Setup) -> dict[str, Any]:
    """Return what a process has in place of a default."""
    defaults = {field.name: field.default for field in fields(Setup)}
    changed = {name: value for name, value in vars(setup).items() if value != defaults[name]}
    return changed | {"objects": [dict(each) for each in setup.objects]}


def _setup(values: dict[str, Any]) -> Setup:
    objects = tuple(tuple(each.items()) for each in values["objects"])
    return Setup(**{name: _tuples(value) for name, value in values.items()} | {"objects": objects})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
