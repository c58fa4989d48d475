"""Answers still due to callers of one filter object: pending calls, stored answers, owners of claims.

An item is *pending* if it was in a call whose reply was lost, or whose answer arrived when its caller had
gone.  A retry gets the answer of that call.  Each entry knows the generation of the filter that its call was
sent to, and is void for every other one.

A claim without an answer leaves its *owner*, the name under which the server may know it.  A retry claims
under that name again, and gets the claim if the server had executed it.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, zip_longest
from typing import Final

from bloomredis.protocol import clock
from bloomredis.protocol.forks import renewed_after_fork
from bloomredis.protocol.keys import as_bytes
from bloomredis.protocol.receipts import RECEIPT_SECONDS, Pending

MOST_PENDING: Final = 1_000_000
"""Limit of pending items and of claims with an owner, together: some 300 MB."""

_log = logging.getLogger("bloomredis")


class PendingCalls:
    """The pending items of one filter object, and the owners of its claims without an answer.

    :param every_call_counts: of several calls about an item that are pending, each is answered by itself.
    """

    def __init__(self, *, every_call_counts: bool = False) -> None:
        self.every_call_counts = every_call_counts
        self.renew()

    def renew(self) -> None:
        """Begin with nothing pending: what a parent process is owed is not its children's."""
        self.items: dict[bytes, list[Pending]] = {}  # that are pending, with their calls, the oldest first
        self.owners: dict[bytes, set[bytes]] = {}  # by claim and holder
        self._given: dict[Pending, float] = {}  # to callers who had no token; until when that matters
        self._kept = itertools.count()
        self._lock = threading.Lock()
        renewed_after_fork(self)

    def __getstate__(self) -> dict[str, object]:
        return {"every_call_counts": self.every_call_counts}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self.renew()

    def add(
        self,
        items: Sequence[str | bytes],
        lane: str,
        call: str,
        generation: bytes,
        sent: float,
        *,
        late: Sequence[bool] = (),
    ) -> list[Pending]:
        """Record the items of a call without an answer, which was first sent at that monotonic time.

        :param late: answers that came too late to be relied on where they are not True.
        """
        until = sent + RECEIPT_SECONDS
        calls = [
            Pending(lane, call, index, generation, until, True if new else None)
            for index, (_, new) in enumerate(zip_longest(items, late))
        ]
        with self._lock:
            self._make_room()
            for item, pending in zip(items, calls, strict=True):
                self.items.setdefault(as_bytes(item), []).append(pending)
        return calls

    def store_answer(self, item: str | bytes, generation: bytes, *, answer: bool) -> None:
        """Record an answer whose caller has gone, for a retry.

        "Already there" need not be stored: it comes again.
        """
        if answer or self.every_call_counts:
            pending = Pending("", str(next(self._kept)), 0, generation, answer=answer)
            with self._lock:
                self._make_room()
                self.items.setdefault(as_bytes(item), []).append(pending)

    def find(self, item: str | bytes, generation: bytes) -> Pending | None:
        """Return the last pending call about an item, None if there is none."""
        for pending in reversed(self.items.get(as_bytes(item), ())) if self.items else ():
            if pending.generation == generation:
                return pending
        return None

    def unanswered(self, items: Sequence[str | bytes]) -> list[int]:
        """Return the indexes of items about which a call has no answer yet, unless every call counts."""
        if not self.items or self.every_call_counts:
            return []
        return [i for i, item in enumerate(items) if as_bytes(item) in self.items]

    def clear(self, generation: bytes | None = None) -> None:
        """Discard pending items, as the filter was cleared or deleted: all but those of this generation."""
        with self._lock:
            self.items = {
                item: own
                for item, calls in self.items.items()
                if (own := [each for each in calls if each.generation == generation])
            }

    @contextmanager
    def checkout(
        self, encoded: str | bytes, generation: bytes, token: Pending | None
    ) -> Iterator[list[Pending]]:
        """Take out the pending calls about an item; they are pending again if the block raises.

        Where every call counts, one whose answer cannot be known any more is not: it was said, and the next
        call is one of its own.

        :param token: the caller's; without one all are taken, or the oldest where every call counts.
        """
        item = as_bytes(encoded)
        with self._lock:
            known = self.items.pop(item, [])
            mine = [each for each in known if each.generation == generation and token in (None, each)]
            if self.every_call_counts:
                mine = mine[:1]
            if others := [each for each in known if each not in mine]:
                self.items[item] = others
            if token is None:
                self._given.update((each, each.until) for each in mine if each.answer is None)
        try:
            if token is not None and not mine and token not in self._given:  # that of another object
                # One of another generation is void, as other pending calls are.
                mine_or_theirs = [token] if generation.startswith(token.generation) else []
            else:
                mine_or_theirs = mine
            yield mine_or_theirs
        except BaseException as error:
            with self._lock:
                if mine and not (self.every_call_counts and getattr(error, "final", False)):
                    self.items.setdefault(item, []).extend(mine)
                for each in mine:
                    self._given.pop(each, None)
            raise

    def split_runs(
        self, items: Sequence[str | bytes], start: int, stop: int, most: int, generation: bytes
    ) -> Iterator[tuple[int, int, bool]]:
        """Split a batch from `start` to `stop` into runs of at most `most` items, and single pending ones.

        Of equal items only the first is answered as pending, or as many as are where every call counts.
        """
        if self.items:
            seen: set[bytes] = set()
            for at in range(start, stop):
                item = as_bytes(items[at])
                # Where every call counts, the equal item before this one has been answered by now.
                if self.find(item, generation) and (self.every_call_counts or item not in seen):
                    yield from _runs(start, at, most)
                    yield at, at + 1, True
                    start = at + 1
                    seen.add(item)
        yield from _runs(start, stop, most)

    def checkout_owners(self, claim: bytes) -> list[bytes]:
        """Take out the owners for one claim, of a name the newest first.

        Several callers may have asked for one item, and only the server knows whose call came first.  The
        newest takes over from the others, whose late copies take nothing back then.
        """
        if not self.owners:
            return []
        with self._lock:
            return sorted(self.owners.pop(claim, ()), reverse=True)

    def store_owners(self, claim: bytes, owners: Sequence[bytes]) -> None:
        """Record owners for one claim."""
        if owners:
            with self._lock:
                self._make_room()
                self.owners.setdefault(claim, set()).update(owners)

    @property
    def is_empty(self) -> bool:
        """True if no caller is owed an answer."""
        return not (self.items or self.owners)

    def _make_room(self) -> None:
        """Forget the oldest entries if there are too many."""
        now = clock.now()
        while self._given and self._given[next(iter(self._given))] <= now:
            del self._given[next(iter(self._given))]
        if len(self.items) + len(self.owners) >= MOST_PENDING:
            larger: dict[bytes, list[Pending]] | dict[bytes, set[bytes]]
            larger = self.items if len(self.items) >= len(self.owners) else self.owners
            oldest = list(islice(larger, MOST_PENDING // 100))
            for key in oldest:
                del larger[key]
            _log.error(
                "%d calls have no answer, or one that their callers did not get; the oldest %d are forgotten",
                *(MOST_PENDING, len(oldest)),
            )


def _runs(first: int, last: int, most: int) -> Iterator[tuple[int, int, bool]]:
    for start in range(first, last, most):
        yield start, min(start + most, last), False
