"""Group commit without I/O: the queue of waiting calls, their batches, and the outcome of each call.

If no call is in flight, a call is sent at once, alone.  Calls that come while others are in flight wait, in
order, and share the next round trip.  No call waits for a timer.  The module `tasks` sends the batches.
"""

from __future__ import annotations

import asyncio
import copy
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, compress
from typing import Any, Final, NamedTuple, cast

from bloomredis.errors import BatchInterruptedError
from bloomredis.operations.claims.requests import ClaimRequest
from bloomredis.operations.items.outcomes import own_error, raise_interrupted
from bloomredis.protocol.pending import Answers

Waiting = asyncio.Future[Any]
"""A waiting caller: the future that it awaits, which is done early if the caller is cancelled."""

BatchOutcome = list[Any] | Exception
"""The answers to all items of a batch, in order (bools or replies); or an error."""

MOST_ITEMS: Final = 400
"""The most items that share one script call; with 7 hashes these make about `PROBES_A_CALL` probes."""


def processors() -> int:
    """Return the number of processors that this process may use."""
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1


BATCHES: Final = 2
"""Batches in flight at once: the server works on one while this process packs or hands out the other."""

FEWEST_ITEMS: Final = 32 if processors() > 1 else 64
"""Calls for which a second batch in flight is worthwhile.  A batch costs this process about 100 µs, which
delays the server only if both share one processor."""


class ItemBatch(NamedTuple):
    """The items of a call with several items: encoded, and as the caller gave them."""

    items: Sequence[str | bytes]
    source: Sequence[object]


Key = str | bytes
"""An encoded item; no item is in two batches or calls that are in flight at the same time."""
SharedRequest = Key | ItemBatch | ClaimRequest
"""The subject of a call: one encoded item, several, or a request about one."""


def items_of(asked: SharedRequest) -> Sequence[Key | ClaimRequest]:
    """Return the items of one call, or its request."""
    return asked.items if isinstance(asked, ItemBatch) else (asked,)


class Batch:
    """Calls that share a round trip: their callers, the items of each, and the items of all."""

    def __init__(self, callers: list[Waiting], asked: list[SharedRequest]) -> None:
        self.callers, self.asked = callers, asked
        self.items = _gathered(asked)
        self.own = set(_keys(asked))
        self.answers: BatchOutcome | None = None

    def delivered(self, answers: BatchOutcome) -> Iterator[tuple[Waiting, object]]:
        """Return each caller with its answer (a list for several items), or with its own error.

        :param answers: the answers to all items, or an error.
        """
        self.answers = answers
        return zip(self.callers, _answers(self.asked, answers), strict=False)

    def leave(self, caller: Waiting) -> None:
        """Leave the claim or the answers of a caller that has gone to the next call about the items."""
        if caller not in self.callers:
            return
        at = self.callers.index(caller)
        asked, start = self.asked[at], sum(len(items_of(asked)) for asked in self.asked[:at])
        kept = self.answers.results if isinstance(self.answers, BatchInterruptedError) else self.answers
        if isinstance(asked, ClaimRequest):
            asked.state.leave()
        elif isinstance(kept, Answers):
            kept.leave(start, start + len(items_of(asked)))


