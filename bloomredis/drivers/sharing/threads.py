"""Group commit for threads: each waits for a lock of its own, and one of them sends for all."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, TypeVar, overload

from bloomredis.drivers.connections.clients import SyncClient
from bloomredis.drivers.sharing.batch import (
    MOST_ITEMS,
    Asked,
    Batch,
    Batcher,
    BatchOutcome,
    CallSharing,
    Key,
    Own,
)
from bloomredis.drivers.sync import drive, execute_step
from bloomredis.errors import OutcomeUnknownError
from bloomredis.protocol import forks
from bloomredis.protocol.steps import Call, Op, Reply

A = TypeVar("A")
T = TypeVar("T")

WOKEN_TOGETHER: Final = 2
"""Threads of a batch that are woken before each wakes a later one: more would queue for the interpreter."""


class _Waiter:
    """A thread that waits: for the outcome of its call, or to run the batch that its call is in."""

    __slots__ = ("answer", "is_gone", "lock", "trip", "wakes")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()
        self.is_gone = False  # it was interrupted while it waited

    def again(self) -> _Waiter:
        """Wait for another call; the last one is over."""
        self.answer: object = None  # or the error, once there is one
        self.trip: _Trip | None = None  # it has left the queue
        self.wakes: _Waiter | None = None
        return self


class _Trip:
    """A batch under way: the thread that runs it, and how many of its threads have returned since."""

    def __init__(self, batch: Batch[_Waiter]) -> None:
        self.batch = batch
        self.runner: _Waiter | None = batch.callers[0]
        self._left = itertools.count(1)
        for waiter in batch.callers:
            waiter.trip = self

    def leave(self) -> bool:
        """Return True for the last thread that returns; safe without a lock."""
        return next(self._left) == len(self.batch.callers)


class Threads:
    """Sends the calls of one verb; one thread sends what the others have waiting.

    The next batch starts when every thread of the previous one has returned, so that immediate follow-up
    calls join it.  They are woken a few at a time, since they run one at a time.

    The main thread goes alone: Ctrl-C and signal handlers interrupt it anywhere, so no other thread may
    rely on it.  So does a call that is made by the call under way, as by `on_lost`.

    :param together: returns what makes all calls of a batch, given their items twice.
    :param run: runs that, or what makes a call alone, with the client.
    """

    def __init__(
        self,
        client: SyncClient,
        together: Callable[[Any, Any], Op[list[Any]]],
        run: Callable[[SyncClient, Any], Any] = drive,
    ) -> None:
        self._client, self._together, self._run = client, together, run
        self.renew()

    def renew(self) -> None:
        """Begin with no call: in a forked child, whose parent's threads are not here to run any."""
        self._mutex = threading.Lock()
        self._queue = Batcher[_Waiter](attrgetter("is_gone"), batches=1, fewest=MOST_ITEMS)
        self._runner = 0  # the thread that runs the call under way
        self._main = threading.main_thread().ident
        self._own = threading.local()  # the waiter of each thread, used again
        forks.renewed_after_fork(self)

    @overload
    def share(self, asked: Asked, alone: Callable[[A], Op[T]], argument: A) -> T: ...
    @overload
    def share(self, asked: Own, alone: Callable[[Own], Call], argument: Own) -> Reply: ...
    def share(self, asked: Asked, alone: Callable[[Any], object], argument: object) -> object:
        """Send a call at once, as `alone(argument)`, if nobody is under way; else with the next batch."""
        forks.check()
        thread = threading.get_ident()
        if thread in (self._main, self._runner):
            return self._run(self._client, alone(argument))
        with self._mutex:
            queue = self._queue
            own = None if queue.under_way or queue.asked else queue.begin(asked)
            if own is None:
                waiter = self._taken().again()
                queue.callers.append(waiter)
                queue.asked.append(asked)
        if own is None:
            answer = self._wait(waiter)
            self._own.waiter = waiter
            return answer
        self._runner = thread
        try:
            return self._run(self._client, alone(argument))
        finally:
            self._runner = 0
            self._dispatch(own)

    def _taken(self) -> _Waiter:
        """Take the waiter of this thread, which has none until its call has ended well."""
        waiter = getattr(self._own, "waiter", None)
        self._own.waiter = None
        return waiter or _Waiter()

    def _wait(self, waiter: _Waiter) -> object:
        try:
            waiter.lock.acquire()
        except BaseException:
            self._abandon(waiter)
            raise
        self._finish(waiter)
        if isinstance(waiter.answer, Exception):
            raise waiter.answer
        return waiter.answer

    def _finish(self, waiter: _Waiter) -> None:
        trip = waiter.trip
        assert trip is not None  # noqa: S101 - its lock was released for one
        try:
            if waiter is trip.runner:
                self._run_batch(trip)
            elif waiter.wakes is not None:
                waiter.wakes.lock.release()
        finally:
            if trip.leave():
                self._dispatch(trip.batch.own)

    def _run_batch(self, trip: _Trip) -> None:
        self._runner = threading.get_ident()
        answers: BatchOutcome = OutcomeUnknownError(
            "the thread that sent this call with its own was interrupted; "
            "a second call on the same object answers as this one would have"
        )
        try:
            items = trip.batch.items
            answers = self._run(self._client, self._together(items, items))
        except Exception as error:
            answers = error
        finally:  # also where something else is raised, as by sys.exit()
            self._runner = 0
            self._deliver(trip, answers)

    def _deliver(self, trip: _Trip, answers: BatchOutcome) -> None:
        """Give each waiter its outcome and wake the first ones."""
        waiting = []
        with self._mutex:
            for waiter, answer in trip.batch.delivered(answers):
                waiter.answer = answer
                if waiter.is_gone:
                    trip.batch.keep(waiter)
                    trip.leave()  # not the last: this thread has yet to
                elif waiter is not trip.runner:
                    waiting.append(waiter)
            for waiter, later in zip(waiting, waiting[WOKEN_TOGETHER:], strict=False):
                waiter.wakes = later
        for waiter in waiting[:WOKEN_TOGETHER]:
            waiter.lock.release()

    def _abandon(self, waiter: _Waiter) -> None:
        """Note that a thread was interrupted while it waited; its duties pass to another."""
        with self._mutex:
            waiter.is_gone = True
            trip = waiter.trip
            is_over = trip is not None and trip.batch.answers is not None
            if trip is None or not (is_over or waiter is trip.runner):
                return  # `depart` or `_deliver` finds out
            if not is_over:  # it was to run the batch, and has not begun
                trip.runner = heir = next((each for each in trip.batch.callers if not each.is_gone), None)
        if is_over:
            trip.batch.keep(waiter)
            self._finish(waiter)
        elif heir is not None:
            heir.lock.release()
        else:
            self._dispatch(trip.batch.own)

    def _dispatch(self, own: set[Key]) -> None:
        """End what is under way; hand what waits to the thread of the first call, which runs it."""
        with self._mutex:
            self._queue.end(own)
            batch = self._queue.depart()
            if batch is not None:
                _Trip(batch)
                batch.callers[0].lock.release()


def sharing_calls(client: SyncClient) -> CallSharing[Threads, object]:
    """Return what shares the calls of scripts among threads."""

    def run(client: SyncClient, made: Call | Op[list[Reply]]) -> object:
        return execute_step(client, made) if isinstance(made, Call) else drive(client, made)

    return CallSharing(lambda: Threads(client, Own.together, run), Threads.share, execute_step)
