"""Runs: a schedule is drawn and carried out, then everything is brought to an end and looked at."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from tests.simulation.environment import Environment
from tests.simulation.history import Request, Violation
from tests.simulation.kinds import ITEMS, KEY
from tests.simulation.processes import Setup
from tests.simulation.schedule import Drawing, scenario
from tests.simulation.server import Server
from tests.simulation.world import Action, Scenario, World

STEPS: Final = 200
"""Actions in a run."""

_MOST_ROUNDS: Final = 2000
_LAST: Final = Setup("end", ((("on_lost", "recreate"),),))


@dataclass
class Failure:
    """A run that broke a rule: how it can be repeated."""

    seed: int
    scenario: Scenario
    actions: list[Action]
    violation: Violation


class Simulator:
    """Runs schedules, one after the other, in one environment."""

    def __init__(self) -> None:
        self._environment = Environment()
        self._server = Server()
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
        steps: int = STEPS,
        lines: list[str] | None = None,
    ) -> Failure | None:
        """Draw a schedule from a seed and carry it out; return how it failed, if it did.

        :param names: of the faults and calls that there may be.
        :param lines: gets what happens.
        """
        rng = random.Random(f"{kind}-{seed}")
        begun = scenario(rng, kind, names)
        world = self._world(begun)
        world.lines = lines
        drawing = Drawing(rng, world)
        actions: list[Action] = []
        try:
            for _ in range(steps):
                actions.append(drawing())
                self.steps += 1
                world.apply(actions[-1])
            finish(world)
        except Violation as violation:
            return Failure(seed, begun, actions, violation)
        finally:
            _close(world)
        return None

    def replay(
        self, begun: Scenario, actions: Sequence[Action], lines: list[str] | None = None
    ) -> Violation | None:
        """Carry out a schedule; return the rule that it broke, if it did.  `lines` gets what happens."""
        world = self._world(begun)
        world.lines = lines
        try:
            for action in actions:
                world.apply(action)
            finish(world)
        except Violation as violation:
            return violation
        finally:
            _close(world)
        return None

    def _world(self, begun: Scenario) -> World:
        self._environment.begin(0)
        return World(begun, self._environment, self._server)


def _close(world: World) -> None:
    for process in world.processes.values():
        if process.loop is not None:
            process.loop.stop()


def finish(world: World) -> None:
    """Bring all calls to an end, ask again for what had no answer, and look at what is left."""
    world.server.denied, world.server.replicas = frozenset(), 1
    _drain(world)
    world.begin_process(_LAST)
    for number, request in enumerate(list(world.history.unknown)):
        _ask_again(world, request, number)
    for item in range(ITEMS):
        _call(world, f"end{item}", "end.a", "contains", (item,), None)
    _check_count(world)
    _call(world, "delete", "end.a", "delete", (), None)
    world.network.strays.clear()
    world.server.data.now += 3600 * 1_000_000
    if left := world.server.data.alive():
        raise Violation("left behind", f"after delete and all TTLs there is {left}")


def _drain(world: World) -> None:
    """Bring calls and messages to an end, in their order."""
    for _ in range(_MOST_ROUNDS):
        for action in list(_waiting(world)):
            world.apply(action)
        if not world.calls and not world.network.strays:
            return
    raise Violation("endless", f"these calls do not end: {list(world.calls)}")


def _waiting(world: World) -> Iterator[Action]:
    for ref, exchange in world.network.exchanges.items():
        done = exchange.message is not None and exchange.message.is_executed
        yield Action("reply" if done else "execute", (ref,))
    for name in world.network.strays:
        yield Action("stray", (name,))


def _call(world: World, ref: str, *call: Any) -> None:
    """Make a call and bring it to its end."""
    world.apply(Action("start", (ref, *call)))
    _drain(world)


def _ask_again(world: World, request: Request, number: int) -> None:
    """Ask for an answer that is owed: with the token elsewhere, or the same object."""
    items, own = (request.item,), world.owners.get(request.owner.name) is request.owner
    if request.token:
        asked = request.owner.name if own and number % 2 else "end.a"
        _call(world, f"again{number}", asked, request.verb, items, request.ref)
    elif own:
        _call(world, f"again{number}", request.owner.name, request.verb, items, None)


def _check_count(world: World) -> None:
    """Check the count in the header."""
    value = world.server.data.find(KEY.encode())
    counted = sum(world.history.stored.entry.counts)
    if value is not None and int.from_bytes(value[56:64], "big") != counted:
        count = int.from_bytes(value[56:64], "big")
        raise Violation("count", f"the header counts {count} items, and {counted} are in")
