"""Actions of a run, and its initial state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.simulation.processes import Setup


class Action(NamedTuple):
    """An action in a world."""

    name: str
    args: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.args))})"


@dataclass(frozen=True)
class Scenario:
    """The initial state of a run.

    :ivar faults: the faults that may happen.
    :ivar calls: the calls that may be made.
    :ivar is_warm: whether the server has the scripts.
    """

    kind: str
    options: tuple[tuple[str, Any], ...]
    processes: tuple[Setup, ...]
    faults: frozenset[str]
    calls: frozenset[str]
    is_warm: bool = False
