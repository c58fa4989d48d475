"""Workers in several processes add the same items to a cluster that reshards and loses a primary.

A function makes their filter, so any class of filters can be tested.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import redis
import redis.asyncio

import bloomredis
import bloomredis.asyncio
from bloomredis import BatchInterruptedError, ConnectionFailedError, OutcomeUnknownError, ServerRefusedError
from tests.support.clusters import Cluster, Node, wait_until
from tests.support.racing import PROCESSES

Make = Callable[[Any, Any], Any]
"""A maker of a worker's filter, given `bloomredis` or `bloomredis.asyncio`, and a client."""

TRANSIENT = frozenset(("CLUSTERDOWN", "LOADING", "TRYAGAIN"))
"""Errors of a cluster that pass after a while."""

TASKS = 8
WAYS = ("one_by_one", "in_batches", "in_tasks", "one_by_one")
"""The worker's way of adding in each process."""


@dataclass
class Told:
    """The answers and errors of one worker."""

    way: str
    new: list[int] = field(default_factory=list)  # numbers of the new items
    answered: int = 0
    errors: Counter[str] = field(default_factory=Counter)

    def answer(self, number: int, new: bool) -> None:  # noqa: FBT001 - an answer
        self.answered += 1
        if new:
            self.new.append(number)
        if self.answered % 50 == 0:
            with _progress.get_lock():
                _progress.value += 50
            while _progress.value > _limit.value:
                time.sleep(0.005)

    def met(self, error: BaseException | None) -> str | None:
        """Return the token for a retry; raise an error that nothing here explains."""
        assert error is not None
        self.errors[type(error).__name__] += 1
        if isinstance(error, OutcomeUnknownError):
            return error.token
        if isinstance(
            error,
            ConnectionFailedError
            | redis.ConnectionError
            | redis.TimeoutError
            | redis.exceptions.RedisClusterException,
        ):
            return None  # nothing is pending
        if isinstance(error, ServerRefusedError) and error.word in TRANSIENT:
            return None
        raise error


CONNECTING = 120.0
"""Seconds for every worker to get a client."""

_progress: Any = None  # in worker processes: the answers so far of all workers
_limit: Any = None  # answers allowed before the next disturbance begins
_connected: Any = None  # a barrier: a client needs the node that will be killed to start


def _begin(progress: Any, limit: Any, connected: Any) -> None:
    global _progress, _limit, _connected
    _progress, _limit, _connected = progress, limit, connected


def item_of(number: int) -> str:
    """Return an item."""
    return f"https://example.org/{number}"


def _work(make: Make, at: dict[str, Any], *, items: int, batch: int, seed: int, way: str) -> Told:
    order, told = list(range(items)), Told(way)
    random.Random(seed).shuffle(order)
    if way == "in_tasks":
        asyncio.run(_in_tasks(make, at, order, told))
    else:
        with redis.RedisCluster(**at) as client:
            _connected.wait(CONNECTING)
            f = make(bloomredis, client)
            if way == "one_by_one":
                _one_by_one(f, order, told)
            else:
                _in_batches(f, order, batch, told)
    return told


def _one_by_one(f: Any, order: Sequence[int], told: Told) -> None:
    for number in order:
        token = None
        while True:
            try:
                told.answer(number, f.add(item_of(number), token=token))
                break
            except Exception as error:
                token = told.met(error) or token


def _in_batches(f: Any, order: Sequence[int], batch: int, told: Told) -> None:
    for start in range(0, len(order), batch):
        numbers = iter(order[start : start + batch])
        rest: Sequence[str] = [item_of(number) for number in order[start : start + batch]]
        while rest:
            try:
                answers, rest = f.add_many(rest), ()
            except BatchInterruptedError as error:
                told.met(error.__cause__)
                answers, rest = error.results, error.rest
            except Exception as error:
                told.met(error)
                continue
            for number, new in zip(itertools.islice(numbers, len(answers)), answers, strict=True):
                told.answer(number, new)


