"""Comparison of sides: in turns, in many short rounds, with the same items on the same server.

Each round has new items, and each side its own filter. The order of the sides rotates from round to round.
A ratio is the median of the ratios of single rounds, so a disturbance that slows both sides down for a
while cancels out. Answers are checked outside the measured time.
"""

from __future__ import annotations

import gc
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence, Sized
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

from benchmarks.runner.bench import Bench
from benchmarks.runner.counters import Cost, Counters
from benchmarks.runner.cpu_affinity import can_separate, separate_cpus
from benchmarks.runner.latency_probe import LatencyProbe

Answers = Sequence[Any] | None


class Items(Sized, Iterable[str], Protocol):
    """The items of a round: a list, or a generated sequence that is never in memory as a whole."""


def nothing(*_: object) -> None:
    """Do nothing: the default of `prepare` and `check`."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One implementation of a workload.

    `prepare` comes before each round and `check` after it; neither is timed. `pids`: the processes of its
    servers, if not the bench's.
    """

    name: str
    run: Callable[[Any], Answers]
    prepare: Callable[[Any], object] = nothing
    check: Callable[[Any, Answers], None] = nothing
    pids: Sequence[int] = ()


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A task, its sides, and the number of rounds.

    `separate_cpus`: client and server run on separate processors; `same`: sides that must give the same
    answers.
    """

    name: str
    items: Callable[[int], Items]
    sides: Callable[[Bench], Iterable[Side]]
    rounds: int
    warm_up: int = 2
    latency_rounds: int = 0  # rounds with a latency probe
    replicated: bool = False
    separate_cpus: bool = False
    same: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figure:
    """A figure of each round, and the conditions of its measurement.

    `pinned`: client and server had separate processors; None if the results do not say. `floor`: seconds of
    a PING over a bare socket in the same rounds.
    """

    rounds: Sequence[float]
    pinned: bool | None = None
    floor: float | None = None

    @property
    def median(self) -> float:
        """The median over the rounds."""
        return statistics.median(self.rounds)

    @property
    def quartiles(self) -> tuple[float, float] | None:
        """The lower and the upper quartile over the rounds; None with a single round."""
        if len(self.rounds) < 2:
            return None
        low, _, high = statistics.quantiles(self.rounds, n=4, method="inclusive")
        return low, high


@dataclass
class Result:
    """Figures by side and quantity, one for each round."""

    workload: str
    sides: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    pinned: bool | None = None

    def has(self, side: str, quantity: str) -> bool:
        """Return whether a quantity of a side was measured."""
        return bool(self.sides.get(side, {}).get(quantity))

    def median(self, side: str, quantity: str) -> float:
        """Return the median of a quantity of one side."""
        return statistics.median(self.sides[side][quantity])

    def figure(self, side: str, quantity: str, scale: float = 1) -> Figure:
        """Return a quantity of one side."""
        return self._figure(side, [each * scale for each in self.sides[side][quantity]])

    def ratio(self, quantity: str, side: str, against: str) -> Figure:
        """Return the ratio of two sides, round by round."""
        pairs = zip(self.sides[side][quantity], self.sides[against][quantity], strict=True)
        return self._figure(side, [figure / other for figure, other in pairs])

    def _figure(self, side: str, rounds: Sequence[float]) -> Figure:
        return Figure(rounds, self.pinned, self.median(side, "floor") if self.has(side, "floor") else None)


class Measurement:
    """A workload in progress."""

    def __init__(self, workload: Workload, bench: Bench, counters: Counters) -> None:
        self._workload = workload
        self._counters = counters
        self._bench = bench
        self._sides = list(workload.sides(bench))
        self._round = 0
        self._figures: dict[str, dict[str, list[float]]] = {
            side.name: defaultdict(list) for side in self._sides
        }

    @property
    def result(self) -> Result:
        """The figures so far."""
        figures = {name: dict(found) for name, found in self._figures.items()}
        return Result(self._workload.name, figures, self._workload.separate_cpus and can_separate())

    def warm_up(self) -> None:
        """Run rounds that are not counted."""
        for _ in range(self._workload.warm_up):
            self._do(nothing)

    def time(self) -> None:
        """Run the timed rounds."""
        for _ in range(self._workload.rounds):
            self._do(self._note_cost)

    def measure_latency(self, probe: LatencyProbe) -> None:
        """Run the rounds in which another client sends PINGs."""
        for _ in range(self._workload.latency_rounds):
            self._do(self._note_latency(probe), probe)

    def replicate(self) -> None:
        """Run rounds with a replica attached."""
        for _ in range(min(3, max(1, self._workload.rounds // 3))):
            self._do(self._note_replicated)

    def _do(self, note: Callable[[Side, int, Cost], None], probe: LatencyProbe | None = None) -> None:
        items = self._workload.items(self._round)
        turn = self._round % len(self._sides)
        answers = {}
        for side in self._sides[turn:] + self._sides[:turn]:
            gc.collect()
            side.prepare(items)
            self._before = self._counters.replicated()
            self._counters.slowest()
            with probe or nullcontext(), self._placed(side):
                answered, cost = self._counters.measure(side.run, items, side.pids)
            note(side, len(items), cost)
            side.check(items, answered)
            answers[side.name] = answered
        first, *others = self._workload.same or ("",)
        for name in others:
            if answers[name] != answers[first]:
                raise AssertionError(f"{self._workload.name}: {name!r} does not answer like {first!r}")
        self._round += 1

    def _placed(self, side: Side) -> AbstractContextManager[None]:
        return separate_cpus(side.pids or self._bench.pids) if self._workload.separate_cpus else nullcontext()

    def _note_cost(self, side: Side, count: int, cost: Cost) -> None:
        figures = self._figures[side.name]
        figures["wall"].append(cost.wall / count)
        figures["cpu"].append(cost.cpu / count)
        figures["client"].append(cost.client / count)
        figures["floor"].append(cost.floor)
        if side.pids:
            figures["busiest"].append(cost.busiest / count)
        else:
            figures["sent"].append(cost.sent / count)

    def _note_latency(self, probe: LatencyProbe) -> Callable[[Side, int, Cost], None]:
        def note(side: Side, _: int, __: Cost) -> None:
            self._figures[side.name]["ping"].append(probe.times["worst"])
            self._figures[side.name]["ping_p99"].append(probe.times["p99"])
            self._figures[side.name]["slowest"].append(self._counters.slowest())

        return note

    def _note_replicated(self, side: Side, count: int, _: Cost) -> None:
        self._figures[side.name]["replicated"].append((self._counters.replicated() - self._before) / count)
