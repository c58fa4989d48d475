"""What a run begins with, and what happens in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.simulation.processes import Setup


class Action(NamedTuple):
    """Something that happens in a world."""

    name: str
    args: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.args))})"


@dataclass(frozen=True)
class Scenario:
    """What a run begins with.

    :ivar faults: those that may happen.
    :ivar calls: those that are made.
    :ivar is_warm: whether the server knows the scripts.
    """

    kind: str
    options: tuple[tuple[str, Any], ...]
    processes: tuple[Setup, ...]
    faults: frozenset[str]
    calls: frozenset[str]
    is_warm: bool = False
