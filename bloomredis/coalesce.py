"""Which waiting calls travel together, and what each of them is told: group commit, without I/O.

A call that finds nobody under way goes at once, alone.  Calls that arrive while others are under way
wait, in order, and leave together in the next script call.  Nothing waits on a timer.  The drivers in
`client` (threads) and `asyncio` (tasks) carry what `Gate` hands out.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

from bloomredis.errors import BatchInterruptedError, OutcomeUnknownError
from bloomredis.filter import FilterOperations

MOST_ITEMS: Final = 400
"""Items that share one script call; with 7 hashes that is about what it may take (`PROBES_A_CALL`)."""

D = TypeVar("D")


class Waiting(Generic[D]):
    """A call that waits.

    It has its items, encoded and as they came (None for a single one), and what its driver needs to
    wake it up.
    """

    __slots__ = ("driver", "items", "source")

    def __init__(self, items: Sequence[str | bytes], source: Sequence[Any] | None, driver: D) -> None:
        self.items = items
        self.source = source
        self.driver = driver


class Gate(Generic[D]):
    """The queue of the calls of one verb on one filter object."""

    def __init__(self) -> None:
        self.queue: deque[Waiting[D]] = deque()
        self.under_way: set[str | bytes] = set()

    def depart(self, most: int, given_up: Callable[[D], bool]) -> list[Waiting[D]]:
        """Take the calls that leave together: up to `most` items, or one call with more.

        Callers who have given up are left behind.  It stops before an item that is under way already,
        so that equal items are answered in the order of their calls.
        """
        batch: list[Waiting[D]] = []
        count = 0
        while self.queue:
            call = self.queue[0]
            count += len(call.items)
            if (batch and count > most) or not self.under_way.isdisjoint(call.items):
                break
            self.queue.popleft()
            if not given_up(call.driver):
                batch.append(call)
        for call in batch:
            self.board(call.items)
        return batch

    def board(self, items: Iterable[str | bytes]) -> None:
        """Note that items are under way."""
        self.under_way.update(items)

    def leave(self, items: Iterable[str | bytes]) -> None:
        """Note that items have arrived and may be asked about again."""
        self.under_way.difference_update(items)


def outcomes(
    operations: FilterOperations, batch: Sequence[Waiting[D]], answers: list[bool] | Exception
) -> Iterator[tuple[Waiting[D], Any]]:
    """Yield each call with its own answer (a bool, or a list of them) or its own error."""
    error = None
    if isinstance(answers, Exception):
        error = answers
        answers = error.results if isinstance(error, BatchInterruptedError) else []
    start = 0
    for call in batch:
        own = answers[start : start + len(call.items)]
        start += len(call.items)
        if len(own) < len(call.items) and error is not None:
            yield call, _own_error(operations, call, own, error)
        else:
            yield call, own[0] if call.source is None else own


def _own_error(
    operations: FilterOperations, call: Waiting[D], own: list[bool], error: Exception
) -> Exception:
    """Return what one caller is told: about its own items, and no exception object is shared."""
    reason = error.__cause__ if isinstance(error, BatchInterruptedError) else None
    if not isinstance(reason, Exception):
        mine = copy.copy(error)
    elif call.source is not None:
        mine = BatchInterruptedError(str(error), own, call.source[len(own) :])
    elif isinstance(reason, OutcomeUnknownError):
        mine = OutcomeUnknownError(str(reason), operations.token_of(call.items[0]))
    else:
        mine = copy.copy(reason)
    mine.__cause__ = reason or error.__cause__
    return mine
