"""Group commit for asyncio tasks."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from bloomredis.bits.batch import Encoded
from bloomredis.drivers.coalescing import MOST_ITEMS, gathered, keep, outcomes, take
from bloomredis.errors import OutcomeUnknownError

T = TypeVar("T")


def processors() -> int:
    """Return the number of processors that this process may use."""
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1


MOST_UNDER_WAY: Final = 2
"""Batches under way at once: one in the server while the next is packed and the last handed out."""

FEWEST_ITEMS: Final = 32 if processors() > 1 else 64
"""Items worth a batch of their own while another is under way: each batch costs this process some 100 µs,
which the server may use where it has a processor of its own."""


class Awaited(asyncio.Future[Any]):
    """A call that waits for its outcome, with the answers of its batch."""

    __slots__ = ("answers", "items", "source", "start")

    items: Sequence[str | bytes]
    source: Sequence[Any] | None
    answers: list[bool] | Exception | None
    start: int  # of its own answers among them

    def abandon(self) -> None:
        """Nobody waits any more: keep the answers, whether they are here or come later."""
        if not self.cancel() and not self.cancelled():
            keep(self.answers, self.start, len(self.items))


class Coalescer:
    """Sends the calls of one verb; those that find others under way share round trips."""

    def __init__(
        self, name: str, send: Callable[[Encoded, Sequence[Any]], Coroutine[Any, Any, list[bool]]]
    ) -> None:
        self._name = name
        self._send = send
        self._loop: asyncio.AbstractEventLoop | None = None

    def join(self, items: Sequence[str | bytes], source: Sequence[Any] | None) -> Awaited | None:
        """Return the outcome to wait for of a call in the next batch; None if nobody is under way."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._enter(loop)
        if self._batches == 0 and not self._queue and not self._scheduled:
            return None
        call = Awaited(loop=loop)
        call.items, call.source, call.answers, call.start = items, source, None, 0
        self._queue.append(call)
        if not self._scheduled:
            self._schedule()
        return call

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
        self._queue: deque[Awaited] = deque()
        self._items: set[str | bytes] = set()  # under way, in so many batches:
        self._batches = 0
        self._scheduled = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def alone(self, items: Sequence[str | bytes], call: Coroutine[Any, Any, T]) -> T:
        """Make a call when `join` has found nobody under way."""
        self._begin(items)
        try:
            return await call
        finally:
            self._end(items)
            if self._queue:
                self._schedule()

    async def _run_batch(self, batch: list[Awaited], items: list[str | bytes]) -> None:
        answers: list[bool] | Exception = OutcomeUnknownError(
            "the task that sent this call with others was ended; "
            "a second call on the same object answers as this one would have"
        )
        try:
            answers = await self._send(items, items)
        except Exception as error:
            answers = error
        finally:  # also where something else is raised
            self._deliver(batch, answers)
            self._end(items)
            self._schedule()  # those who are woken now come back before the next departure

    def _deliver(self, batch: list[Awaited], answers: list[bool] | Exception) -> None:
        for call, outcome, start in outcomes(batch, answers):
            if call.done():  # it was cancelled
                keep(answers, start, len(call.items))
                continue
            call.answers, call.start = answers, start
            if isinstance(outcome, Exception):
                call.set_exception(outcome)
            else:
                call.set_result(outcome)

    def _begin(self, items: Sequence[str | bytes]) -> None:
        self._batches += 1
        self._items.update(items)

    def _end(self, items: Sequence[str | bytes]) -> None:
        self._batches -= 1
        if self._batches:
            self._items.difference_update(items)
        else:
            self._items.clear()

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
            if batch := [call for call in taken if not call.done()]:
                items = gathered(batch)
                self._begin(items)
                task = asyncio.get_running_loop().create_task(self._run_batch(batch, items))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
