"""The rules of a rotating filter: an item is found for one window at least, and one slice longer at most.

A retry after a lost reply gets the answer of the first call. So an answer may be as old as the first call
of its object without an answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations

from tests.rules.answers import GRAIN, History, told
from tests.rules.calls import Call
from tests.rules.generations import meet


def memory_violations(history: History) -> Iterator[str]:
    """Yield each violation in a round with a rotating filter."""
    tests, adds = history.by_item("contains"), history.by_item("add")
    for item in adds.keys() | tests.keys():
        memory = Memory(history, adds.get(item, ()))
        yield from memory.two_winners()
        yield from memory.too_long()
        for test in tests.get(item, ()):
            if test.state == "answered":
                yield from memory.tested(test)


class Memory:
    """The answers about one item."""

    def __init__(self, history: History, adds: Sequence[Call]) -> None:
        self._history = history
        self._answered = [call for call in adds if call.state == "answered"]
        self._unanswered = [call for call in adds if call.state != "answered"]
        self._winners = [call for call in self._answered if call.answer]
        self._at_least = history.terms.remembered - GRAIN
        self._at_most = history.terms.remembered * (1 + 1 / history.terms.slices) + GRAIN
        # An answer is forgotten with its item: the retry of the first add may then find that of another.
        self._late = [
            call
            for call in self._answered
            if not call.answer and call.end - self._begun(call) >= self._at_least
        ]

    def _begun(self, call: Call) -> float:
        """Return the earliest time that a call's answer may be about."""
        owned = (each.start for each in self._unanswered if each.owner == call.owner)
        return min((self._history.first[call.name].start, *owned))

    def _same(self, first: Call, second: Call) -> bool:
        """Return whether two calls are certainly about the same generation."""
        about = self._history.generations(first)
        return len(about) == 1 and about == self._history.generations(second)

    def two_winners(self) -> Iterator[str]:
        """Check that no one is told True again within a window."""
        for first, second in combinations(self._winners, 2):
            apart = max(second.end - self._begun(first), first.end - self._begun(second))
            if self._same(first, second) and apart < self._at_least:
                yield told(f"two winners within {self._at_least:.3f} s", (first, second))

    def too_long(self) -> Iterator[str]:
        """Check that an item "already there" was added, and not too long ago."""
        for call in self._answered:
            if not call.answer:
                yield from self._is_there(call, self._begun(call))

    def tested(self, test: Call) -> Iterator[str]:
        """Check that an item added within a window is found, and a forgotten one is not."""
        if test.answer:
            yield from self._is_there(test, test.start)
            return
        for call in self._winners:
            soon = test.end - self._begun(call) < self._at_least
            if call.end < test.start and soon and self._same(call, test):
                yield told(f"false negative: {test}", (call,))

    def _is_there(self, call: Call, begun: float) -> Iterator[str]:
        about = self._history.possible(call)
        before = [
            each
            for each in (*self._winners, *self._unanswered, *self._late)
            if self._begun(each) < call.end and meet(about, self._history.generations(each))
        ]
        latest = max((self._latest(each) for each in before), default=-math.inf)
        if latest < begun - self._at_most:
            yield told(f"already there, and nobody added it within {self._at_most:.3f} s: {call}", before)

    def _latest(self, call: Call) -> float:
        """Return the latest time at which a call may have been executed."""
        return call.end + (0.0 if call.state == "answered" else self._history.terms.latest_copy)
