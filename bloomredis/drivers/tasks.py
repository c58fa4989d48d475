"""Group commit for asyncio tasks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from bloomredis.drivers.aio import AsyncClient, drive
from bloomredis.drivers.coalescing import MOST_ITEMS, PendingCall, gathered, keep, outcomes, take
from bloomredis.errors import OutcomeUnknownError
from bloomredis.protocol.steps import Op

T = TypeVar("T")

MOST_UNDER_WAY: Final = 2
"""Batches under way at once: one in the server while the next is packed and the last handed out."""

FEWEST_ITEMS: Final = 64
"""Items worth a batch of their own while another is under way: each batch costs this process some 150 µs."""


class Awaited(asyncio.Future[Any]):
    """The outcome of a call that shares a round trip, with the answers of its batch."""

    answers: list[bool] | Exception | None = None
    start = 0  # of its own answers among them

    def abandon(self, count: int) -> None:
        """Nobody waits any more: keep the answers, whether they are here or come later."""
        if not self.cancel() and not self.cancelled():
            keep(self.answers, self.start, count)


class _Waiter(PendingCall):
    """A task that waits."""

    __slots__ = ("future",)

    def __init__(self, items: Sequence[str | bytes], source: Sequence[Any] | None, future: Awaited) -> None:
        self.items = items
        self.source = source
        self.future = future


class Coalescer:
    """Sends the calls of one verb; those that find others under way share round trips."""

    def __init__(
        self, client: AsyncClient, name: str, verb: Callable[[list[str | bytes]], Op[list[bool]]]
    ) -> None:
        self._client = client
        self._name = name
        self._verb = verb
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(
        self,
        items: Sequence[str | bytes],
        source: Sequence[Any] | None,
        alone: Callable[[Any], Op[Any]],
        argument: object,
    ) -> Awaitable[Any]:
        """Send a call at once, as `alone(argument)`, if nobody is under way; else with the next batch."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._enter(loop)
        if self._batches == 0 and not self._queue and not self._scheduled:
            return self._run_alone(items, alone(argument))
        future = Awaited(loop=loop)
        self._queue.append(_Waiter(items, source, future))
        if not self._scheduled:
            self._schedule()
        return future

    def is_under_way(self, item: str | bytes) -> bool:
        """Return whether a call with an item has been sent and not been answered."""
        return self._loop is not None and item in self._items

    def _enter(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not None and not self._loop.is_closed():
            raise RuntimeError(
                f"the filter {self._name!r} is in use in another event loop; "
                "make a client in this one and use filter.with_client(client)"
            )
        self._loop = loop
        self._queue: deque[_Waiter] = deque()
        self._items: set[str | bytes] = set()  # under way, in so many batches:
        self._batches = 0
        self._scheduled = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def _run_alone(self, items: Sequence[str | bytes], operation: Op[T]) -> T:
        self._begin(items)
        try:
            return await drive(self._client, operation)
        finally:
            self._batches -= 1
            self._items.difference_update(items)
            if self._queue:
                self._schedule()

    async def _run_batch(self, batch: list[_Waiter], items: list[str | bytes]) -> None:
        answers: list[bool] | Exception = OutcomeUnknownError(
            "the task that sent this call with others was ended; "
            "a second call on the same object answers as this one would have"
        )
        try:
            answers = await drive(self._client, self._verb(items))
        except Exception as error:
            answers = error
        finally:  # also where something else is raised
            self._deliver(batch, answers)
            self._end(items)  # last, so that those who are woken now come back before the next departure

    def _deliver(self, batch: list[_Waiter], answers: list[bool] | Exception) -> None:
        for waiter, outcome, start in outcomes(batch, answers):
            future = waiter.future
            if future.done():  # it was cancelled
                keep(answers, start, len(waiter.items))
                continue
            future.answers, future.start = answers, start
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

    def _begin(self, items: Sequence[str | bytes]) -> None:
        self._batches += 1
        self._items.update(items)

    def _end(self, items: Sequence[str | bytes]) -> None:
        self._batches -= 1
        self._items.difference_update(items)
        self._schedule()

    def _schedule(self) -> None:
        # The next batch is left to the end of the loop's turn, so that all tasks that are being woken up
        # now join it.
        if not self._scheduled and self._batches < MOST_UNDER_WAY:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._scheduled = False
        while self._queue and self._batches < MOST_UNDER_WAY:
            # Half of all calls, so that two halves take turns in the server and here.
            half = max(FEWEST_ITEMS, (len(self._queue) + len(self._items) + 1) // 2)
            if self._batches and len(self._queue) < half:
                return  # the end of the others schedules the next
            taken = take(self._queue, min(MOST_ITEMS, half), self._items)
            if not taken:
                return  # the end of what bars it schedules the next
            if batch := [waiter for waiter in taken if not waiter.future.done()]:
                items = gathered(batch)
                self._begin(items)
                task = asyncio.get_running_loop().create_task(self._run_batch(batch, items))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
