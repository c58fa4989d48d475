"""Group commit without I/O: which waiting calls share the next script call, and the outcome of each.

A call that finds nobody under way goes at once, alone.  Calls that arrive while others are under way
wait, in order, and leave together in the next script call.  Nothing waits on a timer.  `threads` and `tasks`
know how to wait and to run.
"""

from __future__ import annotations

import copy
import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain, takewhile
from typing import Any, Final, Protocol, TypeVar

from bloomredis.errors import BatchInterruptedError, OutcomeUnknownError
from bloomredis.operations.outcomes import Answers

MOST_ITEMS: Final = 400
"""Items that share one script call; with 7 hashes that is about what it may take (`PROBES_A_CALL`)."""


class PendingCall(Protocol):
    """A call that waits: its items, encoded and as they came (None for a single one).

    Drivers add what they need to wake it up.
    """

    items: Sequence[str | bytes]
    source: Sequence[Any] | None


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
    for call in queue:
        count += len(call.items)
        if count > most and batch:
            break
        batch.append(call)
    if under_way and not under_way.isdisjoint(gathered(batch)):
        batch = list(takewhile(lambda call: under_way.isdisjoint(call.items), batch))
    for _ in batch:
        queue.popleft()
    return batch


def gathered(batch: Sequence[PendingCall]) -> list[str | bytes]:
    """Return the items of all calls of a batch."""
    return list(chain.from_iterable([call.items for call in batch]))


def outcomes(batch: Sequence[W], answers: list[bool] | Exception) -> Iterable[tuple[W, Any, int]]:
    """Return each call with its outcome and the index of its first item in the batch.

    The outcome is an answer (a bool, or a list of them) or an error of the call's own.
    """
    if isinstance(answers, list) and {call.source is None for call in batch} == {True}:
        return zip(batch, answers, itertools.count(), strict=False)
    return _sliced(batch, answers)


def _sliced(batch: Sequence[W], answers: list[bool] | Exception) -> Iterator[tuple[W, Any, int]]:
    error = None
    tokens: Sequence[str | None] = ()
    if isinstance(answers, Exception):
        error = answers
        tokens = getattr(error, "tokens", ())
        answers = error.results if isinstance(error, BatchInterruptedError) else []
    start, known = 0, len(answers)
    for call in batch:
        own = answers[start : start + len(call.items)]
        if len(own) < len(call.items) and error is not None:
            sent = start + len(own) - known  # index of its first item without an answer among such
            own_tokens = tokens[sent : sent + len(call.items) - len(own)]
            yield call, _own_error(call, own, error, own_tokens), start
        else:
            yield call, own[0] if call.source is None else own, start
        start += len(call.items)


def keep(answers: list[bool] | Exception | None, start: int, count: int) -> None:
    """Keep the answers of a call whose caller is not there any more, for who asks again."""
    kept = answers.answers if isinstance(answers, BatchInterruptedError) else answers
    if isinstance(kept, Answers):
        kept.keep(range(start, min(start + count, len(kept))))


def _own_error(
    call: PendingCall, own: list[bool], error: Exception, tokens: Sequence[str | None]
) -> Exception:
    """Return the error for one caller: about its own items, with tokens of its own."""
    reason = error.__cause__ if isinstance(error, BatchInterruptedError) else None
    mine: Exception
    if not isinstance(reason, Exception):
        mine = _copied(error)
    elif call.source is not None:
        mine = BatchInterruptedError(str(error), own, call.source[len(own) :], tokens)
    else:
        mine = _copied(reason)
        if isinstance(mine, OutcomeUnknownError):
            mine.token = tokens[0] if tokens else None
            if mine.token is None:  # its item was not sent, or asked about for another caller
                shared = (
                    f"a call that shared a round trip with this one was not answered ({reason.__cause__})"
                )
                mine.args = (f"{shared}; a second call on the same object answers as this one would have",)
    if mine is not reason:
        mine.__cause__ = reason or error.__cause__
    return mine


def _copied(error: Exception) -> Exception:
    """Return a copy, so that callers share no exception object; the error itself if it cannot be copied."""
    try:
        mine = copy.copy(error)
    except Exception:
        return error
    return mine if isinstance(mine, type(error)) else error