async def _in_tasks(make: Make, at: dict[str, Any], order: Sequence[int], told: Told) -> None:
    async def work(numbers: Sequence[int]) -> None:
        for number in numbers:
            token = None
            while True:
                try:
                    told.answer(number, await f.add(item_of(number), token=token))
                    break
                except Exception as error:
                    token = told.met(error) or token

    async with redis.asyncio.RedisCluster(**at) as client:
        _connected.wait(CONNECTING)
        f = make(bloomredis.asyncio, client)
        await asyncio.gather(*(work(order[task::TASKS]) for task in range(TASKS)))


@dataclass(frozen=True)
class Report:
    """The outcome."""

    told: list[Told]
    misled: dict[int, int]  # by item: how many workers were told that it is new, if not one
    done: Counter[str]
    seconds: float

    def __str__(self) -> str:
        workers = [f"{told.way}: {told.answered} answers, {dict(told.errors)}" for told in self.told]
        return f"{self.seconds:.1f} s, {dict(self.done)}, {len(self.misled)} misled; " + "; ".join(workers)


def storm(
    nodes: Cluster,
    make: Make,
    *,
    items: int,
    keys: Sequence[str],
    batch: int = 5,
    kill_at: float = 0.1,
    fail_over_at: float = 0.5,
    ways: Sequence[str] = WAYS,
) -> Report:
    """Let four processes add all items while the slots of `keys` move to and fro and their owners change.

    When the share `kill_at` of the answers has been given, the primary that serves the first key is killed,
    and it is restarted when its replica has taken over. At `fail_over_at` its owner gets a manual failover.
    Workers wait for the next disturbance to begin, but not for its end.

    :param batch: items that one of the workers adds at a time; with few it does not end before the others.
    :param ways: how the worker in each process adds.
    """
    began, done = time.monotonic(), Counter[str]()
    progress, total = PROCESSES.Value("q", 0), items * len(ways)
    mischief: list[tuple[float, str, Callable[[Node], object]]] = [
        (fail_over_at, "failover", nodes.fail_over),
        (kill_at, "kill", partial(_kill, nodes)),
    ]
    mischief.sort(reverse=True)

    def limit() -> int:
        """Return the number of answers at which workers wait: slightly after the next disturbance."""
        return int((mischief[-1][0] + 0.1) * total) if mischief else total

    allowed = PROCESSES.Value("q", limit())
    connected = PROCESSES.Barrier(len(ways))
    with ProcessPoolExecutor(len(ways), PROCESSES, _begin, (progress, allowed, connected)) as pool:
        work = [
            pool.submit(_work, make, nodes.at, items=items, batch=batch, seed=seed, way=way)
            for seed, way in enumerate(ways)
        ]

        def goes_on(before: int) -> bool:
            return progress.value > min(before, allowed.value) or all(worker.done() for worker in work)

        slots = itertools.cycle(keys)
        try:
            while not all(worker.done() for worker in work):
                _raise_what_stopped(work)
                if mischief and progress.value >= mischief[-1][0] * total:
                    _, what, do = mischief.pop()
                    allowed.value = limit()
                    do(nodes.primary_of(keys[0]))
                    done[what] += 1
                before = progress.value
                key = next(slots)
                others = [node for node in nodes.primaries() if node is not nodes.primary_of(key)]
                nodes.migrate(key, random.choice(others))
                done["migration"] += 1
                wait_until("there are new answers", partial(goes_on, before))
        finally:
            allowed.value = total  # whatever stopped one worker, the others end
        told = [worker.result() for worker in work]
    news = Counter(number for each in told for number in each.new)
    misled = {number: news[number] for number in range(items) if news[number] != 1}
    return Report(told, misled, done, time.monotonic() - began)


def _kill(nodes: Cluster, owner: Node) -> None:
    nodes.kill(owner)
    nodes.bring_back(owner)


def _raise_what_stopped(work: Sequence[Future[Told]]) -> None:
    for worker in work:
        if worker.done():
            worker.result()
