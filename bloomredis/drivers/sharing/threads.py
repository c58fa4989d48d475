"""Group commit for threads."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from bloomredis.bits.batch import Encoded
from bloomredis.drivers.sharing.batch import Asked, gathered, items_of, keep, leaving, outcomes
from bloomredis.drivers.sync import SyncClient, drive
from bloomredis.errors import OutcomeUnknownError
from bloomredis.protocol import forks
from bloomredis.protocol.steps import Op

WOKEN_TOGETHER: Final = 2
"""Threads of a batch that are woken before each wakes a later one: more would queue for the interpreter."""


class _Waiter:
    """A thread that waits: for the outcome of its call, or to run the batch that its call is in."""

    __slots__ = ("asked", "batch", "is_gone", "lock", "outcome", "start", "wakes")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()
        self.is_gone = False  # it was interrupted while it waited

    def call(self, asked: Asked) -> _Waiter:
        """Wait for another call; the last one is over."""
        self.asked = asked
        self.outcome: Any = None
        self.start = 0  # of its items in its batch
        self.batch: _Batch | None = None  # it has left the queue
        self.wakes: _Waiter | None = None
        return self


class _Batch:
    """Calls that share a round trip, and how many of their threads have returned since."""

    def __init__(self, waiters: list[_Waiter]) -> None:
        self.waiters = waiters
        self.runner: _Waiter | None = waiters[0]
        self.answers: list[bool] | Exception | None = None
        self._left = itertools.count(1)

    @property
    def asked(self) -> list[Asked]:
        """The items of each call."""
        return [waiter.asked for waiter in self.waiters]

    def leave(self) -> bool:
        """Return True for the last thread that returns; safe without a lock."""
        return next(self._left) == len(self.waiters)


class Coalescer:
    """Sends the calls of one verb; one thread sends what the others have waiting.

    The next batch starts when every thread of the previous one has returned, so that immediate follow-up
    calls join it.  They are woken a few at a time, since they run one at a time.

    The main thread goes alone: Ctrl-C and signal handlers interrupt it anywhere, so no other thread may
    rely on it.  So does a call that is made by the call under way, as by `on_lost`.
    """

    def __init__(
        self, client: SyncClient, together: Callable[[Encoded, Sequence[Any]], Op[list[bool]]]
    ) -> None:
        self._client = client
        self._together = together
        self.renew()

    def renew(self) -> None:
        """Begin with no call: in a forked child, whose parent's threads are not here to run any."""
        self._mutex = threading.Lock()
        self._queue: deque[_Waiter] = deque()
        self._busy = False
        self._runner = 0  # the thread that runs the call under way
        self._main = threading.main_thread().ident
        self._own = threading.local()  # the waiter of each thread, used again
        forks.renewed_after_fork(self)

    def submit(self, asked: Asked, alone: Callable[[Any], Op[Any]], argument: object) -> Any:
        """Send a call at once, as `alone(argument)`, if nobody is under way; else with the next batch."""
        forks.check()
        thread = threading.get_ident()
        if thread in (self._main, self._runner):
            return drive(self._client, alone(argument))
        with self._mutex:
            waiter = self._taken().call(asked) if self._busy else None
            if waiter is not None:
                self._queue.append(waiter)
            self._busy = True
        if waiter is not None:
            outcome = self._wait(waiter)
            self._own.waiter = waiter
            return outcome
        self._runner = thread
        try:
            return drive(self._client, alone(argument))
        finally:
            self._runner = 0
            self._dispatch()

    def _taken(self) -> _Waiter:
        """Take the waiter of this thread, which has none until its call has ended well."""
        waiter = getattr(self._own, "waiter", None)
        self._own.waiter = None
        return waiter or _Waiter()

    def _wait(self, waiter: _Waiter) -> Any:
        try:
            waiter.lock.acquire()
        except BaseException:
            self._abandon(waiter)
            raise
        self._finish(waiter)
        if isinstance(waiter.outcome, Exception):
            raise waiter.outcome
        return waiter.outcome

    def _finish(self, waiter: _Waiter) -> None:
        batch = waiter.batch
        assert batch is not None  # noqa: S101 - its lock was released for a batch
        try:
            if waiter is batch.runner:
                self._run_batch(batch)
            elif waiter.wakes is not None:
                waiter.wakes.lock.release()
        finally:
            if batch.leave():
                self._dispatch()

    def _run_batch(self, batch: _Batch) -> None:
        self._runner = threading.get_ident()
        answers: list[bool] | Exception = OutcomeUnknownError(
            "the thread that sent this call with its own was interrupted; "
            "a second call on the same object answers as this one would have"
        )
        try:
            items = gathered(batch.asked)
            answers = drive(self._client, self._together(items, items))
        except Exception as error:
            answers = error
        finally:  # also where something else is raised, as by sys.exit()
            self._runner = 0
            self._deliver(batch, answers)

    def _deliver(self, batch: _Batch, answers: list[bool] | Exception) -> None:
        """Give each waiter its outcome and wake the first ones."""
        waiting = []
        with self._mutex:
            batch.answers = answers
            found = outcomes(batch.asked, answers)
            for waiter, (outcome, _, start) in zip(batch.waiters, found, strict=False):
                waiter.outcome, waiter.start = outcome, start
                if waiter.is_gone:
                    keep(answers, start, len(items_of(waiter.asked)))
                    batch.leave()  # not the last: this thread has yet to
                elif waiter is not batch.runner:
                    waiting.append(waiter)
            for waiter, later in zip(waiting, waiting[WOKEN_TOGETHER:], strict=False):
                waiter.wakes = later
        for waiter in waiting[:WOKEN_TOGETHER]:
            waiter.lock.release()

    def _abandon(self, waiter: _Waiter) -> None:
        """Take a call out whose thread was interrupted while it waited; its duties pass to another."""
        heir = None
        with self._mutex:
            waiter.is_gone = True
            batch = waiter.batch
            if batch is None:
                self._queue.remove(waiter)
                return
            if batch.answers is None and waiter is not batch.runner:
                return  # `_deliver` finds out
            if batch.answers is None:  # it was to run the batch, and has not begun
                batch.waiters.remove(waiter)
                heir = batch.runner = next((each for each in batch.waiters if not each.is_gone), None)
        if batch.answers is not None:
            keep(batch.answers, waiter.start, len(items_of(waiter.asked)))
            self._finish(waiter)
        elif heir is not None:
            heir.lock.release()
        else:
            self._dispatch()

    def _dispatch(self) -> None:
        """Hand what waits to the thread of the first call, which runs it."""
        with self._mutex:
            self._busy = bool(self._queue)
            if self._queue:
                number = leaving([waiter.asked for waiter in self._queue])
                batch = _Batch([self._queue.popleft() for _ in range(number)])
                for waiter in batch.waiters:
                    waiter.batch = batch
                batch.waiters[0].lock.release()
