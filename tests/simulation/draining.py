"""Draining: all calls and messages are brought to an end."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from tests.simulation.actions import Action
from tests.simulation.history import Violation
from tests.simulation.stage import Stage

_MOST_ROUNDS: Final = 2000


def drain(world: Stage) -> None:
    """Bring calls and messages to an end, in their order."""
    for _ in range(_MOST_ROUNDS):
        for action in list(_waiting(world)):
            world.apply(action)
        if not world.calls and not world.network.strays:
            return
    raise Violation("endless", f"these calls do not end: {list(world.calls)}")


def _waiting(world: Stage) -> Iterator[Action]:
    for ref, exchange in world.network.exchanges.items():
        done = exchange.message is not None and exchange.message.is_executed
        yield Action("reply" if done else "execute", (ref,))
    for name in world.network.strays:
        yield Action("stray", (name,))
    if not world.network.exchanges and world.until_due < math.inf:
        yield Action("wait", (world.until_due,))


def call(world: Stage, ref: str, *how: Any) -> None:
    """Make a call and run it to its end."""
    world.apply(Action("start", (ref, *how)))
    drain(world)
