"""The rules find the violations of a wrong round, and none in a right one."""

from __future__ import annotations

import itertools
from typing import Any

from tests.rules.answers import History, violations
from tests.rules.calls import OPERATOR, Call, Terms
from tests.rules.claims import claim_violations
from tests.rules.generations import Generations, Loss
from tests.rules.losses import loss_violations
from tests.rules.remembering import memory_violations
from tests.support.values import for_each

TERMS = Terms("items")
COUNTING = Terms("counting")
RECREATES = Terms("items", on_lost="recreate")
_numbers = itertools.count()


def call(verb: str, start: float, answer: object = None, item: str = "x", **more: Any) -> Call:
    """Return an answered call of 0.1 s."""
    name = more.pop("name", f"call{next(_numbers)}")
    made = Call(name, "object", verb, item, start, end=start + 0.1, state="answered", answer=answer)
    for field, value in more.items():
        setattr(made, field, value)
    return made


def add(start: float, answer: object = None, **more: Any) -> Call:
    """Return an add."""
    return call("add", start, answer, **more)


UNKNOWN: dict[str, Any] = {"state": "unknown", "name": "first"}
LOSS = (Loss(1.0, 1.1),)
PERHAPS = (Loss(1.0, 1.1, sure=False),)
RIGHT: dict[str, History] = {
    "one winner": History(TERMS, [add(0, True), add(0, False)], present={"x": True}),
    "one asks again": History(TERMS, [add(0, **UNKNOWN), add(1, True, earlier="first")], present={"x": True}),
    "one has not asked again": History(TERMS, [add(0, **UNKNOWN), add(1, False)], present={"x": True}),
    "a winner a generation": History(RECREATES, [add(0, True), add(2, True)], LOSS, {"x": True}),
    "added before what may have been a loss": History(
        TERMS, [add(0, True), add(2, False)], PERHAPS, {"x": True}
    ),
    "added again after what may have been a loss": History(
        TERMS, [add(0, True), add(2, True)], PERHAPS, {"x": True}
    ),
    "a test before": History(TERMS, [call("contains", 0, False), add(0, True)], present={"x": True}),
    "counted": History(COUNTING, [add(0, True), add(0, False), call("remove", 1, True)], counts={"x": 1}),
}
WRONG: dict[str, History] = {
    "two winners": History(TERMS, [add(0, True), add(5, True)], present={"x": True}),
    "no winner": History(TERMS, [add(0, False), add(0, False)], present={"x": True}),
    "not there": History(TERMS, [add(0, False), add(5, True)], present={"x": True}),
    "not in the filter": History(TERMS, [add(0, True)], present={"x": False}),
    "nobody added it": History(TERMS, [call("contains", 0, False)], present={"x": True}),
    "false negative": History(TERMS, [add(0, True), call("contains", 1, False)], present={"x": True}),
    "false positive": History(TERMS, [call("contains", 0, True), add(1, True)], present={"x": True}),
    "was in 2 times, not 1": History(COUNTING, [add(0, True)], counts={"x": 2}),
    "not removed": History(COUNTING, [add(0, True), call("remove", 1, False)], counts={"x": 1}),
    "no add was the first": History(COUNTING, [add(0, False)], counts={"x": 1}),
}


@for_each("history", RIGHT.values())
def test_a_right_round(history: History) -> None:
    """A right round has no violation."""
    assert not list(violations(history))


@for_each("what", WRONG)
def test_a_wrong_round(what: str) -> None:
    """The violation is found and named."""
    assert any(what in each for each in violations(WRONG[what]))


def claim(start: float, name: str, answer: str = "claimed", **more: Any) -> Call:
    """Return a claim with a lease of a second."""
    return call("claim", start, answer, name=name, lease=1.0, **more)


def commit(start: float, of: str, **more: Any) -> Call:
    """Return a commit."""
    return call("commit", start, claim=of, **more)


