"""Group commit for asyncio tasks."""

from __future__ import annotations

import asyncio
import os
from asyncio import get_running_loop
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from itertools import compress
from typing import Any, Final, TypeVar

from bloomredis.bits.batch import Encoded
from bloomredis.drivers.sharing.batch import (
    MOST_ITEMS,
    Asked,
    Outcome,
    gathered,
    items_of,
    keep,
    leaving,
    outcomes,
)
from bloomredis.errors import OutcomeUnknownError

T = TypeVar("T")
Waiting = asyncio.Future[Outcome]


def processors() -> int:
    """Return the number of processors that this process may use."""
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1


MOST_UNDER_WAY: Final = 2
"""Batches under way at once: one in the server while the next is packed and the last handed out."""

FEWEST_ITEMS: Final = 32 if processors() > 1 else 64
"""Items worth a batch of their own while another is under way: each batch costs this process some 100 µs,
which the server may use where it has a processor of its own."""


class Coalescer:
    """Sends the calls of one verb; those that find others under way share round trips.

    A call waits for a future, whose result is its `Outcome`, an error too.
    """

    def __init__(
        self, name: str, send: Callable[[Encoded, Sequence[Any]], Coroutine[Any, Any, list[bool]]]
    ) -> None:
        self._name = name
        self._send = send
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: set[Coroutine[Any, Any, Any]] = set()  # the calls that have been sent

    def join(self, asked: Asked) -> Waiting | None:
        """Return what to wait for of a call in the next batch; None if nobody is under way."""
        loop = get_running_loop()
        if loop is not self._loop:
            self._enter(loop)
        if not self._scheduled:
            if not (self._under_way or self._asked):
                return None
            self._schedule()
        call: Waiting = asyncio.Future(loop=loop)
        self._calls.append(call)
        self._asked.append(asked)
        return call

    def is_under_way(self, item: str | bytes) -> bool:
        """Return whether a call with an item has been sent and not been answered."""
        return self._loop is not None and any(item in each for each in self._under_way)

    def _enter(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not None and not self._loop.is_closed():
            raise RuntimeError(
                f"the filter {self._name!r} is in use in another event loop; "
                "make a client in this one and use filter.with_client(client)"
            )
        for left in [*self._open]:  # the items of a call that its loop has left are pending once it is closed
            with suppress(Exception):
                left.close()
        self._loop, self._open = loop, set()
        self._calls: list[Waiting] = []  # those that have not left,
        self._asked: list[Asked] = []  # and what each asks for
        self._under_way: list[set[str | bytes]] = []  # the items of each batch, and of a call alone
        self._scheduled = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def alone(self, asked: Asked, call: Coroutine[Any, Any, T]) -> T:
        """Make a call when `join` has found nobody under way."""
        own, under_way = set(items_of(asked)), self._under_way
        under_way.append(own)
        self._open.add(call)
        try:
            return await call
        finally:
            self._open.discard(call)
            under_way.remove(own)
            if under_way is self._under_way and self._asked:  # else this loop was closed
                self._schedule()

    async def _run_batch(
        self, calls: Sequence[Waiting], asked: Sequence[Asked], items: Encoded, own: set[str | bytes]
    ) -> None:
        answers: list[bool] | Exception = OutcomeUnknownError(
            "the task that sent this call with others was ended; "
            "a second call on the same object answers as this one would have"
        )
        under_way, call = self._under_way, self._send(items, items)
        self._open.add(call)
        try:
            answers = await call
        except Exception as error:
            answers = error
        finally:  # also where something else is raised
            self._open.discard(call)
            under_way.remove(own)
            if not calls[0].get_loop().is_closed():
                _deliver(calls, asked, answers)
                self._schedule()  # those who are woken now come back before the next departure

    def _schedule(self) -> None:
        # The next batch is left to the end of the loop's turn, so that all tasks that are being woken up
        # now join it.
        loop = self._loop
        if loop and not (self._scheduled or len(self._under_way) >= MOST_UNDER_WAY or loop.is_closed()):
            self._scheduled = True
            loop.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._scheduled = False
        while self._asked and len(self._under_way) < MOST_UNDER_WAY:
            # Half of all calls, so that two halves take turns in the server and here.
            half = max(FEWEST_ITEMS, (len(self._asked) + sum(map(len, self._under_way)) + 1) // 2)
            if self._under_way and len(self._asked) < half:
                return  # the end of the others schedules the next
            number = leaving(self._asked, min(MOST_ITEMS, half), self._under_way)
            if not number:
                return  # the end of what bars it schedules the next
            calls, asked = self._calls[:number], self._asked[:number]
            del self._calls[:number], self._asked[:number]
            if any(map(asyncio.Future.done, calls)):
                waiting = [not call.done() for call in calls]
                calls, asked = list(compress(calls, waiting)), list(compress(asked, waiting))
            if calls:
                items = gathered(asked)
                own = set(items)
                self._under_way.append(own)
                task = asyncio.get_running_loop().create_task(self._run_batch(calls, asked, items, own))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)


def _deliver(calls: Sequence[Waiting], asked: Sequence[Asked], answers: list[bool] | Exception) -> None:
    for call, outcome in zip(calls, outcomes(asked, answers), strict=False):
        try:
            call.set_result(outcome)
        except asyncio.InvalidStateError:  # it was cancelled
            keep(answers, outcome[2], len(items_of(asked[calls.index(call)])))


def abandon(call: Waiting, asked: Asked) -> None:
    """Nobody waits for a call any more: its answers are kept, whether they are here or come later."""
    if not call.done():
        if not call.get_loop().is_closed():
            call.cancel()
    elif not call.cancelled():
        _, answers, start = call.result()
        keep(answers, start, len(items_of(asked)))
