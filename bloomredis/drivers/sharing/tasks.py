"""Group commit for asyncio tasks: each task awaits its own future."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from typing import Any, TypeVar

from bloomredis.drivers.aio import running_loop
from bloomredis.drivers.aio_running import drive
from bloomredis.drivers.connections.aio_direct import AsyncTransport
from bloomredis.drivers.sharing.batch import (
    BATCHES,
    Batch,
    Batcher,
    BatchOutcome,
    SharedRequest,
    Waiting,
)
from bloomredis.errors import OutcomeUnknownError
from bloomredis.operations.items.outcomes import ON_THE_SAME_OBJECT
from bloomredis.protocol.gather import outcome_of, told_mark
from bloomredis.protocol.metering import of_task
from bloomredis.protocol.steps import Op

A = TypeVar("A")
T = TypeVar("T")


class Tasks:
    """The sender of a filter's adds, tests or requests: those that wait for others share a round trip.

    :param together: returns the operation for all items, or all requests, of a batch.
    """

    def __init__(
        self, name: str, client: AsyncTransport, together: Callable[[list[Any]], Op[list[Any]]]
    ) -> None:
        self._name, self._client, self._together, self._run = name, client, together, drive
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: set[Coroutine[Any, Any, object]] = set()  # calls in flight alone
        self._tasks: dict[asyncio.Task[BatchOutcome], Batch] = {}  # of the batches in flight
        self._contexts: dict[Waiting, Context] = {}  # of the waiting calls that are observed
        self._answered: list[Batch] = []  # batches whose woken callers may not have run yet
        self._left: list[Batch] = []  # the same for a loop that was closed: they never will

    def share(self, asked: SharedRequest, alone: Callable[[A], Op[T]], argument: A) -> Awaitable[T]:
        """Send a call at once, as `alone(argument)`, if no call is in flight; else with the next batch.

        Return an awaitable of the answer.  A caller that is cancelled meanwhile must pass the awaitable to
        `abandon`; `wait` does that by itself, at the cost of one more coroutine.
        """
        loop = running_loop()
        if loop is not self._loop:
            self._enter(loop)
        queue = self._queue
        if not self._is_scheduled:
            if not (queue.in_flight or queue.asked):
                return self._go_alone(asked, self._run(self._client, alone(argument)))
            self._schedule()
        waiting: Waiting = asyncio.Future(loop=loop)
        queue.callers.append(waiting)
        queue.asked.append(asked)
        if of_task.get() is not None:
            self._contexts[waiting] = copy_context()
        return waiting

    async def wait(self, asked: SharedRequest, alone: Callable[[A], Op[T]], argument: A) -> T:
        """Send a call as `share` does; await its answer, which is saved for a retry if the caller is gone."""
        call = self.share(asked, alone, argument)
        try:
            return await call
        except (asyncio.CancelledError, GeneratorExit):
            self.abandon(call)
            raise
        except Exception as error:
            told = told_mark(error)
            told[0] = True  # the last step, as in `drive`
            raise

    def abandon(self, call: Awaitable[object]) -> None:
        """Save the answers of a call whose caller is gone, whether they have come or come later."""
        if not isinstance(call, asyncio.Future) or call.cancelled():
            return
        if call.done():
            for batch in (*self._left, *self._answered):
                batch.leave(call)
        elif not call.get_loop().is_closed():
            call.cancel()

    async def settle(self) -> None:
        """Wait until the answers of callers that are gone are saved, for a call that shares nothing."""
        left = [task for task, batch in self._tasks.items() if any(map(asyncio.Future.done, batch.callers))]
        if left and self._loop is asyncio.get_running_loop():
            await asyncio.wait(left)

    def is_under_way(self, item: str | bytes) -> bool:
        """Return whether a call with an item is in flight."""
        return self._loop is not None and any(item in each for each in self._queue.in_flight)

    def _enter(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not None and not self._loop.is_closed():
            raise RuntimeError(
                f"the filter {self._name!r} is in use in another event loop; "
                "make a client in this one and use filter.with_client(client)"
            )
        # Closing a call of a closed loop makes its items pending.
        for call in (*self._open, *(task.get_coro() for task in self._tasks)):
            with suppress(Exception):
                call.close()
        self._loop, self._open, self._tasks, self._contexts = loop, set(), {}, {}
        self._left, self._answered = self._answered, []
        self._queue = Batcher()
        self._is_scheduled = False

    async def _go_alone(self, asked: SharedRequest, call: Coroutine[Any, Any, T]) -> T:
        queue = self._queue
        own = queue.begin(asked)
        self._open.add(call)
        try:
            return await call
        finally:
            self._open.discard(call)
            queue.end(own)
            if queue.asked and queue is self._queue:  # else another loop has replaced the queue
                self._schedule()

    def _end(self, batch: Batch, task: asyncio.Task[BatchOutcome]) -> None:
        """Deliver the outcome of a batch's task, even of one that was cancelled before it began."""
        self._tasks.pop(task, None)
        self._queue.end(batch.own)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            self._deliver(batch, task.result())
        else:
            self._deliver(batch, error if isinstance(error, Exception) else _ended_early())
        self._schedule()  # callers woken now may queue their next calls before the next batch leaves

    def _deliver(self, batch: Batch, answers: BatchOutcome) -> None:
        self._answered.append(batch)
        for caller, answer in batch.delivered(answers):
            try:
                if isinstance(answer, Exception):
                    caller.set_exception(answer)
                    caller.exception()  # or asyncio logs the error if the caller is gone
                else:
                    caller.set_result(answer)
            except asyncio.InvalidStateError:  # the caller was cancelled
                batch.leave(caller)

    def _schedule(self) -> None:
        # The next batch leaves at the end of the loop's turn, so that all tasks woken in this turn join it.
        loop = self._loop
        if loop and not (self._is_scheduled or len(self._queue.in_flight) >= BATCHES or loop.is_closed()):
            self._is_scheduled = True
            loop.call_soon(self._dispatch, len(self._answered))

    def _dispatch(self, answered: int) -> None:
        self._is_scheduled = False
        if self._queue.asked:
            del self._answered[:answered]  # their callers have run by now
        while batch := self._queue.depart():
            call = self._run(self._client, outcome_of(self._together(batch.items)))
            task = asyncio.get_running_loop().create_task(call, context=self._observed(batch))
            self._tasks[task] = batch
            task.add_done_callback(partial(self._end, batch))
        if len(self._contexts) > len(self._queue):  # some callers have gone
            waiting = self._queue.callers
            self._contexts = {each: self._contexts[each] for each in waiting if each in self._contexts}

    def _observed(self, batch: Batch) -> Context | None:
        """Return the context of the first observed call, which counts the round trip; None without one."""
        contexts = [self._contexts.pop(each, None) for each in batch.callers] if self._contexts else []
        return next((each for each in contexts if each is not None), None)


def _ended_early() -> OutcomeUnknownError:
    """Return the error for the callers of a batch whose task was cancelled."""
    return OutcomeUnknownError(
        "the task that sent this call together with others ended early", advice=ON_THE_SAME_OBJECT
    )
