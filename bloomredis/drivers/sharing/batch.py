"""Group commit without I/O: which waiting calls share the next round trip, and the outcome of each.

A call that finds nobody under way goes at once, alone.  Calls that arrive while others are under way
wait, in order, and leave together in the next round trip.  Nothing waits on a timer.  `threads` and `tasks`
park and wake the callers, and send.
"""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, compress
from typing import Any, Final, Generic, NamedTuple, TypeVar

from bloomredis.errors import BatchInterruptedError, OutcomeUnknownError
from bloomredis.operations.items.outcomes import Answers
from bloomredis.protocol.merging import make_all
from bloomredis.protocol.steps import Call, Op, Reply, Step

S = TypeVar("S")
T = TypeVar("T")
W = TypeVar("W")

BatchOutcome = list[Any] | Exception
"""The answers to all items of a batch, in order, bools or replies; or the error in their place."""

MOST_ITEMS: Final = 400
"""Items that share one script call; with 7 hashes that is about what it may take (`PROBES_A_CALL`)."""


class Several(NamedTuple):
    """The items of a call with several: encoded, and as they came."""

    items: Sequence[str | bytes]
    source: Sequence[object]


class Own:
    """A script call that shares a round trip; no other call is equal to it."""

    __slots__ = ("call",)

    def __init__(self, call: Call) -> None:
        self.call = call

    def alone(self) -> Call:
        """Return the step that makes the call."""
        return self.call

    @staticmethod
    def together(batch: Sequence[Own], _: object) -> Op[list[Reply]]:
        """Return the operation that makes all calls of a batch."""
        return make_all([each.call for each in batch])


class CallSharing(Generic[S, T]):
    """Executes the steps of operations; a call of one script may share its round trip.

    It shares that with others to its server: no lease runs out while another server does not answer.

    :param make: returns what sends the calls to one server.
    :param share: lets that send one.
    """

    def __init__(
        self,
        make: Callable[[], S],
        share: Callable[[S, Own, Callable[[Own], Call], Own], T],
        execute_step: Callable[[Any, Step], T],
    ) -> None:
        self._make, self._share, self._execute_step = make, share, execute_step
        self.servers: dict[tuple[int, ...], S] = {}

    def execute(self, client: Any, step: Step) -> T:
        """Execute a step."""
        if not isinstance(step, Call) or not step.is_single:
            return self._execute_step(client, step)  # WAIT keeps a connection busy
        server = self.servers.get(step.server) or self.servers.setdefault(step.server, self._make())
        own = Own(step)
        return self._share(server, own, Own.alone, own)


Key = str | bytes | Own
"""What is under way once at a time: an encoded item, or a script call."""
Asked = Key | Several
"""What a call asks for: one encoded item, several, or a script call of its own."""


def items_of(asked: Asked) -> Sequence[Key]:
    """Return the items of one call."""
    return asked.items if isinstance(asked, Several) else (asked,)


class Batch(Generic[W]):
    """Calls that share a round trip: their callers, what each asks for, and the items of all."""

    def __init__(self, callers: list[W], asked: list[Asked]) -> None:
        self.callers, self.asked = callers, asked
        self.items = _gathered(asked)
        self.own = set(self.items)
        self.answers: BatchOutcome | None = None

    def delivered(self, answers: BatchOutcome) -> Iterator[tuple[W, object]]:
        """Return each caller with its answer (of several items a list), or with an error of its own.

        :param answers: those to all items, or the error in their place.
        """
        self.answers = answers
        return zip(self.callers, _answers(self.asked, answers), strict=False)

    def keep(self, caller: W) -> None:
        """Save the answers of a caller that has gone, for a retry."""
        kept = self.answers.answers if isinstance(self.answers, BatchInterruptedError) else self.answers
        if isinstance(kept, Answers) and caller in self.callers:
            at = self.callers.index(caller)
            start = sum(len(items_of(asked)) for asked in self.asked[:at])
            kept.keep(range(start, min(start + len(items_of(self.asked[at])), len(kept))))


