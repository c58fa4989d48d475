"""The rules find what is wrong with a round, and nothing in one that is right."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from tests.history.calls import Call
from tests.history.claim_rules import claim_violations
from tests.history.plans import Plan
from tests.history.rules import History, violations

PLAN = Plan("seed", "items", 1, 0.0, 1.0)
COUNTING = replace(PLAN, kind="counting")
_numbers = itertools.count()


def call(verb: str, start: float, answer: object = None, item: str = "x", **more: Any) -> Call:
    """Return a call of 0.1 s that was answered."""
    name = more.pop("name", f"call{next(_numbers)}")
    made = Call(name, "object", verb, item, start, end=start + 0.1, state="answered", answer=answer)
    for field, value in more.items():
        setattr(made, field, value)
    return made


def add(start: float, answer: object = None, **more: Any) -> Call:
    """Return an add."""
    return call("add", start, answer, **more)


UNKNOWN: dict[str, Any] = {"state": "unknown", "name": "first"}
LOSS = ((1.0, 1.1),)
RIGHT: dict[str, History] = {
    "one winner": History(PLAN, [add(0, True), add(0, False)], present={"x": True}),
    "one asks again": History(PLAN, [add(0, **UNKNOWN), add(1, True, earlier="first")], present={"x": True}),
    "one has not asked again": History(PLAN, [add(0, **UNKNOWN), add(1, False)], present={"x": True}),
    "a winner a generation": History(
        replace(PLAN, on_lost="recreate"), [add(0, True), add(2, True)], LOSS, {"x": True}
    ),
    "a test before": History(PLAN, [call("contains", 0, False), add(0, True)], present={"x": True}),
    "counted": History(COUNTING, [add(0, True), add(0, False), call("remove", 1, True)], counts={"x": 1}),
}
WRONG: dict[str, History] = {
    "two winners": History(PLAN, [add(0, True), add(5, True)], present={"x": True}),
    "no winner": History(PLAN, [add(0, False), add(0, False)], present={"x": True}),
    "nobody added it before": History(PLAN, [add(0, False), add(5, True)], present={"x": True}),
    "not in the filter": History(PLAN, [add(0, True)], present={"x": False}),
    "nobody added it": History(PLAN, [call("contains", 0, False)], present={"x": True}),
    "false negative": History(PLAN, [add(0, True), call("contains", 1, False)], present={"x": True}),
    "false positive": History(PLAN, [call("contains", 0, True), add(1, True)], present={"x": True}),
    "silent loss": History(PLAN, [add(0, True), add(2, True)], LOSS, {"x": True}),
    "unexpected end": History(PLAN, [add(0, state="failed", error="KeyError()")]),
    "was in 2 times, not 1": History(COUNTING, [add(0, True)], counts={"x": 2}),
    "not there": History(COUNTING, [add(0, True), call("remove", 1, False)], counts={"x": 1}),
    "no add was the first": History(COUNTING, [add(0, False)], counts={"x": 1}),
}


@pytest.mark.parametrize("history", RIGHT.values(), ids=RIGHT.keys())
def test_a_right_round(history: History) -> None:
    """There is nothing to say about it."""
    assert not list(violations(history))


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_round(what: str) -> None:
    """It is found, and named."""
    assert any(what in each for each in violations(WRONG[what]))


def claim(start: float, name: str, answer: str = "claimed", **more: Any) -> Call:
    """Return a claim for a second."""
    return call("claim", start, answer, name=name, lease=1.0, **more)


def commit(start: float, of: str, **more: Any) -> Call:
    """Return a commit."""
    return call("commit", start, claim=of, **more)


CLAIMED_RIGHT: dict[str, History] = {
    "one after the other": History(PLAN, [claim(0, "a"), claim(2, "b")]),
    "given back": History(PLAN, [claim(0, "a"), call("release", 0.2, claim="a"), claim(0.4, "b")]),
    "committed": History(
        PLAN, [claim(0, "a"), commit(0.2, "a"), claim(0.4, "b", "done")], present={"x": True}
    ),
    "busy": History(PLAN, [claim(0, "a"), claim(0.5, "b", "busy")]),
}
CLAIMED_WRONG: dict[str, History] = {
    "two holders": History(PLAN, [claim(0, "a"), claim(0.5, "b")]),
    "two commits": History(
        PLAN, [claim(0, "a"), commit(0.2, "a"), claim(2, "b"), commit(3, "b")], present={"x": True}
    ),
    "done, and nobody committed it": History(PLAN, [claim(0, "a", "done")]),
    "busy, and nobody held it": History(PLAN, [claim(0, "a", "busy")]),
    "committed, and not in the filter": History(PLAN, [claim(0, "a"), commit(0.2, "a")]),
    "nobody committed it": History(
        PLAN, [claim(0, "a"), commit(2, "a", state="not held")], present={"x": True}
    ),
}


@pytest.mark.parametrize("history", CLAIMED_RIGHT.values(), ids=CLAIMED_RIGHT.keys())
def test_right_claims(history: History) -> None:
    """There is nothing to say about them."""
    assert not list(claim_violations(history))


@pytest.mark.parametrize("what", CLAIMED_WRONG)
def test_wrong_claims(what: str) -> None:
    """They are found, and named."""
    assert any(what in each for each in claim_violations(CLAIMED_WRONG[what]))
