"""Storms: rounds on a cluster whose nodes freeze, die, hand over their slots and lose them to others.

Clients have pools of two or ten connections, or redis-py's default. The filter counts a write once a
replica has it, so the nodes lose nothing. In half of the rounds of filters of one key, the filter is evicted
from time to time, on its primary and replica, and an operator acknowledges the loss.
"""

from __future__ import annotations

import itertools
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from tests.history.disturbing import acknowledged
from tests.history.plans import Kind, Plan
from tests.history.rounds import MOST_TOLD, Crew, Found, finished, made
from tests.rules.calls import Call
from tests.rules.generations import Loss
from tests.rules.judging import all_violations
from tests.support.background import started
from tests.support.clusters import Cluster, Node, wait_until

KINDS: Final[tuple[Kind, ...]] = ("items", "claims", "counting", "sharded", "scaling")
LOSING: Final[tuple[Kind, ...]] = ("items", "claims")
POOLS: Final = (2, 10, None)
FREEZES: Final = (0.05, 0.2, 0.35)
"""Seconds; a client waits for a reply for less than some of them."""
BATCH: Final = 100
WIDTH: Final = 200
OUTAGE: Final = 60.0
ROUND_SECONDS: Final = 15.0


class Storm:
    """The faults of a cluster's nodes during one round.

    :ivar met: how often each happened.
    :ivar losses: when the filter was evicted.
    :ivar calls: the acknowledgements of an operator.
    """

    def __init__(self, nodes: Cluster, plan: Plan) -> None:
        self.met: Counter[str] = Counter()
        self.losses: list[Loss] = []
        self.calls: list[Call] = []
        self._nodes, self._plan, self._dice = nodes, plan, plan.dice("storm")
        self._deaths: list[Callable[[], object]] = [self.kill, self.fail_over]
        self._dice.shuffle(self._deaths)

    def run(self, over: threading.Event) -> None:
        """Freeze nodes and move slots until the round ends; kill a primary and replace one in between.

        However short the round is, it has a freeze, a move and a death, and a loss if that is planned.
        """
        losing = [getattr(self, name) for name in self._plan.disturbances]
        begin: list[Callable[[], object]] = [*losing, self.freeze, self.move]
        last = self._plan.end - self._plan.start
        due = [self._plan.start + last * self._dice.uniform(*span) for span in ((0.1, 0.3), (0.5, 0.8))]
        while not over.wait(self._dice.uniform(0.0, 0.1)) or begin or len(due) > 1:
            if begin:
                act = begin.pop()
            elif due and (over.is_set() or time.monotonic() > due[0]):
                del due[0]
                act = self._deaths.pop()
            else:
                act = self._dice.choice((self.freeze, self.freeze, self.move, *losing))
            act()
            self.met[act.__name__] += 1

    def _key(self) -> str:
        """Return a key of the filter."""
        primaries = self._nodes.primaries()
        keys = [key for node in primaries for key in _keys(node, self._plan.seed)]
        return self._dice.choice(sorted(keys))

    def _owner(self, key: str) -> Node:
        """Return the primary that serves a key, once the nodes say which."""
        found: list[Node] = []

        def known() -> bool:
            with suppress(AssertionError):
                found.append(self._nodes.primary_of(key))
            return bool(found)

        wait_until("a primary serves the key", known)
        return found[0]

    def freeze(self) -> None:
        """Stop a primary of the filter, and let it continue."""
        process: Any = self._owner(self._key()).server.process
        process.send_signal(signal.SIGSTOP)
        try:
            time.sleep(self._dice.choice(FREEZES))
        finally:
            process.send_signal(signal.SIGCONT)

    def move(self) -> None:
        """Migrate a slot of the filter to another primary."""
        key = self._key()
        owner = self._owner(key)
        others = [node for node in self._nodes.primaries() if node is not owner]
        self._nodes.migrate(key, self._dice.choice(others))

    def kill(self) -> None:
        """Kill a primary of the filter; its replica takes over, and the node becomes a replica of it."""
        owner = self._owner(self._key())
        self._nodes.kill(owner)
        self._nodes.bring_back(owner)

    def acknowledge(self) -> None:
        """Evict the filter on its primary and its replicas, and let an operator acknowledge the loss."""
        self._nodes.wait_until_ok()
        owner = self._owner(self._plan.seed)
        start = time.monotonic()
        owner.ask("UNLINK", self._plan.seed)
        self._nodes.wait_until_replicated(owner)
        self.losses.append(Loss(start, time.monotonic(), "evicted"))
        with self._nodes.client() as client:
            self.calls.append(acknowledged(made(client, self._plan)))
        self._nodes.wait_until_replicated(owner)  # a replica that takes over has the mark

    def fail_over(self) -> None:
        """Let a replica take over from a primary of the filter."""
        self._nodes.fail_over(self._owner(self._key()))


