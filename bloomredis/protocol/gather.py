"""How operations go on side by side: what they ask for at the same time travels together.

They stay generators in one thread; only their steps are put together, by server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from bloomredis.protocol.steps import Concurrent, OnServer, Op, Pipelined, Step

T = TypeVar("T")


def at(server: int | None, operation: Op[T]) -> Op[T]:
    """Run an operation on one of several servers; steps that name a server themselves go there."""
    if server is None:
        return (yield from operation)
    try:
        step = next(operation)
        while True:
            try:
                reply = yield step if isinstance(step, OnServer | Concurrent) else OnServer(server, step)
            except Exception as error:
                step = operation.throw(error)
            else:
                step = operation.send(reply)
    except StopIteration as end:
        answer: T = end.value
        return answer
    finally:
        operation.close()


def gather(operations: Iterable[Op[T]], most: int | None = None) -> Op[list[T | Exception]]:
    """Run operations together; return what each ends with, an answer or an error, in order.

    What they ask for at the same time travels in one round trip, to all servers and nodes at once.

    :param most: operations under way at a time, None for all of them.
    """
    waiting = enumerate(operations)
    results: list[Any] = []
    running: dict[int, tuple[Op[T], Step]] = {}

    def move(i: int, operation: Op[T], on: Callable[[], Step]) -> None:
        running.pop(i, None)
        try:
            running[i] = operation, on()
        except StopIteration as end:
            results[i] = end.value
        except Exception as error:
            results[i] = error

    try:
        while True:
            for i, operation in islice(waiting, None if most is None else most - len(running)):
                results.append(None)
                move(i, operation, partial(next, operation))
            if not running:
                return results
            turn = list(running.items())
            replies = yield from _exchanged([step for _, (_, step) in turn])
            for (i, (operation, _)), reply in zip(turn, replies, strict=True):
                failed = isinstance(reply, Exception)
                move(i, operation, partial(operation.throw if failed else operation.send, reply))
    finally:
        for operation, _ in running.values():
            operation.close()


def _exchanged(steps: Sequence[Step]) -> Op[list[Any]]:
    """Have steps executed in one round trip; return the reply to each, or its error."""
    replies: list[Any] = [None] * len(steps)
    groups: dict[int | None, list[tuple[int, Any]]] = {}
    for i, step in enumerate(steps):
        if len(steps) == 1 or isinstance(step, Concurrent):
            replies[i] = yield from _caught(step)
        else:
            server, inner = step if isinstance(step, OnServer) else (None, step)
            groups.setdefault(server, []).append((i, inner))
    merged = [_merged(server, [inner for _, inner in group]) for server, group in groups.items()]
    told = [(yield from _caught(merged[0]))] if len(merged) == 1 else []
    if len(merged) > 1:
        told = yield Concurrent(merged)
    for group, reply in zip(groups.values(), told, strict=True):
        each = [reply] * len(group) if isinstance(reply, Exception) or len(group) == 1 else reply
        for (i, _), own in zip(group, each, strict=True):
            replies[i] = own
    return replies


def _merged(server: int | None, steps: Sequence[Any]) -> Step:
    """Return one step that does what several for one server do."""
    step = steps[0] if len(steps) == 1 else Pipelined(steps)
    return step if server is None else OnServer(server, step)


def _caught(step: Step) -> Op[Any]:
    try:
        return (yield step)
    except Exception as error:
        return error


def unless_failed(outcomes: Iterable[T | Exception]) -> list[T]:
    """Return the answers, or raise the first error."""
    answers: list[T] = []
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
        answers.append(outcome)
    return answers
