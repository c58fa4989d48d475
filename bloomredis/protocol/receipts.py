"""What makes a call safe to send again: lanes, tokens, and items whose outcome is not known.

Every mutating call travels in a *lane*, which carries one call at a time and numbers them.  The
script keeps the last reply of each lane (lua/include/receipts.lua), so a call that arrives twice, re-sent
by the client or by the caller, gets the answer of its first execution.  A lane is used again once its
call was answered; one whose call was not is left alone until the server forgets its receipt.  So
receipts are bounded by concurrent callers, not by calls.

A *token* names an item of a call: lane, number of the call, place of the item in it.  The lanes of removals
have names of their own, so that a token is never taken for one of the other kind.
"""

from __future__ import annotations

import itertools
import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from bloomredis.protocol.keys import as_bytes, beside

KEPT_SECONDS: Final = 110.0
"""How long a doubt is remembered: a little less than the script keeps a receipt."""

MOST_DOUBTS: Final = 100_000
REMOVAL: Final = "r"
"""What marks the lanes of removals."""

_TOKEN: Final = re.compile(r"([0-9a-f]{16}-(r?)[0-9a-f]+)/(\d{1,15})/(\d{1,9})")


class Lane:
    """A name under which one call at a time is made."""

    __slots__ = ("calls", "key", "name")

    def __init__(self, name: str, key: bytes) -> None:
        self.name = name
        self.key = key
        self.calls = 0

    def next_call(self) -> int:
        """Return the number of a new call."""
        self.calls += 1
        return self.calls


@dataclass(frozen=True, slots=True)
class Place:
    """Where an item was in a call whose reply never arrived."""

    lane: str
    call: int
    index: int

    def __str__(self) -> str:
        return f"{self.lane}/{self.call}/{self.index}"


def parse_token(token: str, mark: str = "") -> Place:
    """Return the place that a token names; `ValueError` for what is no token of a call with this mark."""
    match = _TOKEN.fullmatch(token)
    if match is None or match[2] != mark:
        raise ValueError(f"token must be that of an OutcomeUnknownError of this call, not {token!r}")
    return Place(match[1], int(match[3]), int(match[4]))


Doubt = tuple[Place, float]
"""Where an item was in a call without an answer, and until when that is worth knowing."""


class Receipts:
    """The lanes of one filter object, and the items whose answers it is owed.

    :param mark: what the names of the lanes are marked with.
    :param counts: every call counts: of several about an item that have no answer, each is owed its own.
    """

    def __init__(self, key: bytes, *, mark: str = "", counts: bool = False) -> None:
        self._prefix = beside(key) + b"receipt:"
        self._mark = mark
        self._counts = counts
        self._renew()

    def _renew(self) -> None:
        # A forked child must not number its calls in its parent's lanes.
        self._pid = os.getpid()
        self._random = os.urandom(8).hex()
        self._numbers = itertools.count()
        self._free: list[Lane] = []
        self._doubts: dict[bytes, list[Doubt]] = {}
        self._taken: dict[Place, float] = {}  # answers given to callers who had no token
        self._lock = threading.Lock()  # of the doubts: threads share a filter object

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in ("_prefix", "_mark", "_counts")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._renew()

    def take(self) -> Lane:
        """Return a lane that no other call uses."""
        if self._pid != os.getpid():
            self._renew()
        try:
            return self._free.pop()
        except IndexError:
            name = f"{self._random}-{self._mark}{next(self._numbers):x}"
            return Lane(name, self.key(name))

    def give_back(self, lane: Lane) -> None:
        """Let a lane be used again, its last call being answered."""
        self._free.append(lane)

    def key(self, name: str) -> bytes:
        """Return the key of the receipt of a lane, or of a token's item called again."""
        return self._prefix + name.encode()

    # -- doubts: encoded items whose call was not answered, in the order of their age

    def doubt(self, items: Sequence[str | bytes], lane: str, call: int) -> None:
        """Remember that the items of a call have no answer.

        An item may be in several such calls, and the one that was executed first has the answer.
        """
        until = time.monotonic() + KEPT_SECONDS
        with self._lock:
            for index, item in enumerate(items):
                known = self._doubts.setdefault(as_bytes(item), [])
                known.append((Place(lane, call, index), until))
            self._forget()

    @property
    def in_doubt(self) -> bool:
        """Whether there is any item whose call was not answered."""
        if not self._doubts:
            return False
        with self._lock:
            self._forget()
        return bool(self._doubts)

    def place(self, item: str | bytes) -> Place | None:
        """Return where an item was in its last call without an answer, None if there is none."""
        known = self._doubts.get(as_bytes(item)) if self._doubts else None
        return known[-1][0] if known and known[-1][1] > time.monotonic() else None

    def settled(self) -> None:
        """Owe nothing any more: what was in doubt is gone with the filter."""
        with self._lock:
            self._doubts.clear()

    @contextmanager
    def owed(self, encoded: str | bytes, place: Place | None) -> Iterator[list[Place]]:
        """Take the answers that are owed for an item; unless the block fails, nobody else gets them.

        :param place: that of the caller's token; without one the caller takes all that is in doubt, or the
            oldest where every call counts.
        """
        item, now = as_bytes(encoded), time.monotonic()
        with self._lock:
            known = [doubt for doubt in self._doubts.pop(item, []) if doubt[1] > now]
            mine = [doubt for doubt in known if place is None or doubt[0] == place]
            if self._counts:
                mine = mine[:1]
            if others := [doubt for doubt in known if doubt not in mine]:
                self._doubts[item] = others
            places = [doubt[0] for doubt in mine]
            if place is None:
                self._taken.update(mine)
            elif not mine and place not in self._taken:
                places = [place]  # another filter object's token
        try:
            yield places
        except BaseException:
            with self._lock:
                if mine:
                    self._doubts.setdefault(item, []).extend(mine)
                for taken, _ in mine:
                    self._taken.pop(taken, None)
            raise

    def runs(
        self, items: Sequence[str | bytes], start: int, stop: int, most: int
    ) -> Iterator[tuple[int, int, Place | None]]:
        """Cut a batch from `start` to `stop`: into runs of `most` items, and single ones that are in doubt.

        Of equal items only the first is owed the answer of the earlier call, or where every call counts, as
        many as are in doubt.
        """
        if self._doubts:
            with self._lock:
                self._forget()
            seen: set[bytes] = set()
            for at in range(start, stop):
                item = as_bytes(items[at])
                place = self.place(item)  # where every call counts, the one before is settled by now
                if place is not None and (self._counts or item not in seen):
                    yield from _cut(start, at, most)
                    yield at, at + 1, place
                    start = at + 1
                    seen.add(item)
        yield from _cut(start, stop, most)

    def _forget(self) -> None:
        now = time.monotonic()
        while self._doubts:
            oldest = next(iter(self._doubts))
            if self._doubts[oldest][-1][1] > now and len(self._doubts) <= MOST_DOUBTS:
                break
            del self._doubts[oldest]
        while self._taken and self._taken[next(iter(self._taken))] <= now:
            del self._taken[next(iter(self._taken))]


def _cut(first: int, last: int, most: int) -> Iterator[tuple[int, int, None]]:
    for start in range(first, last, most):
        yield start, min(start + most, last), None
