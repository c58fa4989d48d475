"""Answers that one filter object still owes to its callers: pending calls, stored answers, owners of claims.

An item is *pending* if the reply to its call was lost, or arrived after its caller had gone.  A retry gets
the answer of that call.  Each entry records the generation of the filter that its call was sent to, and is
void for every other generation.

A claim without an answer leaves its *owner*: the name under which the server may have stored the claim.  A
retry claims under that name again, and gets the claim if the server had executed it.  An owner is kept until
the lease has ended.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from typing import Final, NamedTuple

from bloomredis.protocol import clock
from bloomredis.protocol.forks import process, register_after_fork
from bloomredis.protocol.keys import as_bytes
from bloomredis.protocol.receipts import RECEIPT_SECONDS, Pending

MOST_PENDING: Final = 1_000_000
"""The limit of pending items and unanswered claims together, which take some 300 MB."""

LeftClaim = tuple[bytes, bytes, bytes, float]
"""A claim that reached no caller: the item, the holder, the owner, and when the lease ends."""

_log = logging.getLogger("bloomredis")


class PendingCalls:
    """The pending items of one filter object, and the owners of its unanswered claims.

    :param every_call_counts: each pending call about an item gets its own answer, as a counting filter needs.
    """

    def __init__(self, *, every_call_counts: bool = False) -> None:
        self.every_call_counts = every_call_counts
        self.after_fork()

    def after_fork(self) -> None:
        """Begin without pending calls: the parent's callers are not in this process."""
        self.items: dict[bytes, list[Pending]] = {}  # pending items with their calls, oldest first
        self.owners: dict[bytes, dict[bytes, float]] = {}  # by claim and holder: when their leases end
        self.left: deque[LeftClaim] = deque()  # claims that reached no caller
        self._without_token: dict[
            Pending, float
        ] = {}  # calls answered without a token, and when their receipts end
        self._answer_numbers = itertools.count()
        self._lock = threading.Lock()
        register_after_fork(self)

    def __getstate__(self) -> dict[str, object]:
        return {"every_call_counts": self.every_call_counts}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self.after_fork()

    def add(
        self,
        items: Sequence[str | bytes],
        session: str,
        call: str,
        generation: bytes,
        sent: float,
        *,
        late: Sequence[bool] = (),
    ) -> list[Pending]:
        """Record the items of a call without an answer.

        :param sent: the monotonic time at which the call was first sent.
        :param late: answers that came so late that the receipt may have expired; only True is reliable.
        """
        until = sent + RECEIPT_SECONDS
        calls = [
            Pending(session, call, index, generation, until, True if new else None)
            for index, (_, new) in enumerate(zip_longest(items, late))
        ]
        with self._lock:
            self._make_room()
            for item, pending in zip(items, calls, strict=True):
                self._put(as_bytes(item), pending)
        return calls

    def leave(self, item: str | bytes, generation: bytes, *, answer: bool) -> None:
        """Leave an answer whose caller has gone to the next call about the item.

        The answer "already there" need not be kept unless every call counts: a retry gets it again.
        """
        if answer or self.every_call_counts:
            pending = Pending("", str(next(self._answer_numbers)), 0, generation, answer=answer)
            with self._lock:
                self._make_room()
                self._put(as_bytes(item), pending)

    def _put(self, item: bytes, *calls: Pending) -> None:
        """Record calls about an item in one step; those that are there stay once."""
        known = self.items.get(item, ())
        self.items[item] = [*known, *(each for each in calls if each not in known)]

    def find(self, item: str | bytes, generation: bytes, besides: Container[Pending] = ()) -> Pending | None:
        """Return the latest pending call about an item in this generation besides some, or None."""
        for pending in reversed(self.items.get(as_bytes(item), ())) if self.items else ():
            if pending.generation == generation and pending not in besides:
                return pending
        return None

    def clear(self, present: Callable[[], bytes | None]) -> None:
        """Discard pending items after the filter was cleared or deleted, except those of this generation.

        :param present: returns the generation; None keeps those of all generations, since one of them may be
            the present one.  A bitmap of another system has none, and its calls before the clear are void.
        """
        with self._lock:
            generation = present()
            self.items = {
                item: own
                for item, calls in self.items.items()
                if (
                    own := [
                        each for each in calls if each.generation and generation in (None, each.generation)
                    ]
                )
            }

    def discard(self, calls: Sequence[tuple[str | bytes, Pending]]) -> None:
        """Discard pending calls, each with its item, whose answers nobody wants."""
        with self._lock:
            for encoded, pending in calls:
                item = as_bytes(encoded)
                if left := [each for each in self.items.pop(item, ()) if each != pending]:
                    self.items[item] = left

    def checkout(
        self, encoded: str | bytes, generation: bytes, token: Pending | None, mine: list[Pending]
    ) -> list[Pending]:
        """Take out the pending calls about an item; return those to ask about.

        :param token: the caller's token.  Without it all calls are taken out, or the oldest one if every
            call counts.
        :param mine: gets the calls that are taken out.  The caller calls `put_back` after any error, also of
            this method.
        """
        item = as_bytes(encoded)
        with self._lock:
            calls = self.items.get(item, [])
            mine += [each for each in calls if each.generation == generation and token in (None, each)]
            if self.every_call_counts:
                del mine[1:]
            if others := [each for each in calls if each not in mine]:
                self.items[item] = others
            else:
                self.items.pop(item, None)
            if token is None:
                self._without_token.update((each, each.until) for each in mine if each.answer is None)
        if token is not None and not mine and token not in self._without_token:  # a token of another object
            # A token of another generation is void, like a pending call of another generation.
            return [token] if generation.endswith(token.generation) else []
        return mine

    def put_back(self, encoded: str | bytes, calls: Sequence[Pending], error: BaseException) -> None:
        """Put calls back about an item, after the error of the attempt to get their answers.

        If every call counts, a call is not put back after an error with `final`: its answer can no longer be
        known, and the next call counts by itself.
        """
        with self._lock:
            if calls and not (self.every_call_counts and getattr(error, "final", False)):
                self._put(as_bytes(encoded), *calls)
            for each in calls:
                self._without_token.pop(each, None)

    def split_runs(
        self, items: Sequence[str | bytes], start: int, stop: int, most: int, generation: bytes
    ) -> Iterator[tuple[int, int, bool]]:
        """Split a batch from `start` to `stop` into runs of at most `most` items, and single pending ones.

        Of equal items only the first counts as pending.  If every call counts, each pending call makes one
        of the equal items pending.
        """
        if self.items:
            seen: set[bytes] = set()
            for at in range(start, stop):
                item = as_bytes(items[at])
                # If every call counts, the caller has already taken out the call of an earlier equal item.
                if self.find(item, generation) and (self.every_call_counts or item not in seen):
                    yield from _runs(start, at, most)
                    yield at, at + 1, True
                    start = at + 1
                    seen.add(item)
        yield from _runs(start, stop, most)

    def checkout_owners(self, claim: bytes, own: list[bytes]) -> None:
        """Replace `own` by the owners of a holder's claim, if there are any, and take those out.

        Several callers may have claimed one item, and only the server knows whose call came first.
        """
        if self.owners:
            with self._lock:
                self._end_owners()
                own[:] = sorted(
                    self.owners.get(claim, own)
                )  # if interrupted here, the caller stores them again
                self.owners.pop(claim, None)

    def store_left(self, key: Callable[[bytes], bytes]) -> None:
        """Record the owners of claims that reached no caller; `key` returns the key of an item's claim."""
        with self._lock:
            self._make_room()
            while self.left:
                encoded, holder, owner, until = self.left[0]
                self._put_owners(key(encoded) + holder, {owner: until})
                self.left.popleft()

    def store_owners(self, claim: bytes, owners: Sequence[bytes], until: float) -> None:
        """Record owners of one claim, whose leases end by a monotonic time."""
        if owners:
            with self._lock:
                self._make_room()
                self._put_owners(claim, dict.fromkeys(owners, until))

    def _put_owners(self, claim: bytes, until: Mapping[bytes, float]) -> None:
        """Record owners of a claim in one step, each with the time when its lease ends."""
        self.owners[claim] = {**self.owners.get(claim, {}), **until}

    @property
    def has_owners(self) -> bool:
        """True if a claim may have an owner that is to be used again."""
        return bool(self.owners or self.left)

    def _end_owners(self) -> None:
        """Discard the oldest owners, as far as their leases have ended."""
        now = clock.now()
        while self.owners:
            oldest = next(iter(self.owners))
            if max(self.owners[oldest].values()) > now:
                break
            del self.owners[oldest]

    def _make_room(self) -> None:
        """Discard the oldest entries at the limit."""
        now = clock.now()
        while self._without_token and self._without_token[next(iter(self._without_token))] <= now:
            del self._without_token[next(iter(self._without_token))]
        if len(self.items) + len(self.owners) >= MOST_PENDING:
            larger: dict[bytes, list[Pending]] | dict[bytes, dict[bytes, float]]
            larger = self.items if len(self.items) >= len(self.owners) else self.owners
            oldest = list(islice(larger, MOST_PENDING // 100))
            for key in oldest:
                del larger[key]
            _log.error(
                "%d calls are pending (the reply or its caller was lost); the oldest %d are forgotten",
                *(MOST_PENDING, len(oldest)),
            )


class SentItems(NamedTuple):
    """The items of a batch that were sent to one filter.

    :ivar generations: the generations that were asked, each with the index of its first item.
    """

    pending: PendingCalls
    items: Sequence[str | bytes]
    generations: list[tuple[int, bytes]]

    def leave_some(self, answers: Mapping[int, bool]) -> None:
        """Leave the answers to the items with these indexes."""
        for i, answer in answers.items():
            generation = next(own for first, own in reversed(self.generations) if first <= i)
            self.pending.leave(self.items[i], generation, answer=answer)


class Answers(list[bool]):
    """The answers to a batch of adds, in order: whether each item was new.

    If their caller is gone, they are left to the next calls about the items.  An item of a shared batch that
    was refused by itself has an error instead.  A forked child leaves none of its parent's answers.

    :param parts: the sources of the answers; each with the places that its own items have in this batch.
    """

    def __init__(
        self,
        answers: Iterable[bool] = (),
        parts: Iterable[tuple[Sequence[int], SentItems | Answers]] = (),
    ) -> None:
        super().__init__(answers)
        self._parts = [*parts]
        self._process = process()

    def leave(self, start: int = 0, stop: int | None = None) -> None:
        """Leave the answers from `start` to `stop` to the next calls about their items."""
        told = enumerate(self[start:stop], start)
        self.leave_some({place: answer for place, answer in told if isinstance(answer, bool)})

    def leave_some(self, answers: Mapping[int, bool]) -> None:
        """Leave the answers at these places."""
        for own, part in self._parts if self._process is process() else ():
            part.leave_some({i: answers[place] for i, place in enumerate(own) if place in answers})


def _runs(first: int, last: int, most: int) -> Iterator[tuple[int, int, bool]]:
    for start in range(first, last, most):
        yield start, min(start + most, last), False
