"""Group commit without I/O: which waiting calls share the next script call, and the outcome of each.

A call that finds nobody under way goes at once, alone.  Calls that arrive while others are under way
wait, in order, and leave together in the next script call.  Nothing waits on a timer.  `threads` and `tasks`
know how to wait and to run.
"""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate, chain, count, repeat
from typing import Any, Final, NamedTuple

from bloomredis.errors import BatchInterruptedError, OutcomeUnknownError
from bloomredis.operations.items.outcomes import Answers

MOST_ITEMS: Final = 400
"""Items that share one script call; with 7 hashes that is about what it may take (`PROBES_A_CALL`)."""


class Several(NamedTuple):
    """The items of a call with several: encoded, and as they came."""

    items: Sequence[str | bytes]
    source: Sequence[Any]


class Own:
    """A call that stays one of its own: nothing else is equal to it."""

    __slots__ = ("call",)

    def __init__(self, call: Any) -> None:
        self.call = call


Asked = str | bytes | Several | Own
"""What a call asks for: one encoded item, several, or something of its own."""


def items_of(asked: Asked) -> Sequence[Any]:
    """Return the items of one call."""
    return asked.items if isinstance(asked, Several) else (asked,)


def leaving(
    queue: Sequence[Asked], most: int = MOST_ITEMS, under_way: Collection[AbstractSet[str | bytes]] = ()
) -> int:
    """Return how many calls leave together: with up to `most` items, or one call with more.

    A call with an item that is under way stays, and so do those behind it: equal items are answered in
    the order of their calls.
    """
    number = min(most, len(queue))
    if Several in map(type, queue[:number]):
        total = list(accumulate([len(items_of(asked)) for asked in queue[:number]]))
        number = max(1, bisect_right(total, most))
    items = gathered(queue[:number])
    if all(each.isdisjoint(items) for each in under_way):
        return number
    barred = set().union(*under_way)
    return next(at for at, asked in enumerate(queue) if not barred.isdisjoint(items_of(asked)))


def gathered(batch: Sequence[Asked]) -> list[str | bytes]:
    """Return the items of all calls of a batch."""
    if Several in map(type, batch):
        return list(chain.from_iterable(map(items_of, batch)))
    return list(batch)  # type: ignore[arg-type]  # there is no `Several`


Outcome = tuple[Any, list[bool] | Exception, int]
"""Of a call: an answer (a bool, or a list of them) or an error of its own; what its batch was answered, and
the index of its first item in the batch."""


def outcomes(batch: Sequence[Asked], answers: list[bool] | Exception) -> Iterable[Outcome]:
    """Return the outcome of each call."""
    if isinstance(answers, list) and Several not in map(type, batch):
        return zip(answers, repeat(answers), count(), strict=False)
    return _sliced(batch, answers)


def _sliced(batch: Sequence[Asked], answers: list[bool] | Exception) -> Iterator[Outcome]:
    error, known = None, answers
    tokens: Sequence[str | None] = ()
    if isinstance(known, Exception):
        error = known
        tokens = getattr(error, "tokens", ())
        known = error.results if isinstance(error, BatchInterruptedError) else []
    start = 0
    for asked in batch:
        stop = start + len(items_of(asked))
        own = known[start:stop]
        if len(own) < stop - start and error is not None:
            sent = start + len(own) - len(known)  # index of its first item without an answer among such
            yield _own_error(asked, own, error, tokens[sent : stop - len(known)]), answers, start
        else:
            yield own if isinstance(asked, Several) else own[0], answers, start
        start = stop


def keep(answers: list[bool] | Exception, start: int, count: int) -> None:
    """Keep the answers of a call whose caller is not there any more, for who asks again."""
    kept = answers.answers if isinstance(answers, BatchInterruptedError) else answers
    if isinstance(kept, Answers):
        kept.keep(range(start, min(start + count, len(kept))))


def _own_error(asked: Asked, own: list[bool], error: Exception, tokens: Sequence[str | None]) -> Exception:
    """Return the error for one caller: about its own items, with tokens of its own."""
    reason = error.__cause__ if isinstance(error, BatchInterruptedError) else None
    mine: Exception
    if not isinstance(reason, Exception):
        mine = copied(error)
    elif isinstance(asked, Several):
        mine = BatchInterruptedError(str(error), own, asked.source[len(own) :], tokens)
        mine.final = getattr(reason, "final", False) and bool(tokens)  # else of another caller
    else:
        mine = copied(reason)
        if isinstance(mine, OutcomeUnknownError):
            mine.token = tokens[0] if tokens else None
            if mine.token is None:  # its item was not sent, or asked about for another caller
                mine.final = False
                shared = (
                    f"a call that shared a round trip with this one was not answered ({reason.__cause__})"
                )
                mine.args = (f"{shared}; a second call on the same object answers as this one would have",)
    if mine is not reason:
        mine.__cause__ = reason or error.__cause__
    return mine


def copied(error: Exception) -> Exception:
    """Return a copy, so that callers share no exception object; the error itself if it cannot be copied."""
    try:
        mine = copy.copy(error)
    except Exception:
        return error
    return mine if isinstance(mine, type(error)) else error
