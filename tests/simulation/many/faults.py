"""Additional faults for filters of many keys."""

from __future__ import annotations

import random
from typing import Any, Final, cast

from tests.simulation import faults
from tests.simulation.actions import Action
from tests.simulation.faults import Draw
from tests.simulation.many.kinds import SHARDS
from tests.simulation.many.world import ManyWorld
from tests.simulation.stage import ACTIONS, Stage


def evict_record(world: ManyWorld) -> None:
    """Evict the record."""
    world.watch.evict_record()


def evict_layer(world: ManyWorld, place: int) -> None:
    """Evict a layer."""
    world.watch.evict_layer(place)


def evict_shard(world: ManyWorld, number: int) -> None:
    """Evict a shard."""
    world.watch.evict_shard(number)


def away(world: ManyWorld, seconds: float) -> None:
    """Make the last of several nodes unreachable for a while."""
    world.away(seconds)


def leap(world: ManyWorld, seconds: float) -> None:
    """Advance the servers' clock."""
    world.jump(seconds)
    world.debts.forget()


def crash(world: ManyWorld, ref: str) -> None:
    """Kill the process of a call."""
    if ref in world.calls:
        faults.kill(world, world.calls[ref].owner.process.name)


def _crash(world: Stage, rng: random.Random) -> Action | None:
    """Choose a process that replaces the filter, or else any."""
    verbs = {ref: call.requests[0].verb for ref, call in world.calls.items()}
    replacing = [ref for ref, verb in verbs.items() if verb in ("clear", "delete", "acknowledge")]
    refs = replacing or list(verbs)
    return Action("crash", (rng.choice(refs),)) if refs else None


def _of(name: str, *values: Any) -> Draw:
    return lambda _, rng: Action(name, (rng.choice(values),))


def _away(world: Stage, rng: random.Random) -> Action | None:
    return Action("away", (rng.choice((0.005, 0.1, 2.0)),)) if len(world.servers) > 1 else None


_AS_ALWAYS: Final = (
    *("lost_reply", "lost_request", "late_copy", "double_copy", "refusal", "refused_inside", "no_connection"),
    "script_flush",
    *("cancel", "cancel_task", "interrupt", "interrupt_inside", "kill", "fork"),
)
FAULTS: Final[dict[str, tuple[float, Draw]]] = {
    **{name: faults.FAULTS[name] for name in _AS_ALWAYS},
    "flush_all": (0.3, lambda _, __: Action("flush_all")),
    "slow": (0.6, _of("wait", 0.3, 0.6, 1.5, 2.5, 5.0, 15.0, 70.0)),
    "evict_record": (0.4, lambda _, __: Action("evict_record")),
    "evict_layer": (0.4, _of("evict_layer", *range(6))),
    "evict_shard": (0.4, _of("evict_shard", *range(SHARDS))),
    "leap": (0.1, _of("leap", 0.3, 3.0, 70.0)),
    "away": (0.5, _away),
    "crash": (0.5, _crash),
}
"""The faults by name, each with its relative frequency."""

EXPLAINING: Final = frozenset(_AS_ALWAYS) - {"script_flush", "fork"} | {"away", "crash"}
"""Faults that may leave a call without an answer."""

ACTIONS.update(
    {each.__name__: cast("Any", each) for each in (evict_record, evict_layer, evict_shard, away, leap, crash)}
)
