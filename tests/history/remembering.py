"""The rules of a rotating filter: it finds an item for a window at least, and a slice longer at most."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final

from tests.history.calls import Call
from tests.history.losses import meet
from tests.history.plans import REMEMBERED, SLICES
from tests.history.rules import GRAIN, LATEST_COPY, History, told

AT_LEAST: Final = REMEMBERED - GRAIN
AT_MOST: Final = REMEMBERED * (1 + 1 / SLICES) + GRAIN


def memory_violations(history: History) -> Iterator[str]:
    """Yield what is wrong with the answers of a round with a rotating filter."""
    tests, adds = history.by_item("contains"), history.by_item("add")
    for item in adds.keys() | tests.keys():
        calls = adds.get(item, [])
        winners = [call for call in calls if call.state == "answered" and call.answer]
        yield from _two_winners(history, winners)
        asked = {call.earlier for call in calls if call.earlier}
        open_ones = [call for call in calls if call.state != "answered" and call.name not in asked]
        for call in (*calls, *tests.get(item, ())):
            if call.state != "answered":
                continue
            if call.verb == "contains" and not call.answer:
                yield from _missed(history, call, winners)
            elif (call.verb == "contains") == bool(call.answer):
                yield from _too_long(history, call, [*winners, *open_ones])


def _two_winners(history: History, winners: Sequence[Call]) -> Iterator[str]:
    for first, second in combinations(winners, 2):
        begun, again = (history.first[each.name].start for each in (first, second))
        if _same(history, first, second) and max(second.end - begun, first.end - again) < AT_LEAST:
            yield told(f"two winners within {REMEMBERED} s", (first, second))


def _missed(history: History, test: Call, winners: Sequence[Call]) -> Iterator[str]:
    for call in winners:
        soon = test.end - history.first[call.name].start < AT_LEAST
        if call.end < test.start and soon and _same(history, call, test):
            yield told(f"false negative: {test}", (call,))


def _too_long(history: History, call: Call, possible: Sequence[Call]) -> Iterator[str]:
    """Somebody has added what is there, and not too long ago."""
    about, begun = history.possible(call), history.first[call.name].start
    before = [
        each
        for each in possible
        if each is not call
        and history.first[each.name].start < call.end
        and meet(about, history.generations(each))
    ]
    latest = max((_latest(each) for each in before), default=-math.inf)
    if latest < begun - AT_MOST:
        yield told(f"already there, and nobody added it within {AT_MOST:.3f} s: {call}", before)


def _latest(call: Call) -> float:
    """Return when a call was executed, at the latest."""
    return call.end + (0.0 if call.state == "answered" else LATEST_COPY)


def _same(history: History, first: Call, second: Call) -> bool:
    """Return whether two calls are about the same generation for sure."""
    about = history.generations(first)
    return len(about) == 1 and about == history.generations(second)
