"""A process of workers: threads, tasks, one that passes tokens on, and forks."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import redis
import redis.asyncio
from redis.cluster import ClusterNode

import bloomredis
import bloomredis.asyncio
from tests.history.claiming import ClaimWorker
from tests.history.plans import Plan
from tests.history.seats import Seat
from tests.history.working import PATIENCE, CountingWorker, Hand, ItemWorker, Worker
from tests.rules.calls import Call
from tests.support import background
from tests.support.background import Child, started
from tests.support.holes import open_holes
from tests.support.inside import lock_of
from tests.support.retries import async_retrying, retrying

THREADS: Final = 3
TASKS: Final = 6
CHILDREN: Final = 2
CHILD_SECONDS: Final = 0.12
CLUSTER_TIMEOUT: Final = 0.15
"""Seconds that a client of a cluster waits for a reply."""


_pools: Final[list[Any]] = []
"""Connection pools of forking threads. A child replaces their locks before it uses them."""


_held: Final[list[Any]] = []


def _before_fork() -> None:
    for lock in map(lock_of, _pools):
        lock.acquire()
        _held.append(lock)


def _after_fork() -> None:
    while _held:
        _held.pop().release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


@dataclass(frozen=True)
class Links:
    """Connections between processes: an inbox of tokens for each, and a barrier after which none is sent."""

    inboxes: Sequence[Any]
    barrier: Any


def cluster_options(plan: Plan, node: Any) -> dict[str, Any]:
    """Return the options of a cluster client, whose timeout is shorter than some freezes of a node."""
    limit = {} if plan.connections is None else {"max_connections": plan.connections}
    nodes = [node("127.0.0.1", port) for port in plan.nodes]
    return {"startup_nodes": nodes, "socket_timeout": CLUSTER_TIMEOUT, **limit}


def serve(pipe: Any, number: int, links: Links, holes: Sequence[str]) -> None:
    """Run the rounds whose plans a pipe delivers, and send back the records."""
    logging.getLogger("bloomredis").setLevel(logging.ERROR)  # losses are planned
    "imported".encode("idna")  # every socket imports this codec, under a lock that a fork could copy locked
    open_holes(holes)
    for plan in iter(pipe.recv, None):
        try:
            pipe.send(Process(plan, f"p{number}", links, number).run())
        except Exception as error:
            links.barrier.abort()
            faulthandler.dump_traceback(all_threads=True)
            pipe.send(error)


class Process:
    """The workers of one process in one round."""

    def __init__(self, plan: Plan, name: str, links: Links, number: int) -> None:
        self._plan = plan
        self._name = name
        self._links = links
        self._number = number
        self._dice = plan.dice(name)
        self._records: list[Call] = []

    def run(self) -> list[Call]:
        """Run all workers, and return their records."""
        with ExitStack() as stack:
            stack.callback(_pools.clear)
            shared = self._filter(self._client(stack))
            work = [
                *(self._thread(f"threads/{i}", shared) for i in range(THREADS)),
                started(lambda: self._alone(self._filter(self._client(stack)))),
                started(lambda: asyncio.run(self._tasks())),
            ]
            if not self._plan.nodes:
                work.append(started(lambda: self._fork(shared)))
            for each in work:
                self._records += _result(each, self._plan)
        return self._records

    def _client(self, stack: ExitStack) -> Any:
        if self._plan.nodes:
            return stack.enter_context(self._connected())
        retries = retrying(self._dice.choice((0, 1, 3)))
        client = redis.Redis(host="127.0.0.1", port=self._plan.port, **retries)
        stack.callback(client.close)
        _pools.append(client.connection_pool)
        return client

    def _connected(self) -> Any:
        """Return a cluster client, as soon as the node that it asks for the slots is not frozen."""
        while True:
            with suppress(redis.ConnectionError, redis.TimeoutError, redis.exceptions.RedisClusterException):
                return redis.RedisCluster(**cluster_options(self._plan, ClusterNode))

    def _filter(self, client: Any) -> Any:
        kind: Any = getattr(bloomredis, self._plan.made.called)
        return kind(client, self._plan.seed, **self._plan.options)

    def _worker(self, name: str, **options: Any) -> Worker:
        adds: type[Worker] = CountingWorker if self._plan.kind == "counting" else ItemWorker
        made = ClaimWorker if self._plan.claims else adds
        return made(f"{self._name}/{name}", self._plan, **options)

    def _thread(self, name: str, shared: Any) -> Future[list[Call]]:
        seat = Seat(f"{self._name}/{name}", f"{self._name}/threads", shared)
        return started(lambda: _worked(seat, self._worker(name)))

    def _alone(self, own: Any) -> list[Call]:
        """Work with a filter object of this thread only, and exchange tokens with other processes."""
        name = f"{self._name}/alone"
        seat = Seat(name, name, own)
        if self._plan.claims:  # whose errors carry no tokens
            return _worked(seat, self._worker("alone"))
        worker = self._worker("alone", hands=(self._hand, self._handed))
        seat.run(worker.work())
        self._links.barrier.wait(PATIENCE)
        seat.run(worker.settle())
        return seat.records

    def _hand(self, hand: Hand) -> None:
        inboxes = self._links.inboxes
        inboxes[(self._number + 1) % len(inboxes)].put(hand)

    def _handed(self) -> Iterator[Hand]:
        inbox = self._links.inboxes[self._number]
        while not inbox.empty():
            yield inbox.get()

    async def _tasks_client(self) -> Any:
        while self._plan.nodes:
            made = redis.asyncio.RedisCluster(
                **cluster_options(self._plan, redis.asyncio.cluster.ClusterNode)
            )
            with suppress(redis.ConnectionError, redis.TimeoutError, redis.exceptions.RedisClusterException):
                return await made.initialize()
        retries = async_retrying(self._dice.choice((0, 1, 3)))
        return redis.asyncio.Redis(host="127.0.0.1", port=self._plan.port, **retries)

    async def _tasks(self) -> list[Call]:
        """Work in tasks, some of whose calls are cancelled."""
        async with await self._tasks_client() as client:
            kind: Any = getattr(bloomredis.asyncio, self._plan.made.called)
            shared = kind(client, self._plan.seed, **self._plan.options)
            seats = [Seat(f"{self._name}/tasks/{i}", f"{self._name}/tasks", shared) for i in range(TASKS)]

            async def work(number: int, seat: Seat) -> None:
                worker = self._worker(f"tasks/{number}", hurries=number % 2 == 0)
                await seat.run_task(worker.work())
                await seat.run_task(worker.settle())

            await asyncio.gather(*(work(*each) for each in enumerate(seats)))
        return [call for seat in seats for call in seat.records]

    def _fork(self, shared: Any) -> list[Call]:
        """Fork children repeatedly, several at once; they use the filter of this process's threads."""
        records: list[Call] = []
        for number in range(1_000_000):
            if not self._plan.goes_on():
                break
            names = [f"fork{number}{letter}" for letter in "abcd"[:CHILDREN]]
            children = [Child(partial(self._child, name, shared)) for name in names]
            for child in children:
                records += child.result()
        return records

    def _child(self, name: str, shared: Any) -> list[Call]:
        """Work in threads of a child; its siblings make the same calls."""
        faulthandler.dump_traceback_later(background.PATIENCE / 2)  # before its alarm ends it
        self._plan = replace(self._plan, end=min(self._plan.end, time.monotonic() + CHILD_SECONDS))

        def work(number: int) -> list[Call]:
            seat = Seat(f"{self._name}/{name}/{number}", f"{self._name}/{name}", shared)
            return _worked(seat, self._worker(f"{name}/{number}", luck=f"{name[:-1]}/{number}"))

        working = [started(partial(work, number)) for number in range(THREADS)]
        return [call for each in working for call in _result(each, self._plan)]


def _worked(seat: Seat, worker: Worker) -> list[Call]:
    seat.run(worker.work())
    seat.run(worker.settle())
    return seat.records


def _result(work: Future[list[Call]], plan: Plan) -> list[Call]:
    """Return a worker's records; raise `TimeoutError` if it hangs."""
    return work.result(max(0.0, plan.end - time.monotonic()) + 2 * PATIENCE)