class Batcher:
    """The calls of one sender: those that wait, in order, and the items in flight.

    A batch takes half of all calls, waiting and in flight, or `FEWEST_ITEMS` if that is more; with fewer it
    leaves only if nothing is in flight.  So two batches take turns: one in the server, one in this process.
    """

    def __init__(self) -> None:
        self.callers: list[Waiting] = []
        self.asked: list[SharedRequest] = []  # the items of each waiting caller
        self.in_flight: list[set[Key]] = []  # the items of each batch, and of each call alone

    def __len__(self) -> int:
        return len(self.callers)

    def begin(self, asked: SharedRequest) -> set[Key]:
        """Record that a call is sent alone; return its items, for `end`."""
        if isinstance(asked, ItemBatch):
            own = set(asked.items)
        else:
            own = {asked.encoded if isinstance(asked, ClaimRequest) else asked}
        self.in_flight.append(own)
        return own

    def end(self, own: set[Key]) -> None:
        """Record that these items are not in flight any more."""
        self.in_flight.remove(own)

    def depart(self) -> Batch | None:
        """Take the next batch from the queue; None if the calls wait until `end`.

        Callers that are gone are dropped.
        """
        while self.asked and len(self.in_flight) < BATCHES:
            half = max(FEWEST_ITEMS, (len(self.asked) + sum(map(len, self.in_flight)) + 1) // 2)
            if self.in_flight and len(self.asked) < half:
                break
            number = self._leaving(min(MOST_ITEMS, half))
            if not number:
                break
            callers, asked = self._taken(number)
            if any(map(asyncio.Future.done, callers)):
                waiting = [not caller.done() for caller in callers]
                callers, asked = list(compress(callers, waiting)), list(compress(asked, waiting))
            if callers:
                batch = Batch(callers, asked)
                self.in_flight.append(batch.own)
                return batch
        return None

    def _taken(self, number: int) -> tuple[list[Waiting], list[SharedRequest]]:
        """Remove the first calls from the queue, but no requests of another verb than the first one's.

        So a batch of requests is one script.  Claims and commits that left together would stay together:
        their callers' next requests would leave at one time, too.
        """
        callers, asked = self.callers[:number], self.asked[:number]
        del self.callers[:number], self.asked[:number]
        if isinstance(asked[0], ClaimRequest):
            verb = asked[0].verb
            own = [request.verb == verb for request in cast("list[ClaimRequest]", asked)]
            if not all(own):
                others = [not each for each in own]
                self.callers[:0], self.asked[:0] = compress(callers, others), compress(asked, others)
                callers, asked = list(compress(callers, own)), list(compress(asked, own))
        return callers, asked

    def _leaving(self, most: int) -> int:
        """Return the number of calls that leave together: up to `most` items in all, or one call with more.

        A call with an item in flight waits, and so do all calls after it: equal items are answered in the
        order of their calls.
        """
        number = min(most, len(self.asked))
        if ItemBatch in map(type, self.asked[:number]):
            total = list(accumulate([len(items_of(asked)) for asked in self.asked[:number]]))
            number = max(1, bisect_right(total, most))
        leaving = _keys(self.asked[:number]) if self.in_flight else ()
        if all(each.isdisjoint(leaving) for each in self.in_flight):
            return number
        barred = set().union(*self.in_flight)
        return next(at for at, asked in enumerate(self.asked) if not barred.isdisjoint(_keys((asked,))))


def _keys(batch: Sequence[SharedRequest]) -> list[Key]:
    """Return the items of all calls of a batch, also of requests."""
    if isinstance(batch[0], ClaimRequest):
        return [request.encoded for request in cast("Sequence[ClaimRequest]", batch)]
    return _gathered(batch)


def _gathered(batch: Sequence[SharedRequest]) -> list[Any]:  # usually each call is one item
    """Return the items of all calls of a batch, or their requests."""
    return list(chain.from_iterable(map(items_of, batch)) if ItemBatch in map(type, batch) else batch)


def _answers(batch: Sequence[SharedRequest], answers: BatchOutcome) -> Iterable[object]:
    """Return the answer or the error of each call."""
    if not isinstance(answers, list) or ItemBatch in map(type, batch):
        return _sliced(batch, answers)
    if isinstance(batch[0], ClaimRequest):  # several may have one error
        return [own_error(each, ()) if isinstance(each, Exception) else each for each in answers]
    return answers


def _sliced(batch: Sequence[SharedRequest], answers: BatchOutcome) -> Iterator[object]:
    error: Exception | None = None
    tokens: Sequence[str | None] = ()
    known: list[Any]
    if isinstance(answers, Exception):
        error = answers
        tokens = getattr(error, "tokens", ())
        known = error.results if isinstance(error, BatchInterruptedError) else []
    else:
        known = answers
    start = 0
    for asked in batch:
        stop = start + len(items_of(asked))
        own = known[start:stop]
        refused = next((at for at, each in enumerate(own) if isinstance(each, Exception)), None)
        if refused is not None and isinstance(asked, ItemBatch):
            if isinstance(answers, Answers):  # the answers behind it are for a retry
                answers.leave(start + refused + 1, stop)
            yield _refused(asked, own, refused)
        elif len(own) < stop - start and error is not None:
            # `tokens` begins with the first item without an answer.
            sent = start + len(own) - len(known)
            yield _own_error(asked, own, error, tokens[sent : stop - len(known)])
        else:
            yield own if isinstance(asked, ItemBatch) else own[0]
        start = stop


def _refused(asked: ItemBatch, own: list[Any], at: int) -> Exception:
    """Return the error for a caller of whose items the one at this index was refused."""
    try:
        raise_interrupted("add_many", own[:at], asked.source, own[at])
    except Exception as error:
        return error


def _own_error(
    asked: SharedRequest, own: list[Any], error: Exception, tokens: Sequence[str | None]
) -> Exception:
    """Return the error for one caller, with the caller's own items and tokens."""
    if not (isinstance(asked, ItemBatch) and isinstance(error, BatchInterruptedError)):
        return own_error(error, tokens)
    reason = error.__cause__
    mine = copy.copy(error)
    mine.results, mine.rest, mine.tokens = own, asked.source[len(own) :], tokens
    mine.final = getattr(reason, "final", False) and bool(tokens)  # else another caller's item is final
    mine.__cause__ = reason
    return mine
