"""Group commit for asyncio tasks: each waits for a future of its own."""

from __future__ import annotations

import asyncio
import os
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar, overload

from bloomredis.drivers.aio import drive, execute_step
from bloomredis.drivers.connections.clients import AsyncClient
from bloomredis.drivers.sharing.batch import Asked, Batch, Batcher, BatchOutcome, CallSharing, Own
from bloomredis.errors import OutcomeUnknownError
from bloomredis.protocol.steps import Call, Op, Reply

A = TypeVar("A")
T = TypeVar("T")

Waiting = asyncio.Future[Any]


def processors() -> int:
    """Return the number of processors that this process may use."""
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1


BATCHES: Final = 2
"""Batches under way at once: one in the server while the next is packed and the last handed out."""

FEWEST_ITEMS: Final = 32 if processors() > 1 else 64
"""Items worth a batch of their own while another is under way: each batch costs this process some 100 µs,
which the server may use where it has a processor of its own."""


class Tasks:
    """Sends the calls of one verb; those that find others under way share round trips.

    :param together: returns what makes all calls of a batch, given their items twice.
    :param run: runs that, or what makes a call alone, with the client.
    """

    def __init__(
        self,
        name: str,
        client: AsyncClient,
        together: Callable[[Any, Any], Op[list[Any]]],
        run: Callable[[AsyncClient, Any], Coroutine[Any, Any, Any]] = drive,
    ) -> None:
        self._name, self._client, self._together, self._run = name, client, together, run
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: set[Coroutine[Any, Any, object]] = set()  # the calls that have been sent
        self._answered: list[Batch[Waiting]] = []  # whose callers may be woken and not have run yet,
        self._left: list[Batch[Waiting]] = []  # and never will, since their loop was closed

    @overload
    def share(self, asked: Asked, alone: Callable[[A], Op[T]], argument: A) -> Awaitable[T]: ...
    @overload
    def share(self, asked: Own, alone: Callable[[Own], Call], argument: Own) -> Awaitable[Reply]: ...
    def share(self, asked: Asked, alone: Callable[[Any], object], argument: object) -> Awaitable[object]:
        """Send a call at once, as `alone(argument)`, if nobody is under way; else with the next batch.

        Await the answer.  A caller that is cancelled meanwhile calls `abandon` with what it has awaited;
        `wait` does both, for a coroutine more.
        """
        loop = get_running_loop()
        if loop is not self._loop:
            self._enter(loop)
        queue = self._queue
        if not self._is_scheduled:
            if not (queue.under_way or queue.asked):
                return self._go_alone(asked, self._run(self._client, alone(argument)))
            self._schedule()
        waiting: Waiting = asyncio.Future(loop=loop)
        queue.callers.append(waiting)
        queue.asked.append(asked)
        return waiting

    @overload
    async def wait(self, asked: Asked, alone: Callable[[A], Op[T]], argument: A) -> T: ...
    @overload
    async def wait(self, asked: Own, alone: Callable[[Own], Call], argument: Own) -> Reply: ...
    async def wait(self, asked: Asked, alone: Callable[[Any], Any], argument: object) -> object:
        """Send a call likewise; return its answer, which is saved for a retry if the caller has gone."""
        call = self.share(asked, alone, argument)
        try:
            return await call
        except (asyncio.CancelledError, GeneratorExit):
            self.abandon(call)
            raise

    def abandon(self, call: Awaitable[object]) -> None:
        """Save the answers of a call for which nobody waits any more, whether they are here or come later."""
        if not isinstance(call, asyncio.Future) or call.cancelled():
            return
        if call.done():
            for batch in (*self._left, *self._answered):
                batch.keep(call)
        elif not call.get_loop().is_closed():
            call.cancel()

    def is_under_way(self, item: str | bytes) -> bool:
        """Return whether a call with an item has been sent and not been answered."""
        return self._loop is not None and any(item in each for each in self._queue.under_way)

    def _enter(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not None and not self._loop.is_closed():
            raise RuntimeError(
                f"the filter {self._name!r} is in use in another event loop; "
                "make a client in this one and use filter.with_client(client)"
            )
        for left in [*self._open]:  # the items of a call that its loop has left are pending once it is closed
            with suppress(Exception):
                left.close()
        self._loop, self._open, self._left, self._answered = loop, set(), self._answered, []
        self._queue = Batcher[Waiting](asyncio.Future.done, BATCHES, FEWEST_ITEMS)
        self._is_scheduled = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def _go_alone(self, asked: Asked, call: Coroutine[Any, Any, object]) -> object:
        queue = self._queue
        own = queue.begin(asked)
        self._open.add(call)
        try:
            return await call
        finally:
            self._open.discard(call)
            queue.end(own)
            if queue.asked and queue is self._queue:  # else this loop was closed
                self._schedule()

    async def _run_batch(self, batch: Batch[Waiting]) -> None:
        answers: BatchOutcome = OutcomeUnknownError(
            "the task that sent this call with others was ended; "
            "a second call on the same object answers as this one would have"
        )
        queue, call = self._queue, self._run(self._client, self._together(batch.items, batch.items))
        self._open.add(call)
        try:
            answers = await call
        except Exception as error:
            answers = error
        finally:  # also where something else is raised
            self._open.discard(call)
            queue.end(batch.own)
            if not batch.callers[0].get_loop().is_closed():
                self._deliver(batch, answers)
                self._schedule()  # those who are woken now come back before the next departure

    def _deliver(self, batch: Batch[Waiting], answers: BatchOutcome) -> None:
        self._answered.append(batch)
        for caller, answer in batch.delivered(answers):
            try:
                if isinstance(answer, Exception):
                    caller.set_exception(answer)
                    caller.exception()  # or asyncio would log it where the caller has gone
                else:
                    caller.set_result(answer)
            except asyncio.InvalidStateError:  # it was cancelled
                batch.keep(caller)

    def _schedule(self) -> None:
        # The next batch is left to the end of the loop's turn, so that all tasks that are being woken up
        # now join it.
        loop = self._loop
        if loop and not (self._is_scheduled or len(self._queue.under_way) >= BATCHES or loop.is_closed()):
            self._is_scheduled = True
            loop.call_soon(self._dispatch, len(self._answered))

    def _dispatch(self, answered: int) -> None:
        self._is_scheduled = False
        if self._queue.asked:
            del self._answered[:answered]  # their callers were woken before, and have run
        while batch := self._queue.depart():
            task = get_running_loop().create_task(self._run_batch(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


def sharing_calls(name: str, client: AsyncClient) -> CallSharing[Tasks, Awaitable[object]]:
    """Return what shares the calls of scripts among tasks."""

    def run(client: AsyncClient, made: Call | Op[list[Reply]]) -> Coroutine[Any, Any, object]:
        return execute_step(client, made) if isinstance(made, Call) else drive(client, made)

    return CallSharing(lambda: Tasks(name, client, Own.together, run), Tasks.wait, execute_step)
