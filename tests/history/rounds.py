"""Rounds: worker processes call filters over a proxy with faults, and what they recorded is checked."""

from __future__ import annotations

import itertools
import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import redis

from bloomredis import BloomFilter, CountingBloomFilter, FilterNotFoundError
from tests.history.calls import Call
from tests.history.claim_rules import claim_violations
from tests.history.faults import Faults, Rates
from tests.history.plans import KINDS, Kind, Plan, plan
from tests.history.process import Links, serve
from tests.history.rules import History, violations
from tests.support.background import started
from tests.support.proxy import proxied
from tests.support.servers import Server

PROCESSES: Final = 2
ROUND_SECONDS: Final = 1.5
MOST_TOLD: Final = 5
FEWEST_ROUNDS: Final = 3
PATIENCE: Final = 90.0
FULL: Final = 15
"""A counter that has got there stays there."""
_SPAWN: Final = multiprocessing.get_context("spawn")


@dataclass
class Found:
    """What a series of rounds came to.

    :ivar wrong: what is wrong with the first round that broke a rule.
    """

    rounds: int = 0
    seconds: float = 0.0
    calls: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def count(self, calls: Sequence[Call], met: Counter[str], losses: Sequence[object]) -> None:
        """Count what happened in a round."""
        self.calls.update(call.state for call in calls)
        self.faults.update(met)
        self.faults["filter lost"] += len(losses)

    def __str__(self) -> str:
        ends = ", ".join(f"{number} {state}" for state, number in self.calls.most_common())
        met = ", ".join(f"{number} {name}" for name, number in self.faults.most_common())
        return f"{self.rounds} rounds in {self.seconds:.1f} s; calls: {ends}; faults: {met}"


class Crew:
    """The worker processes, which outlive a round."""

    def __init__(self, holes: Sequence[str]) -> None:
        links = Links([_SPAWN.SimpleQueue() for _ in range(PROCESSES)], _SPAWN.Barrier(PROCESSES))
        self._links = links  # whose semaphores must be there when a process starts
        pipes = [_SPAWN.Pipe() for _ in range(PROCESSES)]
        self._pipes: list[Any] = [ours for ours, _ in pipes]
        self._processes = [
            _SPAWN.Process(target=serve, args=(theirs, number, links, holes), daemon=True)
            for number, (_, theirs) in enumerate(pipes)
        ]
        for process in self._processes:
            process.start()

    def run(self, what: Plan) -> list[Call]:
        """Let all processes work on a round; return what they recorded."""
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
def crew(holes: Sequence[str] = ()) -> Iterator[Crew]:
    """Start the worker processes."""
    made = Crew(holes)
    try:
        yield made
    finally:
        made.close()


class Rounds:
    """Rounds on one server.

    :param kinds: of rounds; others are left out.
    """

    def __init__(
        self,
        server: Server,
        workers: Crew,
        seed: int,
        *,
        kinds: Sequence[Kind] = KINDS,
        rates: Rates | None = None,
    ) -> None:
        self.found = Found()
        self._server = server
        self._workers = workers
        self._seed = seed
        self._kinds = kinds
        self._rates = rates or Rates()

    def check(self, seconds: float, *, first: int = 0) -> Found:
        """Run rounds until the time is over or a rule is broken."""
        begun, lasting = time.monotonic(), min(ROUND_SECONDS, seconds / FEWEST_ROUNDS)
        for number in itertools.count(first):
            if plan(self._seed, number, 0, 0.0).kind not in self._kinds:
                continue
            self.found.wrong = [f"--round {number}: {each}" for each in self._round(number, lasting)]
            self.found.rounds += 1
            self.found.seconds = time.monotonic() - begun
            if self.found.wrong or self.found.seconds >= seconds:
                break
        return self.found

    def _round(self, number: int, lasting: float) -> list[str]:
        """Run one round; return what is wrong with it."""
        faults = Faults(f"{self._seed} {number}", self._rates)
        with self._server.client() as client, proxied(self._server.socket, faults) as proxy:
            client.flushall()
            what = plan(self._seed, number, proxy.port, lasting)
            with _disturbed(self._server, what) as losses:
                calls = self._workers.run(what)
            history = _history(client, what, calls, losses)
        self.found.count(calls, faults.met, losses)
        rules = claim_violations if what.kind == "claims" else violations
        return list(itertools.islice(rules(history), MOST_TOLD))


@contextmanager
def _disturbed(server: Server, what: Plan) -> Iterator[list[tuple[float, float]]]:
    """Run SCRIPT FLUSH again and again, and lose the filter if that is planned; yield when it was lost."""
    over, losses, dice = threading.Event(), list[tuple[float, float]](), what.dice("disturbances")

    def disturb() -> None:
        with server.client() as client:
            own = BloomFilter(client, what.seed, **{**what.options, "on_lost": "recreate"})
            while not over.wait(dice.uniform(0.005, 0.1)):
                client.script_flush()
                if what.losses and what.goes_on() and dice.random() < 0.2:
                    start = time.monotonic()
                    dice.choice((client.flushall, own.clear, lambda: client.unlink(what.seed)))()
                    losses.append((start, time.monotonic()))

    disturbing = started(disturb)
    try:
        yield losses
    finally:
        over.set()
        disturbing.result(10)


def _history(
    client: redis.Redis, what: Plan, calls: list[Call], losses: list[tuple[float, float]]
) -> History:
    """Ask the server without faults what is in the filter."""
    items = sorted({call.item for call in calls if call.item})
    kind: Any = CountingBloomFilter if what.kind == "counting" else BloomFilter
    try:
        f = kind.open(client, what.seed)
    except FilterNotFoundError:
        return History(what, calls, losses)
    present = dict(zip(items, f.contains_many(items), strict=True))
    counts: dict[str, int] = {}
    if what.kind == "counting":
        counts = {
            item: next(n for n in range(FULL + 1) if n == FULL or not f.remove(item))
            for item in items
            if present[item]
        }
    return History(what, calls, losses, present, counts)