class Batcher(Generic[W]):
    """The calls of one verb: those that wait, in order, and the items under way.

    :param is_gone: returns whether a caller waits no longer; its call leaves with no batch.
    :param batches: limit of batches under way.
    :param fewest: items worth a batch while another is under way.  Of more than that half of all calls leave
        together, so that two batches take turns: one in the server, one here.
    """

    def __init__(self, is_gone: Callable[[W], bool], batches: int, fewest: int) -> None:
        self._is_gone, self._batches, self._fewest = is_gone, batches, fewest
        self.callers: list[W] = []  # those that wait,
        self.asked: list[Asked] = []  # and what each asks for
        self.under_way: list[set[Key]] = []  # the items of each batch, and of a call alone

    def __len__(self) -> int:
        return len(self.callers)

    def begin(self, asked: Asked) -> set[Key]:
        """Note that a call goes alone; return its items, for `end`."""
        own = set(items_of(asked))
        self.under_way.append(own)
        return own

    def end(self, own: set[Key]) -> None:
        """Note that these items are under way no longer."""
        if own in self.under_way:  # else a forked child ends a call that its parent began
            self.under_way.remove(own)

    def depart(self) -> Batch[W] | None:
        """Take the calls that leave now; None if they stay until `end`."""
        while self.asked and len(self.under_way) < self._batches:
            half = max(self._fewest, (len(self.asked) + sum(map(len, self.under_way)) + 1) // 2)
            if self.under_way and len(self.asked) < half:
                break
            number = self._leaving(min(MOST_ITEMS, half))
            if not number:
                break
            callers, asked = self.callers[:number], self.asked[:number]
            del self.callers[:number], self.asked[:number]
            if any(map(self._is_gone, callers)):
                waiting = [not self._is_gone(caller) for caller in callers]
                callers, asked = list(compress(callers, waiting)), list(compress(asked, waiting))
            if callers:
                batch = Batch(callers, asked)
                self.under_way.append(batch.own)
                return batch
        return None

    def _leaving(self, most: int) -> int:
        """Return how many calls leave together: with up to `most` items, or one call with more.

        A call with an item that is under way stays, and so do those behind it: equal items are answered in
        the order of their calls.
        """
        number = min(most, len(self.asked))
        if Several in map(type, self.asked[:number]):
            total = list(accumulate([len(items_of(asked)) for asked in self.asked[:number]]))
            number = max(1, bisect_right(total, most))
        if all(each.isdisjoint(_gathered(self.asked[:number])) for each in self.under_way):
            return number
        barred = set().union(*self.under_way)
        return next(at for at, asked in enumerate(self.asked) if not barred.isdisjoint(items_of(asked)))


def _gathered(batch: Sequence[Asked]) -> list[Any]:  # of `Key`: mostly they are the calls themselves
    """Return the items of all calls of a batch."""
    return list(chain.from_iterable(map(items_of, batch)) if Several in map(type, batch) else batch)


def _answers(batch: Sequence[Asked], answers: BatchOutcome) -> Iterable[object]:
    """Return the answer or the error of each call."""
    if not isinstance(answers, list) or Several in map(type, batch):
        return _sliced(batch, answers)
    return map(_answer_of_its_own, answers) if isinstance(batch[0], Own) else answers


def _answer_of_its_own(answer: object) -> object:
    return copied(answer) if isinstance(answer, Exception) else answer


def _sliced(batch: Sequence[Asked], answers: BatchOutcome) -> Iterator[object]:
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
        if len(own) < stop - start and error is not None:
            sent = start + len(own) - len(known)  # index of its first item without an answer among such
            yield _own_error(asked, own, error, tokens[sent : stop - len(known)])
        else:
            yield own if isinstance(asked, Several) else own[0]
        start = stop


def _own_error(asked: Asked, own: list[Any], error: Exception, tokens: Sequence[str | None]) -> Exception:
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
