"""Concurrent operations, whose steps share one round trip per server.

The operations are generators that run in one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from bloomredis.errors import BatchInterruptedError, FilterLostError
from bloomredis.protocol.steps import Call, Many, Op, Step

T = TypeVar("T")


def gather(operations: Iterable[Op[T]], most: int | None = None) -> Op[list[T | Exception]]:
    """Run operations concurrently; return the answer or the error of each, in order.

    Simultaneous steps share one round trip, to all nodes at once.

    :param most: the limit of operations in progress at a time; None for no limit.
    """
    waiting = enumerate(operations)
    results: dict[int, T | Exception] = {}
    running: dict[int, tuple[Op[T], Any]] = {}

    def resume(i: int, operation: Op[T], advance: Callable[[], Step]) -> None:
        running.setdefault(i, (operation, None))  # whatever interrupts it, it is closed in the end
        try:
            running[i] = operation, advance()
        except StopIteration as end:
            results[i] = end.value
        except Exception as error:
            operation.close()  # perhaps it was interrupted behind its step
            results[i] = error
        else:
            return
        del running[i]

    try:
        while True:
            for i, operation in islice(waiting, None if most is None else most - len(running)):
                resume(i, operation, partial(next, operation))
            if not running:
                return [results[i] for i in range(len(results))]
            current = list(running.items())
            replies = yield from _exchanged([step for _, (_, step) in current])
            for (i, (operation, _)), reply in zip(current, replies, strict=True):
                failed = isinstance(reply, Exception)
                resume(i, operation, partial(operation.throw if failed else operation.send, reply))
    finally:
        for operation, _ in running.values():
            operation.close()


def _exchanged(steps: Sequence[Step]) -> Op[list[object]]:
    """Execute steps in one round trip; return each answer or error."""
    if len(steps) == 1:
        return [(yield from _caught(steps[0]))]
    calls = [call for step in steps for call in _calls(step)]
    made: list[object] = (yield Many(calls)) if calls else []
    rest = iter(made)
    replies: list[object] = []
    for step in steps:
        if isinstance(step, Many):
            replies.append(list(islice(rest, len(step.calls))))
        else:
            replies.append(next(rest) if isinstance(step, Call) else (yield from _caught(step)))
    return replies


def _calls(step: Step) -> Sequence[Call]:
    if isinstance(step, Many):
        return step.calls
    return [step] if isinstance(step, Call) else ()


def _caught(step: Step) -> Op[object]:
    """Execute a step; return its reply or error."""
    try:
        return (yield step)
    except Exception as error:
        return error


def outcome_of(operation: Op[T]) -> Op[T | Exception]:
    """Run an operation; return its answer, or its error, which has told nobody of a loss so far."""
    try:
        return (yield from operation)
    except Exception as error:
        return error


def unless_failed(outcomes: Iterable[T | Exception]) -> list[T]:
    """Return the answers; raise an error among the outcomes (`error_to_raise`)."""
    answers: list[T] = []
    errors: list[Exception] = []
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            errors.append(outcome)
        else:
            answers.append(outcome)
    if errors:
        raise error_to_raise(errors)
    return answers


def error_to_raise(errors: Sequence[Exception]) -> Exception:
    """Return the error that a caller gets for several, in order: the loss of the filter, else the first.

    If a caller were not told of a loss, the next call would go on with what is there now.
    """
    return next(filter(loss_in, errors), errors[0])


def loss_in(answer: object) -> FilterLostError | None:
    """Return the loss of the filter that an answer is, or that interrupted a batch; else None."""
    error = answer.__cause__ if isinstance(answer, BatchInterruptedError) else answer
    return error if isinstance(error, FilterLostError) else None


def told_mark(error: BaseException) -> list[bool]:
    """Return the mark to set when a caller gets an error: that of the loss in it, if there is one."""
    lost = loss_in(error)
    return [False] if lost is None else lost.told
