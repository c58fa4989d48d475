"""A series of new items, each added by one worker: whatever is lost or refused, each is new."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import redis
import redis.asyncio

import bloomredis.asyncio
from bloomredis import BloomFilter
from tests.history.calls import Ask, Work
from tests.history.faults import Faults, Rates
from tests.history.plans import SIZE, Plan
from tests.history.seats import Seat
from tests.history.working import Worker
from tests.rules.answers import History, violations
from tests.rules.calls import Call
from tests.support.proxy import proxied
from tests.support.retries import async_retrying, retrying
from tests.support.servers import Server

LOST: Final = Rates(calm=0.0, faults=0.02, refused=1.0, only=("lost",))
"""One reply in fifty is lost, and the server refuses the call's retry."""

BATCH: Final = 100
TASKS: Final = 32


class SeriesWorker(Worker):
    """Adds its own items, one by one or in batches, with tokens or without."""

    def __init__(self, name: str, plan: Plan, items: Sequence[str], batch: int = 1) -> None:
        super().__init__(name, plan)
        self._items = items
        self._batch = batch

    def work(self) -> Work:
        """Add all items, each until it has an answer."""
        for start in range(0, len(self._items), self._batch):
            items = self._items[start : start + self._batch]
            yield from self.made(Ask("add_many" if self._batch > 1 else "add", items))
            while self.owed:
                yield from self.ask_again()

    def step(self) -> Work:
        """Do nothing: a series has no time limit."""
        yield from ()


def _in_a_thread(plan: Plan, items: Sequence[str], batch: int) -> list[Call]:
    with redis.Redis(host="127.0.0.1", port=plan.port, **retrying(1)) as client:
        seat = Seat("one", "object", BloomFilter(client, plan.seed, **SIZE))
        seat.run(SeriesWorker("one", plan, items, batch).work())
    return seat.records


def _one_by_one(plan: Plan, items: Sequence[str]) -> list[Call]:
    return _in_a_thread(plan, items, 1)


def _in_batches(plan: Plan, items: Sequence[str]) -> list[Call]:
    return _in_a_thread(plan, items, BATCH)


def _in_tasks(plan: Plan, items: Sequence[str]) -> list[Call]:
    async def main() -> list[Call]:
        async with redis.asyncio.Redis(host="127.0.0.1", port=plan.port, **async_retrying(1)) as client:
            shared: Any = bloomredis.asyncio.BloomFilter(client, plan.seed, **SIZE)
            seats = [Seat(f"task {i}", "object", shared) for i in range(TASKS)]
            shares = [SeriesWorker(f"task {i}", plan, items[i::TASKS]) for i in range(TASKS)]
            pairs = zip(seats, shares, strict=True)
            await asyncio.gather(*(seat.run_task(worker.work()) for seat, worker in pairs))
        return [call for seat in seats for call in seat.records]

    return asyncio.run(main())


WAYS: Final[dict[str, Callable[[Plan, Sequence[str]], list[Call]]]] = {
    "one by one": _one_by_one,
    "in batches": _in_batches,
    f"from {TASKS} tasks": _in_tasks,
}


def series(server: Server, seed: int, count: int, way: str, rates: Rates = LOST) -> tuple[list[str], str]:
    """Add that many new items; return the violations, and the figures as text."""
    items = [f"{i}" for i in range(count)]
    faults = Faults(f"{seed} {way}", rates)
    start = time.monotonic()
    with server.client() as client, proxied(server.socket, faults) as proxy:
        client.flushall()
        plan = Plan(f"{seed} {way}", "items", proxy.port, start, start)
        calls = WAYS[way](plan, items)
        present = dict(zip(items, BloomFilter.open(client, plan.seed).contains_many(items), strict=True))
    wrong = list(violations(History(plan.terms, calls, present=present)))
    new = sum(call.answer is True for call in calls)
    met = f"{faults.met['lost']} replies lost, {faults.met['re-sent call refused']} re-sent calls refused"
    seconds = time.monotonic() - start
    figures = f"{way}: {count - new} wrong of {count} (--seed {seed}; {met}; {seconds:.1f} s)"
    return wrong + [f"{figures}: not all are new"] * (new != count), figures
