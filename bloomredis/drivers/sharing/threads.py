"""Group commit for threads: each thread waits for its own lock, and one of them sends for all."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any, Final, TypeVar

from bloomredis.drivers.connections.direct import SyncTransport
from bloomredis.drivers.sharing.batch import (
    MOST_ITEMS,
    Asked,
    Batch,
    Batcher,
    BatchOutcome,
    Key,
    RequestSharing,
    tell,
    untold,
)
from bloomredis.drivers.sync import drive, execute_step
from bloomredis.errors import OutcomeUnknownError
from bloomredis.operations.items.outcomes import ON_THE_SAME_OBJECT
from bloomredis.operations.kinds.verbs import ItemOperations
from bloomredis.protocol import forks
from bloomredis.protocol.steps import Op

A = TypeVar("A")
T = TypeVar("T")

WOKEN_TOGETHER: Final = 2
"""Number of threads of a batch that are woken at once; each of them wakes another one.

If all were woken at once, they would only queue for the interpreter."""


class _Waiter:
    """A waiting thread: it waits for the outcome of its call, or for its turn to run the batch."""

    __slots__ = ("answer", "is_gone", "lock", "trip", "wakes")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()
        self.is_gone = False  # True once the thread was interrupted while it waited

    def again(self) -> _Waiter:
        """Reset this waiter for another call."""
        self.answer: Any = None  # the answer or the error
        self.trip: _Trip | None = None  # set when the call leaves the queue
        self.wakes: _Waiter | None = None
        return self


class _Trip:
    """A batch in flight: the thread that runs it, and the number of its threads that have returned."""

    def __init__(self, batch: Batch[_Waiter]) -> None:
        self.batch = batch
        self.runner: _Waiter | None = batch.callers[0]
        self._left = itertools.count(1)
        for waiter in batch.callers:
            waiter.trip = self

    def leave(self) -> bool:
        """Record that a thread returns; return True for the last one.  Safe without a lock."""
        return next(self._left) == len(self.batch.callers)


class Threads:
    """The sender of one verb's calls for threads: one thread sends the waiting calls of all.

    The next batch starts when every thread of the previous one has returned, so that immediate follow-up
    calls join it.  The threads are woken a few at a time, since the interpreter runs one at a time.

    The main thread never shares: Ctrl-C and signal handlers may interrupt it anywhere, so no other thread may
    rely on it.  A call made within the call in flight, for example by `on_lost`, does not share either.

    :param together: returns the operation for all calls of a batch; both arguments are the batch's items.
    """

    def __init__(
        self,
        client: SyncTransport,
        together: Callable[[Any, Any], Op[list[Any]]],
    ) -> None:
        self._client, self._together = client, together
        self.after_fork()

    def after_fork(self) -> None:
        """Begin without calls: a forked child lacks the threads that would run its parent's calls."""
        self._mutex = threading.Lock()
        self._queue = Batcher[_Waiter](attrgetter("is_gone"), batches=1, fewest=MOST_ITEMS)
        self._runner = 0  # the thread that runs the call in flight
        self._main = threading.main_thread().ident
        self._own = threading.local()  # the reusable waiter of each thread
        forks.register_after_fork(self)

    def share(self, asked: Asked, alone: Callable[[A], Op[T]], argument: A) -> T:
        """Send a call at once, as `alone(argument)`, if no call is in flight; else with the next batch."""
        forks.detect_fork()
        thread = threading.get_ident()
        if thread in (self._main, self._runner):
            return drive(self._client, alone(argument))
        with self._mutex:
            queue = self._queue
            own = None if queue.in_flight or queue.asked else queue.begin(asked)
            if own is None:
                waiter = self._taken().again()
                queue.callers.append(waiter)
                queue.asked.append(asked)
        if own is None:
            answer: T = self._wait(waiter)
            self._own.waiter = waiter
            return answer
        self._runner = thread
        try:
            return drive(self._client, alone(argument))
        finally:
            self._runner = 0
            self._dispatch(own)

    def _taken(self) -> _Waiter:
        """Take the waiter of this thread; a new one at the first call, and after an interrupted call."""
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
        if isinstance(waiter.answer, Exception):
            raise waiter.answer
        return waiter.answer

    def _finish(self, waiter: _Waiter) -> None:
        trip = waiter.trip
        assert trip is not None  # noqa: S101 - its lock is released only after `trip` was set
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
            "the thread that sent this call together with its own was interrupted", advice=ON_THE_SAME_OBJECT
        )
        try:
            items = trip.batch.items
            answers = drive(self._client, untold(self._together(items, items)))
        except Exception as error:
            answers = error
        finally:  # includes other exceptions, such as that of sys.exit()
            self._runner = 0
            self._deliver(trip, answers)

    def _deliver(self, trip: _Trip, answers: BatchOutcome) -> None:
        """Give each waiter its outcome, and wake the first waiters."""
        waiting = []
        with self._mutex:
            for waiter, answer in trip.batch.delivered(answers):
                waiter.answer = answer
                if waiter.is_gone:
                    trip.batch.store_answers_of(waiter)
                    trip.leave()  # never the last, since this thread has not left yet
                    continue
                if isinstance(answer, Exception):
                    tell(answer)
                if waiter is not trip.runner:
                    waiting.append(waiter)
            for waiter, later in zip(waiting, waiting[WOKEN_TOGETHER:], strict=False):
                waiter.wakes = later
        for waiter in waiting[:WOKEN_TOGETHER]:
            waiter.lock.release()

    def _abandon(self, waiter: _Waiter) -> None:
        """Record that a waiting thread was interrupted, and pass its duties to another thread."""
        with self._mutex:
            waiter.is_gone = True
            trip = waiter.trip
            is_over = trip is not None and trip.batch.answers is not None
            if trip is None or not (is_over or waiter is trip.runner):
                return  # its call is in the queue, or in flight: `depart` or `_deliver` will see `is_gone`
            if not is_over:  # the thread should have run the batch
                trip.runner = heir = next((each for each in trip.batch.callers if not each.is_gone), None)
        if is_over:
            tell(waiter.answer, is_told=False)
            trip.batch.store_answers_of(waiter)
            self._finish(waiter)
        elif heir is not None:
            heir.lock.release()
        else:
            self._dispatch(trip.batch.own)

    def _dispatch(self, own: set[Key]) -> None:
        """End the batch in flight, and let the thread of the first waiting call run the next batch."""
        with self._mutex:
            self._queue.end(own)
            batch = self._queue.depart()
            if batch is not None:
                _Trip(batch)
                batch.callers[0].lock.release()


def sharing_requests(client: SyncTransport, operations: ItemOperations) -> RequestSharing[Threads, object]:
    """Return an executor of steps in which threads share the calls about claims."""
    make = partial(Threads, client, operations.attempt_shared)
    return RequestSharing(operations, make, Threads.share, execute_step)
