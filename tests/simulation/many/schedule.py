"""Schedules for filters of many keys: drawn from a seed, one action at a time."""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Final

from tests.rules.calls import Call as Record
from tests.simulation.actions import Action, Scenario
from tests.simulation.many.faults import FAULTS
from tests.simulation.many.kinds import ITEMS, NAMES
from tests.simulation.many.world import ManyWorld
from tests.simulation.processes import Owner, Setup
from tests.simulation.schedule import WALL_CLOCKS, Draws, with_wrong_clocks

ADDING: Final = {"add": 10.0, "add_many": 2.0, "contains": 4.0}
CLAIMING: Final = {"claim": 6.0, "claim_many": 1.0, "commit": 5.0, "release": 1.5, "extend": 1.0}
WHOLE: Final = {"create": 0.2, "acknowledge": 0.4, "clear": 0.5, "delete": 0.3}
CALLS: Final = frozenset(ADDING | CLAIMING | WHOLE)
_DEEDS: Final = ("commit", "release", "extend")


def scenario(rng: random.Random, kind: str, names: Collection[str]) -> Scenario:
    """Return a run's initial state: many runs have only some faults, so that none hides the others."""
    share = rng.choice((0.4, 1.0))
    some = frozenset(name for name in FAULTS if rng.random() < share and name in names)
    sharded = kind == "ShardedBloomFilter"
    options = (
        ("on_lost", rng.choice(("raise", "recreate"))),
        ("claims", kind != "RotatingBloomFilter" and rng.random() < 0.25),
        ("nodes", rng.choice((1, 2)) if sharded else 1),
    )
    processes = tuple(_setup(rng, f"p{i}") for i in range(rng.choice((1, 2, 2, 3))))
    if WALL_CLOCKS in names and rng.random() < share:
        processes = with_wrong_clocks(rng, processes)
    return Scenario(kind, options, processes, some, CALLS & set(names), is_warm=rng.random() < 0.6)


def _setup(rng: random.Random, name: str) -> Setup:
    objects: tuple[tuple[tuple[str, object], ...], ...] = ((),) * rng.choice((1, 1, 2))
    return Setup(name, objects, rng.choice((0, 0, 1, 3)), rng.random() < 0.3, rng.random() < 0.3)


class Drawing(Draws[ManyWorld]):
    """Draws the actions of a run over a filter of many keys."""

    def __init__(self, rng: random.Random, world: ManyWorld) -> None:
        super().__init__(rng, world, FAULTS)
        whole = rng.choice((0.2, 1.0, 1.0, 5.0))
        verbs = (CLAIMING if world.terms.claims else ADDING) | {
            verb: weight * whole for verb, weight in WHOLE.items()
        }
        self._verbs = [verb for verb in verbs if verb in world.scenario.calls]
        self._verb_weights = [verbs[verb] * rng.choice((0.2, 1.0, 1.0, 3.0)) for verb in self._verbs]
        self._items = rng.choice((2, 4, ITEMS))
        self._waits = rng.choice(((0.01, 0.1, 0.5), (0.001, 0.01)))

    def _start(self, ref: str) -> Action | None:
        rng, world = self._rng, self._world
        if world.told and rng.random() < 0.3:
            verbs = [verb for verb in ("acknowledge", "acknowledge", "clear") if verb in world.scenario.calls]
            return Action(
                "start", (ref, rng.choice(list(world.told)), rng.choice(verbs or ["acknowledge"]), (), None)
            )
        if rng.random() < 0.3 and (owed := world.debts.all(world.watch.now())):
            return self._again(ref, owed)
        verb = rng.choices(self._verbs, self._verb_weights)[0]
        running = [call.requests[0].verb for call in world.calls.values()]
        both = [each for each in running if each in ("clear", "delete") and each in self._verbs]
        if both and rng.random() < 0.2:
            verb = rng.choice(both)
        if verb in _DEEDS:
            return self._deed(ref, verb)
        items: tuple[int, ...] = ()
        if verb.endswith("_many"):
            items = tuple(rng.randrange(self._items) for _ in range(rng.choice((2, 3, 4))))
        elif verb not in WHOLE:
            items = (rng.randrange(self._items),)
        return Action("start", (ref, rng.choice(list(world.owners)), verb, items, None))

    def _again(self, ref: str, owed: list[tuple[Record, Owner]]) -> Action:
        record, owner = self._rng.choice(owed[-4:])
        asked = owner.name
        if record.token and self._rng.random() < 0.5:
            asked = self._rng.choice(list(self._world.owners))
        return Action("start", (ref, asked, record.verb, (NAMES.index(record.item),), record.name))

    def _deed(self, ref: str, verb: str) -> Action | None:
        held = [each for each in list(self._world.held.values())[-6:] if not each.busy]
        if not held:
            return None
        one = self._rng.choice(held)
        verb = one.ending.verb if one.ending else verb
        return Action("start", (ref, one.owner.name, verb, (), one.record.name))
