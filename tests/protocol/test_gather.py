"""Concurrent operations share their round trips, however they are nested."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pytest

from bloomredis import BatchInterruptedError, FilterLostError, OutcomeUnknownError
from bloomredis.protocol.gather import gather, unless_failed
from bloomredis.protocol.steps import Many, Op, PlainCall
from tests.support.lines import Interrupt
from tests.support.points import raised_at


def told(*commands: str) -> Op[list[Any]]:
    """Send commands one after the other; return their replies."""
    replies: list[Any] = []
    for command in commands:
        replies += [(yield PlainCall([(command,)]))]
    return replies


def failing(command: str) -> Op[str]:
    """Send a command; return the name of its error."""
    try:
        yield PlainCall([(command,)])
    except ValueError as error:
        return f"caught {error}"
    return "nothing"


def raising(command: str) -> Op[None]:
    """Send a command, then raise an error."""
    yield PlainCall([(command,)])
    raise LookupError(command)


def driven(operation: Op[Any]) -> tuple[Any, list[Any]]:
    """Run an operation: a command's name is its reply, `fail` is an error. Return its answer and steps."""
    seen: list[Any] = []
    try:
        step = next(operation)
        while True:
            seen.append(step)
            step = operation.send(replied(step))
    except StopIteration as end:
        return end.value, seen


def replied(step: Any) -> Any:
    """Return the reply to a step, as a driver would."""
    if isinstance(step, Many):
        return [replied(each) for each in step.calls]
    (command,) = step.commands
    return ValueError("refused") if command == ("fail",) else command[0]


def commands(steps: Sequence[Any]) -> list[Any]:
    """Return the commands of pipelined steps, none of which contains several steps."""
    (step,) = steps
    assert isinstance(step, Many)
    return [command for call in step.calls for command in call.commands]


def test_a_batch_and_a_single_command_share_a_round_trip() -> None:
    """Each gets its own replies; nested pipelines become one."""
    answer, seen = driven(gather([told("look"), gather([told("a"), told("b"), failing("fail")])]))
    assert answer == [["look"], [["a"], ["b"], "caught refused"]]
    assert commands(seen) == [("look",), ("a",), ("b",), ("fail",)]


def test_operations_end_one_by_one() -> None:
    """The remaining operations share the next round trips."""
    answer, seen = driven(gather([told("a", "b", "c"), gather([told("d", "e"), told("f")])]))
    assert answer == [["a", "b", "c"], [["d", "e"], ["f"]]]
    assert [len(step.calls) if isinstance(step, Many) else 1 for step in seen] == [3, 2, 1]


def test_a_loss_is_raised_whatever_else_has_failed() -> None:
    """Otherwise nobody would be told of it, and the next call would go on with what is there now."""
    lost, first, second = FilterLostError("lost"), OutcomeUnknownError("1"), OutcomeUnknownError("2")
    batch = BatchInterruptedError("lost in a batch")
    batch.__cause__ = lost
    for outcomes, raised in (
        ([True, first, lost], lost),
        ([first, batch, lost], batch),
        ([True, first, second], first),
    ):
        with pytest.raises(type(raised)) as met:
            unless_failed(outcomes)
        assert met.value is raised
    assert unless_failed([True, False]) == [True, False]


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the points are those of CPython 3.11")
def test_an_interrupt_leaves_no_operation_open() -> None:
    """Wherever a signal stops it, each operation is closed: a traceback may keep it from being collected."""
    begun, kept = set[str](), list[BaseException]()

    def held(name: str) -> Op[str]:
        begun.add(name)
        try:
            yield PlainCall([(name,)])
            yield PlainCall([(name,)])
        finally:
            begun.discard(name)
        return name

    def stopped(number: int) -> bool:
        gathered = gather([held("a"), held("b")])
        with raised_at(number, Interrupt) as where:
            try:
                driven(gathered)
            except Interrupt as error:
                kept.append(error)
                gathered.close()  # as a driver does
        return bool(where)

    points = 0
    while stopped(points):
        assert not begun, points
        points += 1
    assert points > 20
