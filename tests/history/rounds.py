"""Rounds: worker processes call filters over a proxy with faults, and their records are checked."""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import redis

import bloomredis
from tests.history import crashing
from tests.history.crashing import Crash
from tests.history.disturbing import disturbed
from tests.history.faults import Faults, Rates
from tests.history.plans import KINDS, LATEST_COPY, Kind, Plan, plan
from tests.history.process import Links, serve
from tests.rules.answers import History
from tests.rules.calls import Call
from tests.rules.generations import Loss
from tests.rules.judging import all_violations
from tests.support.proxy import proxied
from tests.support.servers import Server

PROCESSES: Final = 2
ROUND_SECONDS: Final = 1.5
MOST_TOLD: Final = 5
PATIENCE: Final = 90.0
FULL: Final = 15
"""A counter at this value stays there."""
_SPAWN: Final = multiprocessing.get_context("spawn")


@dataclass
class Found:
    """The results of a series of rounds.

    :ivar wrong: the violations of the first round that broke a rule.
    """

    rounds: int = 0
    seconds: float = 0.0
    calls: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    disturbances: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def count(self, calls: Sequence[Call], faults: Counter[str], met: Counter[str]) -> None:
        """Count the events of a round."""
        self.calls.update(call.state for call in calls)
        self.disturbances.update(met)
        self.faults.update(faults)

    def __str__(self) -> str:
        counted = {"calls": self.calls, "faults": self.faults, "disturbances": self.disturbances}
        told = [
            f"{what}: " + ", ".join(f"{number} {name}" for name, number in counts.most_common())
            for what, counts in counted.items()
            if counts
        ]
        return "; ".join([f"{self.rounds} rounds in {self.seconds:.1f} s", *told])


class Crew:
    """The worker processes, which live through all rounds."""

    def __init__(self, holes: Sequence[str], processes: int) -> None:
        links = Links([_SPAWN.SimpleQueue() for _ in range(processes)], _SPAWN.Barrier(processes))
        self._links = links  # keeps their semaphores alive until a process starts
        pipes = [_SPAWN.Pipe() for _ in range(processes)]
        self._pipes: list[Any] = [ours for ours, _ in pipes]
        self._processes = [
            _SPAWN.Process(target=serve, args=(theirs, number, links, holes), daemon=True)
            for number, (_, theirs) in enumerate(pipes)
        ]
        self._crashes, theirs = _SPAWN.Pipe()
        self._processes.append(_SPAWN.Process(target=crashing.serve, args=(theirs, holes), daemon=True))
        for process in self._processes:
            process.start()

    def run(self, what: Plan) -> list[Call]:
        """Let all processes work on a round; return their records."""
        for pipe in self._pipes:
            pipe.send(what)
        calls = []
        for pipe in self._pipes:
            assert pipe.poll(PATIENCE), "a process of workers hangs"
            found = pipe.recv()
            if isinstance(found, Exception):
                raise found
            calls += found
        return calls

    def crash(self, crash: Crash) -> Sequence[tuple[float, float]]:
        """Kill a process during its work; return when it replaced the filter."""
        self._crashes.send(crash)
        assert self._crashes.poll(PATIENCE), "a process that should be killed hangs"
        spans: Sequence[tuple[float, float]] = self._crashes.recv()
        return spans

    def ready(self) -> None:
        """Wait until all processes have started."""
        past = time.monotonic()
        self.run(Plan("warm", "items", 1, past, past))

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.kill()
            process.join()


@contextmanager
def crew(holes: Sequence[str] = (), processes: int = PROCESSES) -> Iterator[Crew]:
    """Start the worker processes."""
    made = Crew(holes, processes)
    try:
        yield made
    finally:
        made.close()


class Rounds:
    """Rounds on one server.

    :param kinds: the kinds of rounds to run.
    :param without: faults of connections, disturbances, and values of `on_lost` to leave out.
    """

    def __init__(
        self,
        server: Server,
        workers: Crew,
        seed: int,
        *,
        kinds: Sequence[Kind] = KINDS,
        without: Collection[str] = (),
    ) -> None:
        self.found = Found()
        self._server = server
        self._workers = workers
        self._seed = seed
        self._kinds = kinds
        self._without = without
        self._rates = Rates().without(without)

    def check(self, answers: int, *, first: int = 0, lasting: float = ROUND_SECONDS) -> Found:
        """Run rounds of that many seconds until that many calls have answers or a rule is broken."""
        begun = time.monotonic()
        for number in itertools.count(first):
            if self._plan(number, 0, 0.0).kind not in self._kinds:
                continue
            self.found.wrong = [f"--round {number}: {each}" for each in self._round(number, lasting)]
            self.found.rounds += 1
            self.found.seconds = time.monotonic() - begun
            if self.found.wrong or self.found.calls["answered"] >= answers:
                break
        return self.found

    def _plan(self, number: int, port: int, lasting: float) -> Plan:
        return plan(self._seed, number, port, lasting, self._without)

    def _round(self, number: int, lasting: float) -> list[str]:
        """Run one round; return its violations."""
        faults = Faults(f"{self._seed} {number}", self._rates)
        with proxied(self._server.socket, faults) as proxy, self._server.client() as client:
            what = self._plan(number, proxy.port, lasting)
            client.flushall()
            with disturbed(self._server, what, self._workers.crash, faults) as disturber:
                calls = self._workers.run(what)
            losses = [*disturber.losses, *_of_workers(calls)]
            history = finished(client, what, [*calls, *disturber.calls], losses)
        self.found.count(calls, faults.met, disturber.met)
        return list(itertools.islice(all_violations(history), MOST_TOLD))


def _of_workers(calls: Sequence[Call]) -> list[Loss]:
    """Return when workers cleared the filter; each clear may have found no filter, or had a late reply."""
    return [
        Loss(call.start, call.end + (0.0 if call.state == "answered" else LATEST_COPY), "clear()", sure=False)
        for call in calls
        if call.verb == "clear"
    ]


def made(client: Any, what: Plan, **options: Any) -> Any:
    """Return a round's filter for its preparation and its end, whose calls wait for no replica."""
    kind: Any = getattr(bloomredis, what.made.called)
    return kind(client, what.seed, **{**what.options, "min_replicas": 0, **options})


def finished(client: redis.Redis, what: Plan, calls: list[Call], losses: Sequence[Loss]) -> History:
    """Read the filter's items from the server without faults, and delete the filter."""
    items = sorted({call.item for call in calls if call.item})
    f = made(client, what, on_lost="recreate")
    f.create()  # which finds out that the record was lost
    start = time.monotonic()
    present = dict(zip(items, f.contains_many(items), strict=True))
    end = time.monotonic()
    if what.kind == "rotating":
        calls += [
            Call(f"end#{item}", "end", "contains", item, start, end=end, state="answered", answer=there)
            for item, there in present.items()
        ]
    counts: dict[str, int] = {}
    if what.kind == "counting":
        counts = {
            item: next(n for n in range(FULL + 1) if n == FULL or not f.remove(item))
            for item in items
            if present[item]
        }
    f.delete()
    return History(what.terms, calls, losses, present, counts, _left(client, what, losses))


def _left(client: redis.Redis, what: Plan, losses: Sequence[Loss]) -> list[str]:
    """Return the keys that never expire or hold items, except layers whose record was lost."""
    if what.kind in ("scaling", "rotating") and any("record" in loss.what for loss in losses):
        return []
    keys: Iterable[bytes] = client.scan_iter(count=1000)
    return [key.decode() for key in keys if client.pttl(key) == -1 or b":layer:" in key]