CLAIMED_RIGHT: dict[str, History] = {
    "one after the other": History(TERMS, [claim(0, "a"), claim(2, "b")]),
    "given back": History(TERMS, [claim(0, "a"), call("release", 0.2, claim="a"), claim(0.4, "b")]),
    "committed": History(
        TERMS, [claim(0, "a"), commit(0.2, "a"), claim(0.4, "b", "done")], present={"x": True}
    ),
    "busy": History(TERMS, [claim(0, "a"), claim(0.5, "b", "busy")]),
    "equal items": History(TERMS, [claim(0, "a"), claim(0, "b", equal="a")]),
    "again by the same name": History(TERMS, [claim(0, "a", holder="n"), claim(0.5, "b", holder="n")]),
}
CLAIMED_WRONG: dict[str, History] = {
    "two holders": History(TERMS, [claim(0, "a"), claim(0.5, "b")]),
    "two holders\n": History(TERMS, [claim(0, "a", holder="n"), claim(0.5, "b", holder="m")]),
    "unequal answers": History(TERMS, [claim(0, "a"), claim(0, "b", "busy", equal="a")]),
    "two commits": History(
        TERMS, [claim(0, "a"), commit(0.2, "a"), claim(2, "b"), commit(3, "b")], present={"x": True}
    ),
    "not done": History(TERMS, [claim(0, "a", "done")]),
    "busy, and nobody held it": History(TERMS, [claim(0, "a", "busy")]),
    "not committed": History(TERMS, [claim(0, "a"), commit(0.2, "a")]),
    "nobody committed it": History(
        TERMS, [claim(0, "a"), commit(2, "a", state="not held")], present={"x": True}
    ),
}


@for_each("history", CLAIMED_RIGHT.values())
def test_right_claims(history: History) -> None:
    """Right claims have no violation."""
    assert not list(claim_violations(history))


@for_each("what", CLAIMED_WRONG)
def test_wrong_claims(what: str) -> None:
    """The violation is found and named."""
    assert any(what in each for each in claim_violations(CLAIMED_WRONG[what]))


LOST: dict[str, Any] = {"state": "lost", "error": "FilterLostError('Call acknowledge() or clear()')"}
WINDOW, SLICES = 0.8, 4
ROTATING = Terms("rotating", remembered=WINDOW, slices=SLICES)
SHARD, OTHER = 1, "y"
SHARDED = Terms("sharded", shard=lambda item: SHARD + (item == OTHER))
DAMAGE = (Loss(1.0, 1.1, lasts=True),)

MARKED = call("acknowledge", 2.5, owner=OPERATOR)
TOLD_RIGHT: dict[str, History] = {
    "once after an operator": History(TERMS, [add(0, True), MARKED, add(3, **LOST), add(4, True)], LOSS),
    "before an operator": History(TERMS, [add(0, True), add(2, **LOST), MARKED, add(3, True)], LOSS),
    "told": History(TERMS, [add(0, True), add(2, **LOST), call("acknowledge", 3), add(4, True)], LOSS),
    "its own clear": History(TERMS, [add(0, True), call("clear", 2), add(3, True)], LOSS),
    "had not used it": History(TERMS, [add(2, True)], LOSS),
    "goes on": History(RECREATES, [add(0, True), add(2, True)], LOSS),
    "perhaps no loss": History(TERMS, [add(0, True), add(2, True)], PERHAPS),
    "another shard": History(
        SHARDED,
        [add(0, True), add(0, True, item=OTHER), add(2, True, item=OTHER)],
        (Loss(1, 1.1, shard=SHARD),),
    ),
    "damaged until it is cleared": History(
        TERMS, [add(0, True), add(2, **LOST), call("acknowledge", 3), add(4, **LOST)], DAMAGE
    ),
    "forgotten before": History(ROTATING, [add(0, True), add(2, True)], (Loss(1.5, 1.6),)),
    "told while another call was under way": History(
        TERMS, [add(0, True), call("acknowledge", 2), add(2.05, False), add(3, **LOST)], LOSS
    ),
    "a shard that was not used since the filter was opened anew": History(
        SHARDED, [add(0, True), call("acknowledge", 1), add(3, True)], (Loss(2, 2.1, shard=SHARD),)
    ),
}
TOLD_WRONG: dict[str, History] = {
    "nothing was lost: 4.0": History(TERMS, [add(0, True), MARKED, add(3, **LOST), add(4, **LOST)], LOSS),
    "nothing was lost: 5.0": History(TERMS, [add(0, True), add(2, **LOST), MARKED, add(5, **LOST)], LOSS),
    "silent loss": History(TERMS, [add(0, True), add(2, True)], LOSS),
    "silent loss after loss": History(SHARDED, [add(0, True), add(2, True)], (Loss(1, 1.1, shard=SHARD),)),
    "silent": History(ROTATING, [add(0.9, True), add(1.2, True)], LOSS),
    "unexpected end": History(TERMS, [add(0, state="failed", error="KeyError()")]),
    "told of a loss": History(TERMS, [add(0, **LOST)]),
    "and nothing was lost": History(TERMS, [add(0, True), call("acknowledge", 2), add(3, **LOST)], LOSS),
    "nothing was lost": History(RECREATES, [add(2, **LOST)], LOSS),
    "left behind after delete()": History(TERMS, [], left=["seed"]),
}


