"""Runs: a schedule is drawn and carried out, then all calls end and the state is checked."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tests.simulation import ending, kinds, schedule
from tests.simulation.actions import Action, Scenario
from tests.simulation.environment import Environment
from tests.simulation.history import Violation
from tests.simulation.many import ending as many_ending
from tests.simulation.many import kinds as many_kinds
from tests.simulation.many import schedule as many_schedule
from tests.simulation.many.world import ManyWorld
from tests.simulation.server import Server
from tests.simulation.stage import Stage
from tests.simulation.world import World

STEPS: Final = (40, 200)
"""Actions in a run: some runs are short, so that their last calls are about items never added before."""


class Way(NamedTuple):
    """How schedules of a kind of filter are drawn, carried out, and ended."""

    scenario: Callable[[random.Random, str, Collection[str]], Scenario]
    world: Callable[[Scenario, Environment, Sequence[Server]], Stage]
    drawing: Callable[[random.Random, Any], Callable[[], Action]]
    finish: Callable[[Any], None]


_ONE: Final = Way(schedule.scenario, World, schedule.Drawing, ending.finish)
_MANY: Final = Way(many_schedule.scenario, ManyWorld, many_schedule.Drawing, many_ending.finish)
WAYS: Final = dict.fromkeys(kinds.KINDS, _ONE) | dict.fromkeys(many_kinds.KINDS, _MANY)
"""The ways by the names of the kinds."""


@dataclass
class Failure:
    """A run that broke a rule, with all that is needed to repeat it."""

    seed: int
    scenario: Scenario
    actions: list[Action]
    violation: Violation


class Simulator:
    """Runs schedules, one after the other, in one environment."""

    def __init__(self) -> None:
        self._environment = Environment()
        self._servers = [Server(), Server()]
        self.steps = 0

    def installed(self) -> AbstractContextManager[None]:
        """Return the context in which runs are possible."""
        return self._environment.installed()

    def draw(
        self,
        seed: int,
        kind: str,
        names: Collection[str],
        *,
        steps: int | None = None,
        lines: list[str] | None = None,
        digest: hashlib.blake2s | None = None,
    ) -> Failure | None:
        """Draw a schedule from a seed and carry it out; return its failure, if any.

        :param names: the faults and calls to use.
        :param lines: gets a line for each event.
        :param digest: gets each command, reply and answer.
        """
        rng = random.Random(f"{kind}-{seed}")
        way = WAYS[kind]
        begun = way.scenario(rng, kind, names)
        world = self._world(begun)
        world.lines, world.digest = lines, digest
        drawing = way.drawing(rng, world)
        actions: list[Action] = []
        try:
            for _ in range(steps or rng.choice(STEPS)):
                actions.append(drawing())
                self.steps += 1
                world.apply(actions[-1])
            WAYS[begun.kind].finish(world)
        except Violation as violation:
            return Failure(seed, begun, actions, violation)
        finally:
            _close(world)
        return None

    def replay(
        self, begun: Scenario, actions: Sequence[Action], lines: list[str] | None = None
    ) -> Violation | None:
        """Carry out a schedule; return the rule that it broke, if any. `lines` gets a line for each event."""
        world = self._world(begun)
        world.lines = lines
        try:
            for action in actions:
                world.apply(action)
            WAYS[begun.kind].finish(world)
        except Violation as violation:
            return violation
        finally:
            _close(world)
        return None

    def _world(self, begun: Scenario) -> Stage:
        self._environment.begin(0)
        return WAYS[begun.kind].world(begun, self._environment, self._servers)


def _close(world: Stage) -> None:
    for process in world.processes.values():
        if process.loop is not None:
            process.loop.stop()
