"""Schedules: drawn from a seed, one action at a time, in view of the calls in flight."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Generic, TypeVar

from tests.simulation.actions import Action, Scenario
from tests.simulation.calls import OF_A_CLAIM, OF_CLAIMS
from tests.simulation.faults import FAULTS, late
from tests.simulation.history import state_of
from tests.simulation.kinds import ADDING, CLAIMING, ITEMS, KINDS, MOST_CALLS, REPLACING, Kind
from tests.simulation.network import Exchange
from tests.simulation.processes import Setup
from tests.simulation.stage import Stage
from tests.simulation.world import World

WALL_CLOCKS: Final = "wall_clocks"
"""The fault that the wall clocks of processes differ, and jump."""

_WALLS: Final = (-7200.0, -5.0, 0.0, 0.0, 3.0, 86400.0)
"""Seconds by which a wall clock is wrong."""

W = TypeVar("W", bound=Stage)
Fault = Callable[[W, random.Random], Action | None]


def scenario(rng: random.Random, kind: str, names: Collection[str]) -> Scenario:
    """Return a run's initial state: many runs have only some faults, so that none hides the others.

    :param names: the faults and calls to use.
    """
    share = rng.choice((0.5, 1.0))
    some = frozenset(name for name in FAULTS if rng.random() < share and name in names)
    chosen = KINDS[kind]
    left_out = rng.choice((0.0, 0.3, 0.6))
    calls = frozenset(
        name for name in chosen.calls if name in names and (name == "add" or rng.random() >= left_out)
    )
    options = tuple((name, rng.choice(values)) for name, values in chosen.shared.items())
    processes = tuple(_setup(rng, chosen, f"p{i}") for i in range(rng.choice((1, 2, 2, 3))))
    if WALL_CLOCKS in names and rng.random() < share:
        processes = with_wrong_clocks(rng, processes)
    return Scenario(kind, options, processes, some, calls, is_warm=rng.random() < 0.6)


def with_wrong_clocks(rng: random.Random, processes: Sequence[Setup]) -> tuple[Setup, ...]:
    """Return processes whose wall clocks differ, and jump."""
    return tuple(replace(each, walls=tuple(rng.choices(_WALLS, k=3))) for each in processes)


def _setup(rng: random.Random, kind: Kind, name: str) -> Setup:
    objects = tuple(
        tuple((option, rng.choice(values)) for option, values in kind.variants.items())
        for _ in range(rng.choice((1, 1, 2)))
    )
    return Setup(name, objects, rng.choice((0, 0, 1, 3, 10)), rng.random() < 0.4, rng.random() < 0.3)


class Draws(ABC, Generic[W]):
    """Draws the actions of one run; the frequency of each kind differs from run to run.

    :param faults: the faults by name, with the relative frequency and the drawing function of each.
    """

    _waits: Sequence[float] = (0.01, 0.1, 0.5)

    def __init__(self, rng: random.Random, world: W, faults: Mapping[str, tuple[float, Fault[W]]]) -> None:
        self._rng, self._world, self._by_name = rng, world, faults
        self._faults = sorted(world.scenario.faults)
        self._weights = [faults[name][0] * rng.choice((0.3, 1.0, 3.0)) for name in self._faults]
        self._fault_share = rng.choice((0.02, 0.06, 0.15)) if self._faults else 0.0
        self._start_share = rng.choice((0.15, 0.3, 0.5))
        self._count = 0
        self._change_share = rng.choice((1.0, 1.0, 0.1, 0.03))
        self._priorities: dict[str, float] = {}  # of exchanges, by name

    def __call__(self) -> Action:
        """Return the next action."""
        rng, world = self._rng, self._world
        draw = rng.random()
        if draw < self._fault_share:
            action = self._by_name[rng.choices(self._faults, self._weights)[0]][1](world, rng)
        elif not world.calls or (draw > 1 - self._start_share and len(world.calls) < MOST_CALLS):
            self._count += 1
            action = self._start(f"c{self._count}")
        elif world.network.strays and rng.random() < 0.1:
            action = late(world, rng)
        elif world.until_due < math.inf and rng.random() < 0.1:
            action = Action("wait", (world.until_due,))
        else:
            action = self._progress()
        return action or Action("wait", (rng.choice(self._waits),))

    def _progress(self) -> Action | None:
        exchanges = list(self._world.network.exchanges.values())
        if not exchanges:
            return None
        exchange = max(exchanges, key=self._priority)
        if self._rng.random() < self._change_share:
            exchange = self._rng.choice(exchanges)
            self._priorities[exchange.ref] = self._rng.random()
        done = exchange.message is not None and exchange.message.is_executed
        return Action("reply" if done else "execute", (exchange.ref,))

    def _priority(self, exchange: Exchange) -> float:
        """Return the priority of an exchange: the highest one continues, until priorities change.

        One call then stands still while others continue, which a choice at each step rarely produces.
        (Burckhardt et al. 2010, "A randomized scheduler with probabilistic guarantees of finding bugs")
        """
        return self._priorities.setdefault(exchange.ref, self._rng.random())

    @abstractmethod
    def _start(self, ref: str) -> Action | None:
        """Return the start of a call with that name."""


class Drawing(Draws[World]):
    """Draws the actions of a run over a filter of one key."""

    def __init__(self, rng: random.Random, world: World) -> None:
        super().__init__(rng, world, FAULTS)
        favoured = rng.choice(((), ADDING, CLAIMING, REPLACING))
        weights = {
            name: weight * rng.choice((0.2, 1.0, 1.0, 3.0)) * (5.0 if name in favoured else 1.0)
            for name, weight in world.kind.calls.items()
        }
        self._calls = [name for name in weights if name in world.scenario.calls]
        self._call_weights = [weights[name] for name in self._calls]
        self._items = rng.choice((2, 3, ITEMS))
        self._token_share = rng.choice((0.5, 1.0))
        self._twin_share = rng.choice((0.0, 0.5))
        self.twin: tuple[str, tuple[int, ...]] | None = None  # an add of a task, repeated by another task

    def _start(self, ref: str) -> Action | None:
        rng, world = self._rng, self._world
        if self.twin is not None:
            (owner, twins), self.twin = self.twin, None
            return Action("start", (ref, owner, "add", twins, None))
        if world.history.unknown and rng.random() < 0.3:
            return self._repeated(ref)
        owner = rng.choice(list(world.owners))
        verb = rng.choices(self._calls, self._call_weights)[0]
        if verb in OF_A_CLAIM or verb in OF_CLAIMS:
            return self._about_claims(ref, verb)
        items: tuple[int, ...] = ()
        if verb.endswith("_many") or verb == "update":
            items = tuple(rng.randrange(self._items) for _ in range(rng.choice((2, 3, 4))))
        elif verb not in (*REPLACING, "info", "expire"):
            items = (self._item(owner),)
        if verb == "add" and rng.random() < self._twin_share and world.owners[owner].process.loop is not None:
            self.twin = owner, items
        return Action("start", (ref, owner, verb, items, None))

    def _item(self, owner: str) -> int:
        """Return an item, often one of another call of the object."""
        running = [each.item for each in self._world.owners[owner].running if each.item >= 0]
        share = 0.3 if self._world.owners[owner].process.loop is None else 0.6
        if running and self._rng.random() < share:
            return self._rng.choice(running)
        return self._rng.randrange(self._items)

    def _repeated(self, ref: str) -> Action | None:
        """Return a retry of a call without an answer."""
        rng, world = self._rng, self._world
        request = rng.choice(world.history.unknown[-4:])
        args: tuple[Any, ...] = (request.owner.name, request.verb, (request.item,), None)
        if request.token and rng.random() < self._token_share:
            args = (
                rng.choice([request.owner.name, *world.owners]),
                request.verb,
                (request.item,),
                request.ref,
            )
        return Action("start", (ref, *args))

    def _about_claims(self, ref: str, verb: str) -> Action | None:
        """Return a call for a claim, or for several of one object."""
        held = [each for each in self._world.held[-6:] if state_of(each.held).status == "claimed"]
        if not held:
            return None
        claim = self._rng.choice(held)
        if verb == "hand_over":
            return Action("start", (ref, self._rng.choice(list(self._world.owners)), verb, (), claim.ref))
        claims = [claim]
        if verb in OF_CLAIMS:
            claims += [each for each in held if each.owner is claim.owner and each is not claim]
        return Action("start", (ref, claim.owner.name, verb, (), ",".join(each.ref for each in claims)))
