"""Group commit for threads."""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from bloomredis.drivers.coalescing import PendingCall, gathered, outcomes, take
from bloomredis.drivers.sync import SyncClient, drive
from bloomredis.operations.filter import FilterOperations
from bloomredis.protocol.steps import Op

WOKEN_TOGETHER: Final = 2
"""Threads of a batch that are woken before each wakes a later one: more would queue for the interpreter."""


class _Waiter(PendingCall):
    """How a thread waits: for the outcome of its call, or for a batch to carry that its call is in."""

    __slots__ = ("batch", "lock", "outcome", "wakes")

    def __init__(self, items: Sequence[str | bytes], source: Sequence[Any] | None) -> None:
        self.items = items
        self.source = source
        self.lock = threading.Lock()
        self.lock.acquire()
        self.outcome: Any = None
        self.batch: _SharedBatch | None = None
        self.wakes: _Waiter | None = None


class _SharedBatch:
    """Calls that travel together, and how many of their threads have got away since."""

    __slots__ = ("_left", "waiters")

    def __init__(self, waiters: list[_Waiter]) -> None:
        self.waiters = waiters
        self._left = itertools.count(1)

    def leave(self) -> bool:
        """Return True for the last thread that gets away; safe without a lock."""
        return next(self._left) == len(self.waiters)


class Coalescer:
    """Carries the calls of one verb; one thread carries what the others have waiting.

    The next batch leaves when all threads of the last one have got away, so that those which come back
    at once are on board.  They are woken a few at a time, since they run one at a time.

    The main thread goes alone: Ctrl-C and signal handlers interrupt it anywhere, so no other thread may
    rely on it.
    """

    def __init__(
        self,
        client: SyncClient,
        operations: FilterOperations,
        verb: Callable[[list[str | bytes]], Op[list[bool]]],
    ) -> None:
        self._client = client
        self._operations = operations
        self._verb = verb
        self.reset()
        _coalescers.add(self)

    def reset(self) -> None:
        """Begin anew: in a forked child, whose parent's threads are not here to carry anything."""
        self._mutex = threading.Lock()
        self._queue: deque[_Waiter] = deque()
        self._busy = False

    def submit(
        self,
        items: Sequence[str | bytes],
        source: Sequence[Any] | None,
        alone: Callable[[Any], Op[Any]],
        argument: object,
    ) -> Any:
        """Send a call at once, as `alone(argument)`, if nobody is under way; else with the next batch."""
        if threading.current_thread() is threading.main_thread():
            return drive(self._client, alone(argument))
        with self._mutex:
            waiter = _Waiter(items, source) if self._busy else None
            if waiter is not None:
                self._queue.append(waiter)
            self._busy = True
        if waiter is None:
            try:
                return drive(self._client, alone(argument))
            finally:
                self._dispatch()
        waiter.lock.acquire()
        self._finish(waiter)
        if isinstance(waiter.outcome, Exception):
            raise waiter.outcome
        return waiter.outcome

    def _finish(self, waiter: _Waiter) -> None:
        batch = waiter.batch
        assert batch is not None  # noqa: S101 - only a departure or a landing releases the lock
        if waiter is batch.waiters[0]:
            self._run_batch(batch)
        elif waiter.wakes is not None:
            waiter.wakes.lock.release()
        if batch.leave():
            self._dispatch()

    def _run_batch(self, batch: _SharedBatch) -> None:
        waiters = batch.waiters
        answers: list[bool] | Exception
        try:
            answers = drive(self._client, self._verb(gathered(waiters)))
        except Exception as error:
            answers = error
        for waiter, outcome in outcomes(self._operations, waiters, answers):
            waiter.outcome = outcome
        for waiter, later in zip(waiters[1:], waiters[1 + WOKEN_TOGETHER :], strict=False):
            waiter.wakes = later
        for waiter in waiters[1 : 1 + WOKEN_TOGETHER]:
            waiter.lock.release()

    def _dispatch(self) -> None:
        """Hand what waits to the thread of the first call, which carries it."""
        with self._mutex:
            self._busy = bool(self._queue)
            if self._queue:
                batch = _SharedBatch(take(self._queue))
                for waiter in batch.waiters:
                    waiter.batch = batch
                batch.waiters[0].lock.release()


_coalescers: weakref.WeakSet[Coalescer] = weakref.WeakSet()


def _after_fork() -> None:
    for coalescer in _coalescers:
        coalescer.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
