"""The rules of a rotating filter: an item is found for one window at least, and one slice longer at most.

A retry after a lost reply gets the answer of the first call. So an answer may be as old as the first call
of its object without an answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from tests.rules.answers import GRAIN, History, told
from tests.rules.calls import Call
from tests.rules.generations import meet
from tests.rules.items import contradiction


def memory_violations(history: History) -> Iterator[str]:
    """Yield each violation in a round with a rotating filter."""
    tests, adds = history.by_item("contains"), history.by_item("add")
    for item in adds.keys() | tests.keys():
        memory = Memory(history, adds.get(item, ()))
        yield from memory.two_winners()
        yield from memory.wrong_answers(tests.get(item, ()))


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

    def wrong_answers(self, tests: Sequence[Call]) -> Iterator[str]:
        """Check that an item that is there was added not too long ago, and that a new one is there."""
        for call in (*self._answered, *(test for test in tests if test.state == "answered")):
            begun = self._begun(call) if call.verb == "add" else call.start
            before = [
                each
                for each in (*self._winners, *self._unanswered, *self._late)
                if self._begun(each) < call.end
                and meet(self._history.possible(call), self._history.generations(each))
            ]
            may_be_in = any(self._history.latest(each) >= begun - self._at_most for each in before)
            may_be_out = not any(self._must_find(call, each) for each in self._winners)
            rule = contradiction(call.verb, call.answer, may_be_in=may_be_in, may_be_out=may_be_out)
            if rule:
                yield told(f"{rule}: {call}", before)

    def _must_find(self, test: Call, winner: Call) -> bool:
        """Return whether an item was added before a test, within a window."""
        soon = test.end - self._begun(winner) < self._at_least
        return winner.end < test.start and soon and self._same(winner, test)
