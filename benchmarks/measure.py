"""How sides are compared: in turns, in many short rounds, on the same items and the same server.

Each round has items of its own, and each side its own filter.  The order of the sides turns from round to
round.  A ratio is the median of the ratios of the single rounds, so what slows both sides down for a
while drops out.  What each side answered is checked, outside the time that is taken.
"""

from __future__ import annotations

import gc
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence, Sized
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

from benchmarks.bench import Bench
from benchmarks.meters import Cost, Meter
from benchmarks.pinging import Pinger
from benchmarks.placing import apart

Answers = Sequence[Any] | None


class Items(Sized, Iterable[str], Protocol):
    """The items of a round: a list, or something that makes them on the way."""


def nothing(*_: object) -> None:
    """Do nothing, where there is nothing to prepare or to check."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One way of doing a workload.

    `prepare` comes before each round and `check` after it; neither is timed.
    """

    name: str
    run: Callable[[Any], Answers]
    prepare: Callable[[Any], object] = nothing
    check: Callable[[Any, Answers], None] = nothing


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What is done, by which sides, and how often.

    `apart`: client and server have their own processors; `same`: sides whose answers must be equal.
    """

    name: str
    items: Callable[[int], Items]
    sides: Callable[[Bench], Iterable[Side]]
    rounds: int
    warm_up: int = 2
    pinged: int = 0  # rounds with another client's PINGs
    replicated: bool = False
    apart: bool = False
    same: tuple[str, ...] = ()


@dataclass
class Result:
    """What came out: for each side and quantity a figure a round."""

    workload: str
    sides: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def has(self, side: str, quantity: str) -> bool:
        """Return whether a quantity of a side was measured."""
        return bool(self.sides.get(side, {}).get(quantity))

    def median(self, side: str, quantity: str) -> float:
        """Return what is typical of a side."""
        return statistics.median(self.sides[side][quantity])

    def ratio(self, quantity: str, side: str, against: str) -> float:
        """Return the median of the ratios of two sides, round by round."""
        pairs = zip(self.sides[side][quantity], self.sides[against][quantity], strict=True)
        return statistics.median(mine / other for mine, other in pairs)


class Measuring:
    """A workload under way."""

    def __init__(self, workload: Workload, bench: Bench, meter: Meter) -> None:
        self._workload = workload
        self._meter = meter
        self._pids = bench.pids if workload.apart else None
        self._sides = list(workload.sides(bench))
        self._round = 0
        self._figures: dict[str, dict[str, list[float]]] = {
            side.name: defaultdict(list) for side in self._sides
        }

    @property
    def result(self) -> Result:
        """What was measured so far."""
        return Result(self._workload.name, {name: dict(found) for name, found in self._figures.items()})

    def warm_up(self) -> None:
        """Do rounds that do not count."""
        for _ in range(self._workload.warm_up):
            self._do(nothing)

    def time(self) -> None:
        """Do the rounds that are timed."""
        for _ in range(self._workload.rounds):
            self._do(self._note_cost)

    def ping(self, pinger: Pinger) -> None:
        """Do the rounds in which another client waits for its PINGs."""
        for _ in range(self._workload.pinged):
            self._do(self._note_pings(pinger), pinger)

    def replicate(self) -> None:
        """Do rounds with a replica attached."""
        for _ in range(min(3, max(1, self._workload.rounds // 3))):
            self._do(self._note_replicated)

    def _do(self, note: Callable[[Side, int, Cost], None], pinger: Pinger | None = None) -> None:
        items = self._workload.items(self._round)
        turn = self._round % len(self._sides)
        answers = {}
        for side in self._sides[turn:] + self._sides[:turn]:
            gc.collect()
            side.prepare(items)
            self._before = self._meter.replicated()
            self._meter.slowest()
            with pinger or nullcontext(), apart(self._pids) if self._pids else nullcontext():
                answered, cost = self._meter.of(side.run, items)
            note(side, len(items), cost)
            side.check(items, answered)
            answers[side.name] = answered
        first, *others = self._workload.same or ("",)
        for name in others:
            if answers[name] != answers[first]:
                raise AssertionError(f"{self._workload.name}: {name!r} answers unlike {first!r}")
        self._round += 1

    def _note_cost(self, side: Side, count: int, cost: Cost) -> None:
        figures = self._figures[side.name]
        figures["wall"].append(cost.wall / count)
        figures["cpu"].append(cost.cpu / count)
        figures["client"].append(cost.client / count)
        figures["sent"].append(cost.sent / count)

    def _note_pings(self, pinger: Pinger) -> Callable[[Side, int, Cost], None]:
        def note(side: Side, _: int, __: Cost) -> None:
            self._figures[side.name]["ping"].append(pinger.times["worst"])
            self._figures[side.name]["ping_p99"].append(pinger.times["p99"])
            self._figures[side.name]["slowest"].append(self._meter.slowest())

        return note

    def _note_replicated(self, side: Side, count: int, _: Cost) -> None:
        self._figures[side.name]["replicated"].append((self._meter.replicated() - self._before) / count)
