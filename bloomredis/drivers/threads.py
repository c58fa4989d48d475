"""Group commit for threads."""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from bloomredis.drivers.coalescing import Waiting, gathered, outcomes, take
from bloomredis.drivers.sync import SyncClient, drive
from bloomredis.operations.filter import FilterOperations
from bloomredis.protocol.steps import Op

WOKEN_TOGETHER: Final = 2
"""Threads of a batch that are woken before each wakes a later one: more would queue for the interpreter."""


class _Turn(Waiting):
    """How a thread waits: for the outcome of its call, or for a batch to carry that its call is in."""

    __slots__ = ("batch", "lock", "outcome", "wakes")

    def __init__(self, items: Sequence[str | bytes], source: Sequence[Any] | None) -> None:
        self.items = items
        self.source = source
        self.lock = threading.Lock()
        self.lock.acquire()
        self.outcome: Any = None
        self.batch: _Batch | None = None
        self.wakes: _Turn | None = None


class _Batch:
    """Calls that travel together, and how many of their threads have got away since."""

    __slots__ = ("_left", "turns")

    def __init__(self, turns: list[_Turn]) -> None:
        self.turns = turns
        self._left = itertools.count(1)

    def leave(self) -> bool:
        """Return True for the last thread that gets away; safe without a lock."""
        return next(self._left) == len(self.turns)


class _Carriage:
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
        _carriages.add(self)

    def reset(self) -> None:
        """Begin anew: in a forked child, whose parent's threads are not here to carry anything."""
        self._mutex = threading.Lock()
        self._queue: deque[_Turn] = deque()
        self._busy = False

    def carry(
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
            turn = _Turn(items, source) if self._busy else None
            if turn is not None:
                self._queue.append(turn)
            self._busy = True
        if turn is None:
            try:
                return drive(self._client, alone(argument))
            finally:
                self._depart()
        turn.lock.acquire()
        self._get_away(turn)
        if isinstance(turn.outcome, Exception):
            raise turn.outcome
        return turn.outcome

    def _get_away(self, turn: _Turn) -> None:
        batch = turn.batch
        assert batch is not None  # noqa: S101 - only a departure or a landing releases the lock
        if turn is batch.turns[0]:
            self._travel(batch)
        elif turn.wakes is not None:
            turn.wakes.lock.release()
        if batch.leave():
            self._depart()

    def _travel(self, batch: _Batch) -> None:
        turns = batch.turns
        answers: list[bool] | Exception
        try:
            answers = drive(self._client, self._verb(gathered(turns)))
        except Exception as error:
            answers = error
        for turn, outcome in outcomes(self._operations, turns, answers):
            turn.outcome = outcome
        for turn, later in zip(turns[1:], turns[1 + WOKEN_TOGETHER :], strict=False):
            turn.wakes = later
        for turn in turns[1 : 1 + WOKEN_TOGETHER]:
            turn.lock.release()

    def _depart(self) -> None:
        """Hand what waits to the thread of the first call, which carries it."""
        with self._mutex:
            self._busy = bool(self._queue)
            if self._queue:
                batch = _Batch(take(self._queue))
                for turn in batch.turns:
                    turn.batch = batch
                batch.turns[0].lock.release()


_carriages: weakref.WeakSet[_Carriage] = weakref.WeakSet()


def _after_fork() -> None:
    for carriage in _carriages:
        carriage.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