def _keys(node: Node, name: str) -> Iterator[str]:
    with node.client() as client:
        for key in client.scan_iter(count=1000):
            text = bytes(key).decode()
            if text == name or (name in text and ":receipt:" not in text and ":claim" not in text):
                yield text


@contextmanager
def storming(nodes: Cluster, plan: Plan) -> Iterator[Storm]:
    """Let the nodes fail during the block, and wait until the cluster is whole again."""
    over = threading.Event()
    storm = Storm(nodes, plan)
    working = started(lambda: storm.run(over))
    try:
        yield storm
    finally:
        over.set()
        working.result(OUTAGE)


class Storms:
    """Rounds on one cluster: each kind of filter with each limit of the pools.

    :param retry_safe: as the filters get it; without safe retries, the faults mislead callers.
    """

    def __init__(
        self,
        nodes: Cluster,
        workers: Crew,
        seed: int,
        kinds: Sequence[Kind] = KINDS,
        *,
        retry_safe: bool = True,
    ) -> None:
        self.found = Found()
        self._nodes, self._workers, self._seed, self._kinds = nodes, workers, seed, kinds
        self._retry_safe = retry_safe

    def check(self, answers: int, *, first: int = 0, lasting: float = ROUND_SECONDS) -> Found:
        """Run rounds of that many seconds until that many calls have answers or a rule is broken."""
        begun = time.monotonic()
        for number in itertools.count(first):
            self.found.wrong = [f"--round {number}: {each}" for each in self._round(number, lasting)]
            self.found.rounds += 1
            self.found.seconds = time.monotonic() - begun
            if self.found.wrong or self.found.calls["answered"] >= answers:
                break
        return self.found

    def _round(self, number: int, lasting: float) -> list[str]:
        """Run one round; return its violations."""
        with self._nodes.client() as client:
            client.flushall(target_nodes="primaries")
            made(client, self._plan(number, lasting)).create()
        for node in self._nodes.primaries():
            self._nodes.wait_until_replicated(node)
        what = self._plan(number, lasting)
        with storming(self._nodes, what) as storm:
            calls = self._workers.run(what)
        self._nodes.wait_until_ok()
        with self._nodes.client() as client:
            count = made(client, what).info().count
            history = finished(client, what, [*calls, *storm.calls], storm.losses)
        self.found.count(calls, Counter(), storm.met)
        wrong = list(itertools.islice(all_violations(history), MOST_TOLD))
        present = sum(history.present.values())
        if what.kind != "counting" and count != present:
            wrong.append(f"info() counts {count} items, and {present} are in the filter")
        return wrong

    def _plan(self, number: int, lasting: float) -> Plan:
        kind = self._kinds[number % len(self._kinds)]
        ports = [node.port for node in self._nodes.nodes]
        dice = random.Random(f"{self._seed} {number}")
        dice.shuffle(ports)
        start = time.monotonic()
        return Plan(
            seed=f"{self._seed}-{number}",
            kind=kind,
            port=0,
            start=start,
            end=start + lasting,
            claims=kind == "claims",
            nodes=ports,
            disturbances=["acknowledge"] if kind in LOSING and dice.random() < 0.5 else [],
            connections=POOLS[number // len(self._kinds) % len(POOLS)],
            most=BATCH,
            width=WIDTH,
            retry_safe=self._retry_safe,
        )
