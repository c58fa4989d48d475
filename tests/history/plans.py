"""Plans of rounds: everything that the coordinator and its worker processes have to agree on."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

Kind = Literal["items", "claims", "counting"]
KINDS: Final[tuple[Kind, ...]] = ("items", "claims", "counting")

SIZE: Final[dict[str, Any]] = {"capacity": 50_000, "error_rate": 1e-9}
ITEMS_A_SECOND: Final = 500
WINDOW: Final = 40


@dataclass(frozen=True)
class Plan:
    """A round on a filter of its own, from `start` to `end` on the monotonic clock.

    :ivar seed: that of everything random in it; also the filter's name.
    :ivar port: that of the proxy.
    :ivar losses: the filter is lost from time to time.
    """

    seed: str
    kind: Kind
    port: int
    start: float
    end: float
    losses: bool = False
    on_lost: Literal["raise", "recreate"] = "raise"

    @property
    def options(self) -> dict[str, Any]:
        """The options of every filter object but one that shares calls."""
        return {**SIZE, "on_lost": self.on_lost}

    def dice(self, name: str) -> random.Random:
        """Return the dice of a worker."""
        return random.Random(f"{self.seed} {name}")

    def goes_on(self) -> bool:
        """Return whether there is time left."""
        return time.monotonic() < self.end

    def window(self) -> Sequence[int]:
        """Return the numbers of the items that all workers ask about at this time."""
        front = int((time.monotonic() - self.start) * ITEMS_A_SECOND)
        return range(front, front + WINDOW)


def plan(seed: int, number: int, port: int, seconds: float) -> Plan:
    """Return the plan of a round: kinds take turns, with losses and without."""
    dice = random.Random(f"{seed} {number}")
    kinds: tuple[tuple[Kind, bool], ...] = (
        *(("items", False), ("claims", False), ("counting", False)),
        *(("items", True), ("claims", dice.random() < 0.5)),
    )
    kind, losses = kinds[number % len(kinds)]
    start = time.monotonic()
    return Plan(
        seed=f"{seed}-{number}",
        kind=kind,
        port=port,
        start=start,
        end=start + seconds,
        losses=losses,
        on_lost=dice.choice(("raise", "recreate")),
    )
