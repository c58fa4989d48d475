"""The rules for the answers of a round.

A rule applies to calls that are certainly about one generation; an answer that another generation may
explain is accepted.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from tests.rules.calls import OPERATOR, Call, Terms
from tests.rules.generations import Generations, Loss, meet
from tests.rules.items import contradiction

GRAIN: Final = 0.003
"""Seconds: the server counts whole milliseconds, from the time it reads the command."""


@dataclass(frozen=True)
class History:
    """A finished round.

    :ivar present: for each item, whether it is in the filter at the end.
    :ivar counts: for each item, how often it could be removed at the end, if the filter counts.
    :ivar left: the keys that exist after `delete()`.
    """

    terms: Terms
    calls: Sequence[Call]
    losses: Sequence[Loss] = ()
    present: Mapping[str, bool] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    left: Sequence[str] = ()
    _standing: dict[int | None, Generations] = field(default_factory=dict)
    _about: dict[str, range] = field(default_factory=dict)

    @cached_property
    def first(self) -> dict[str, Call]:
        """The first call of each series of retries, whose answer a receipt repeats."""
        first: dict[str, Call] = {}
        for call in sorted(self.calls, key=lambda call: call.start):
            first[call.name] = first.get(call.earlier or "", call)
        return first

    @cached_property
    def operator(self) -> Sequence[Call]:
        """The calls that acknowledged losses for all objects."""
        return [call for call in self.calls if call.owner == OPERATOR]

    def standing(self, item: str) -> Generations:
        """Return the generations of the filter or shard that holds an item."""
        shard = self.terms.shard(item)
        if shard not in self._standing:
            self._standing[shard] = Generations(loss for loss in self.losses if loss.shard in (None, shard))
        return self._standing[shard]

    def generations(self, call: Call) -> range:
        """Return the generations that a call may be about."""
        if call.name not in self._about:
            self._about[call.name] = self.standing(call.item).between(self.begun(call), call.end)
        return self._about[call.name]

    def begun(self, call: Call) -> float:
        """Return the earliest time that a call's answer may be about."""
        first = self.first[call.name]
        return min(each.start if each.since is None else each.since for each in (first, call))

    def possible(self, call: Call) -> range:
        """Return the generations of a call, and those that equal them if uncertain losses did not happen."""
        about = self.generations(call)
        return range(self.standing(call.item).same(about[0])[0], about[-1] + 1)

    def latest(self, call: Call) -> float:
        """Return the latest time at which a call may have been executed."""
        return call.end + (0.0 if call.state == "answered" else self.terms.latest_copy)

    def is_about(self, call: Call, generation: int) -> bool:
        """Return whether a call was certainly answered about a generation."""
        about = self.generations(call)
        return call.state == "answered" and len(about) == 1 and about[0] == generation

    def by_item(self, *verbs: str) -> dict[str, list[Call]]:
        """Return the calls with these verbs by item, in the order of their starts."""
        found: dict[str, list[Call]] = defaultdict(list)
        for call in sorted(self.calls, key=lambda call: call.start):
            if call.verb in verbs:
                found[call.item].append(call)
        return found

    def open_in(self, calls: Iterable[Call], generation: int) -> list[Call]:
        """Return the calls that may have been executed in a generation and had no answer from it."""
        answered: dict[str, bool] = {}  # by the call, or by the last of its retries, which begin later
        asked: dict[str, str] = {}
        calls = sorted(calls, key=lambda call: call.start)
        for call in reversed(calls):
            by_retry = answered.get(asked.get(call.name, ""), False)
            answered[call.name] = self.is_about(call, generation) if call.state == "answered" else by_retry
            asked.setdefault(call.earlier or "", call.name)
        return [
            call
            for call in calls
            if meet(self.generations(call), self.standing(call.item).same(generation))
            and not answered[call.name]
        ]


def violations(history: History) -> Iterator[str]:
    """Yield each violation in the answers of a round without expiring items."""
    if history.terms.kind == "counting":
        yield from _miscounted(history)
        return
    tests, adds = history.by_item("contains"), history.by_item("add")
    for item in adds.keys() | tests.keys():
        last = history.standing(item).last
        about = (history.generations(call) for call in (*adds.get(item, ()), *tests.get(item, ())))
        for generation in sorted({last}.union(*about)):
            yield from _in_generation(history, item, generation, adds.get(item, ()), tests.get(item, ()))


def _in_generation(
    history: History, item: str, generation: int, adds: Sequence[Call], tests: Sequence[Call]
) -> Iterator[str]:
    """Check that one add of an item gets True and none False before it, and that the item then stays."""
    standing = history.standing(item)
    is_last = generation == standing.last
    calls = [call for call in adds if meet(history.generations(call), standing.same(generation))]
    about = [call for call in calls if history.is_about(call, generation)]
    winners = [call for call in about if call.answer]
    if len(winners) > 1:
        yield told("two winners", winners)
    if about and not winners and not history.open_in(calls, generation):
        yield told("no winner", adds)  # the one without an answer may be among them
    since = min((call.end for call in about), default=math.inf)
    for call in (*about, *(test for test in tests if history.is_about(test, generation))):
        may_be_in = any(each.start < call.end for each in calls if each is not call)
        rule = contradiction(call.verb, call.answer, may_be_in=may_be_in, may_be_out=call.start <= since)
        if rule:
            yield told(f"{rule}: {call}", about)
    if is_last and about and not history.present.get(item, False):
        yield told("not in the filter", about)
    if is_last and not calls and history.present.get(item, False):
        yield f"{item} is in the filter, and nobody added it"


def _miscounted(history: History) -> Iterator[str]:
    """Check that each answered call counted once, and that each worker's remaining adds are in."""
    for item, calls in history.by_item("add", "remove", "contains").items():
        adds, removals, tests = (
            [call for call in calls if call.verb == verb] for verb in ("add", "remove", "contains")
        )
        for call in removals + tests:
            if call.state == "answered" and (rule := contradiction(call.verb, call.answer, may_be_out=False)):
                yield told(f"{rule}: {call}", calls)
        if history.open_in(adds + removals, 0):
            continue
        added, removed = (sum(call.state == "answered" for call in each) for each in (adds, removals))
        if history.counts.get(item, 0) != added - removed:
            yield told(f"{item} was in {history.counts.get(item, 0)} times, not {added - removed}", calls)
        if added and not any(call.answer for call in adds if call.state == "answered"):
            yield told("no add was the first", calls)


def told(what: str, calls: Iterable[Call]) -> str:
    """Return a violation, with the calls that show it."""
    return "\n    ".join([what, *map(str, calls)])
