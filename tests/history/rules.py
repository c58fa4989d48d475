"""The rules that the answers of a round must keep.

A call is about a generation that stood at some time while it ran; where the filter was lost meanwhile that
may be one of two.  Rules speak of calls about one generation for sure, and excuse what another may explain.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tests.history.calls import Call
from tests.history.plans import Plan


@dataclass(frozen=True)
class History:
    """A round that is over.

    :ivar losses: when the filter was lost, from and to.
    :ivar present: of each item whether it is in the filter at the end.
    :ivar counts: of each item how often it could be taken out at the end, if the filter counts.
    """

    plan: Plan
    calls: Sequence[Call]
    losses: Sequence[tuple[float, float]] = ()
    present: Mapping[str, bool] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def first(self) -> dict[str, Call]:
        """The first call of each series that asked for the same: a receipt answers as it would have."""
        first: dict[str, Call] = {}
        for call in sorted(self.calls, key=lambda call: call.start):
            first[call.name] = first.get(call.earlier or "", call)
        return first

    def generations(self, call: Call) -> range:
        """Return the generations that a call may be about."""
        first = sum(end <= self.first[call.name].start for _, end in self.losses)
        last = sum(start < call.end for start, _ in self.losses)
        return range(first, last + 1)

    def by_item(self, *verbs: str) -> dict[str, list[Call]]:
        """Return the calls with these verbs by item, in the order of their starts."""
        found: dict[str, list[Call]] = defaultdict(list)
        for call in sorted(self.calls, key=lambda call: call.start):
            if call.verb in verbs:
                found[call.item].append(call)
        return found

    def open_in(self, calls: Iterable[Call], generation: int) -> list[Call]:
        """Return the calls that may have been executed in a generation and had no answer from it."""
        calls = list(calls)
        asked = {call.earlier: call for call in calls if call.earlier}

        def answered(call: Call | None) -> bool:
            while call is not None and call.state != "answered":
                call = asked.get(call.name)
            return call is not None and list(self.generations(call)) == [generation]

        return [call for call in calls if generation in self.generations(call) and not answered(call)]


def violations(history: History) -> Iterator[str]:
    """Yield what is wrong with the answers of a round."""
    for call in history.calls:
        if call.state in ("failed", "running") or (call.state == "lost" and not _may_be_lost(history, call)):
            yield f"unexpected end: {call}"
    yield from _silent_losses(history)
    if history.plan.kind == "counting":
        yield from _miscounted(history)
    elif history.plan.kind == "items":
        for generation in range(len(history.losses) + 1):
            yield from _in_generation(history, generation)


def _may_be_lost(history: History, call: Call) -> bool:
    return history.plan.on_lost == "raise" and any(start < call.end for start, _ in history.losses)


def _silent_losses(history: History) -> Iterator[str]:
    """An object that was not given the new filter must not answer for it."""
    if history.plan.on_lost != "raise":
        return
    owners: dict[str, list[Call]] = defaultdict(list)
    for call in history.calls:
        owners[call.owner].append(call)
    for start, end in history.losses:
        for calls in owners.values():
            if not any(each.end <= start and each.state == "answered" for each in calls):
                continue  # it did not use the filter before
            reserves = (each.start for each in calls if each.verb == "reserve" and each.end > start)
            given = min(reserves, default=math.inf)
            for call in calls:
                silent = (
                    history.first[call.name].start > end
                    and call.state == "answered"
                    and call.verb in ("add", "contains")
                )
                if silent and given > call.end:
                    yield f"silent loss at {start:.4f}: {call}"


def _in_generation(history: History, generation: int) -> Iterator[str]:
    """Of all who add an item one is answered True, nobody False before; and it is there from then on."""
    tests = history.by_item("contains")
    adds = history.by_item("add")
    is_last = generation == len(history.losses)
    for item in adds.keys() | tests.keys():
        calls = [call for call in adds.get(item, ()) if generation in history.generations(call)]
        about = [call for call in calls if call.state == "answered" and len(history.generations(call)) == 1]
        winners = [call for call in about if call.answer]
        if len(winners) > 1:
            yield _told("two winners", winners)
        if about and not winners and not history.open_in(calls, generation):
            yield _told("no winner", about)
        for call in about:
            if not call.answer and not any(each.start < call.end for each in calls if each is not call):
                yield f"already there, and nobody added it before: {call}"
        yield from _tested(history, calls, about, tests.get(item, ()), generation)
        if is_last and about and not history.present.get(item, False):
            yield _told("not in the filter", about)
        if is_last and not calls and history.present.get(item, False):
            yield f"{item} is in the filter, and nobody added it"


def _tested(
    history: History, calls: Sequence[Call], about: Sequence[Call], tests: Sequence[Call], generation: int
) -> Iterator[str]:
    """Check the answers of tests of an item."""
    since = min((call.end for call in about), default=math.inf)
    begun = min((call.start for call in calls), default=math.inf)
    for test in tests:
        if test.state != "answered" or list(history.generations(test)) != [generation]:
            continue
        if not test.answer and test.start > since:
            yield _told(f"false negative: {test}", about)
        if test.answer and test.end < begun:
            yield f"false positive: {test}"


def _miscounted(history: History) -> Iterator[str]:
    """Each answered call counted once; what a worker has added, and not removed, is in."""
    for item, calls in history.by_item("add", "remove", "contains").items():
        adds, removals, tests = (
            [call for call in calls if call.verb == verb] for verb in ("add", "remove", "contains")
        )
        for call in removals + tests:
            if call.state == "answered" and not call.answer:
                yield _told(f"not there: {call}", calls)
        if history.open_in(adds + removals, 0):
            continue
        added, removed = (sum(call.state == "answered" for call in each) for each in (adds, removals))
        if history.counts.get(item, 0) != added - removed:
            yield _told(f"{item} was in {history.counts.get(item, 0)} times, not {added - removed}", calls)
        if added and not any(call.answer for call in adds if call.state == "answered"):
            yield _told("no add was the first", calls)


def _told(what: str, calls: Iterable[Call]) -> str:
    return "\n    ".join([what, *map(str, calls)])
