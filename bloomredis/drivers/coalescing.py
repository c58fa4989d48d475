"""Which waiting calls travel together, and what each of them is told: group commit, without I/O.

A call that finds nobody under way goes at once, alone.  Calls that arrive while others are under way
wait, in order, and leave together in the next script call.  Nothing waits on a timer.  The drivers in
`client` (threads) and `asyncio` (tasks) know how to wait and to carry.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import Any, Final, TypeVar

from bloomredis.errors import BatchInterruptedError, OutcomeUnknownError
from bloomredis.operations.filter import FilterOperations

MOST_ITEMS: Final = 400
"""Items that share one script call; with 7 hashes that is about what it may take (`PROBES_A_CALL`)."""


class PendingCall:
    """A call that waits: its items, encoded and as they came (None for a single one).

    Drivers add what they need to wake it up.
    """

    __slots__ = ("items", "source")

    def __init__(self, items: Sequence[str | bytes], source: Sequence[Any] | None) -> None:
        self.items = items
        self.source = source


W = TypeVar("W", bound=PendingCall)


def take(
    queue: deque[W], most: int = MOST_ITEMS, under_way: AbstractSet[str | bytes] = frozenset()
) -> list[W]:
    """Take the calls that leave together: up to `most` items, or one call with more.

    A call with an item that is under way stays, and so do those behind it: equal items are answered in
    the order of their calls.
    """
    batch: list[W] = []
    count = 0
    free = under_way.isdisjoint
    for call in queue:
        items = call.items
        count += len(items)
        if (count > most and batch) or not free(items):
            break
        batch.append(call)
    for _ in batch:
        queue.popleft()
    return batch


def gathered(batch: Sequence[PendingCall]) -> list[str | bytes]:
    """Return the items of all calls of a batch."""
    return list(chain.from_iterable([call.items for call in batch]))


def outcomes(
    operations: FilterOperations, batch: Sequence[W], answers: list[bool] | Exception
) -> Iterable[tuple[W, Any]]:
    """Return each call with its own answer (a bool, or a list of them) or its own error."""
    if isinstance(answers, list) and {call.source is None for call in batch} == {True}:
        return zip(batch, answers, strict=True)
    return _sliced(operations, batch, answers)


def _sliced(
    operations: FilterOperations, batch: Sequence[W], answers: list[bool] | Exception
) -> Iterator[tuple[W, Any]]:
    error = None
    if isinstance(answers, Exception):
        error = answers
        answers = error.results if isinstance(error, BatchInterruptedError) else []
    start = 0
    owed: set[str | bytes] = set()  # one token for each item: of equal ones the first was the new one
    for call in batch:
        own = answers[start : start + len(call.items)]
        start += len(call.items)
        if len(own) < len(call.items) and error is not None:
            token = None if call.items[0] in owed else operations.token_of(call.items[0])
            owed.update(call.items[len(own) :])
            yield call, _own_error(call, own, error, token)
        else:
            yield call, own[0] if call.source is None else own


def _own_error(call: PendingCall, own: list[bool], error: Exception, token: str | None) -> Exception:
    """Return what one caller is told: about its own items, and no exception object is shared."""
    reason = error.__cause__ if isinstance(error, BatchInterruptedError) else None
    if not isinstance(reason, Exception):
        mine = copy.copy(error)
    elif call.source is not None:
        mine = BatchInterruptedError(str(error), own, call.source[len(own) :])
    elif isinstance(reason, OutcomeUnknownError):
        mine = OutcomeUnknownError(str(reason), token)
    else:
        mine = copy.copy(reason)
    mine.__cause__ = reason or error.__cause__
    return mine