@for_each("history", TOLD_RIGHT.values())
def test_rightly_told(history: History) -> None:
    """Correct reports of losses have no violation."""
    assert not list(loss_violations(history))


@for_each("what", TOLD_WRONG)
def test_wrongly_told(what: str) -> None:
    """The violation is found and named."""
    assert any(what in each for each in loss_violations(TOLD_WRONG[what]))


SLICE = WINDOW / SLICES
KEPT: dict[str, History] = {
    "new after a window": History(ROTATING, [add(0, True), add(WINDOW, True)]),
    "there for a slice more": History(ROTATING, [add(0, True), add(WINDOW + SLICE, False)]),
    "not there after a window": History(ROTATING, [add(0, True), call("contains", WINDOW, False)]),
    "told late by its object": History(
        ROTATING, [add(0, **UNKNOWN), add(1.5, True), call("contains", 1.7, False), add(1.8, True)]
    ),
    "added by one without an answer": History(ROTATING, [add(0, **UNKNOWN), add(1, False, owner="other")]),
    "new after a loss": History(ROTATING, [add(0.8, True), add(1.2, True)], LOSS),
    "added by one whose retry came after a window": History(
        ROTATING,
        [
            add(0, False, end=WINDOW + 0.2),
            call("contains", 0.5, True),
            add(WINDOW, True, owner="other"),
        ],
    ),
}
FORGOTTEN: dict[str, History] = {
    "two winners within": History(ROTATING, [add(0, True), add(0.5, True)]),
    "false negative": History(ROTATING, [add(0, True), call("contains", 0.5, False)]),
    "not there": History(ROTATING, [add(0, True), add(1.5, False)]),
    "false positive": History(ROTATING, [call("contains", 0, True)]),
    "false positive: 0.5": History(ROTATING, [add(0, False, end=WINDOW / 2), call("contains", 0.5, True)]),
}


@for_each("history", KEPT.values())
def test_rightly_remembered(history: History) -> None:
    """Correctly remembered items have no violation."""
    assert not list(memory_violations(history))


@for_each("what", FORGOTTEN)
def test_wrongly_remembered(what: str) -> None:
    """The violation is found and named."""
    assert any(what in each for each in memory_violations(FORGOTTEN[what]))


def test_generations() -> None:
    """A call is about each generation during it; an uncertain loss may have left the previous one."""
    losses = [Loss(3.0, 3.1, sure=False), Loss(1.0, 1.6)]
    generations = Generations(losses)
    assert list(generations.between(0.0, 0.9)) == [0]
    assert list(generations.between(1.2, 1.3)) == [0, 1]
    assert list(generations.between(1.7, 2.0)) == [1]
    assert list(generations.between(0.0, 9.0)) == [0, 1, 2]
    assert list(generations.same(2)) == [1, 2]
    assert list(generations.same(1)) == [1]
