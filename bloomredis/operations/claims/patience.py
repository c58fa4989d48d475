"""Patience: calls about claims wait for a connection, and a commit is made again until its lease has ended.

The work on a claimed item is done by the time of its commit, so giving up costs all of it; as long as the
lease lasts nobody else begins it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from bloomredis.arguments import shown
from bloomredis.errors import ConnectionFailedError, OutcomeUnknownError, ServerRefusedError
from bloomredis.operations.claims.state import Held
from bloomredis.protocol import clock
from bloomredis.protocol.clock import pauses
from bloomredis.protocol.gather import gather, unless_failed
from bloomredis.protocol.replies import PASSING, is_unsent
from bloomredis.protocol.steps import Call, Many, Op, Reply, Sleep

T = TypeVar("T")

CONNECTION_SECONDS: Final = 20.0
"""How long a call waits for a connection, as in redis-py's BlockingConnectionPool."""

_POLLED: Final = 0.05
"""Seconds between two looks for a connection, at most."""

_TOGETHER: Final = 1000
"""Claims whose calls share a round trip."""

_log = logging.getLogger("bloomredis")


def with_connection(operation: Op[T]) -> Op[T]:
    """Run an operation whose steps wait where the client's pool has no connection left for them."""
    try:
        step = next(operation)
        while True:
            outcome: Any
            try:
                outcome = yield step
            except Exception as error:
                outcome = error
            if isinstance(step, Call) and _is_unsent(outcome):
                (outcome,) = yield from _sent_again([step], [outcome])
            elif isinstance(step, Many) and _is_unsent(outcome):
                outcome = yield from _sent_again(step.calls, outcome)
            advance = operation.throw if isinstance(outcome, Exception) else operation.send
            step = advance(outcome)
    except StopIteration as end:
        answer: T = end.value
        return answer
    finally:
        operation.close()


def _is_unsent(outcome: object) -> bool:
    """Return whether no connection was free for a step, or for one of its calls."""
    if isinstance(outcome, list):
        return any(isinstance(each, Exception) and is_unsent(each) for each in outcome)
    return isinstance(outcome, Exception) and is_unsent(outcome)


def _sent_again(calls: Sequence[Call], outcomes: list[Reply]) -> Op[list[Reply]]:
    """Make the calls again that had no connection; return the outcome of each."""
    outcomes = list(outcomes)
    until, waits = clock.now() + CONNECTION_SECONDS, pauses(_POLLED)
    while unsent := [i for i, each in enumerate(outcomes) if _is_unsent(each)]:
        pause = next(waits)
        if clock.now() + pause > until:
            break
        yield Sleep(pause)
        if len(calls) == 1:  # as it is, since it may share its round trip
            try:
                outcomes = [(yield calls[0])]
            except Exception as error:
                outcomes = [error]
            continue
        again: list[Reply] = yield Many([calls[i] for i in unsent])
        for i, each in zip(unsent, again, strict=True):
            outcomes[i] = each
    return outcomes


def together(helds: Sequence[Held], call: Callable[[Held], Op[None]]) -> Op[list[Exception | None]]:
    """Make a call about each claim, in one round trip; return the error of each."""
    return gather(map(call, helds), most=_TOGETHER)


def until_lease_ends(held: Held, commit: Callable[[Held], Op[None]]) -> Op[None]:
    """Commit a claim; again after an error that may pass, as long as it is held."""
    try:
        yield from commit(held)
    except Exception as error:
        if not _may_pass(error, held):
            raise
        unless_failed((yield from _again([held], commit, [error])))


def all_until_leases_end(
    helds: Sequence[Held], commit: Callable[[Held], Op[None]]
) -> Op[list[Exception | None]]:
    """Commit claims likewise, together; return the error of each."""
    return (yield from _again(helds, commit, (yield from together(helds, commit))))


def _again(
    helds: Sequence[Held], commit: Callable[[Held], Op[None]], outcomes: list[Exception | None]
) -> Op[list[Exception | None]]:
    """Commit those claims again whose error may pass; return the error of each of all."""
    for number, pause in enumerate(pauses()):
        failed = [i for i, held in enumerate(helds) if _may_pass(outcomes[i], held)]
        if not failed:
            break
        if number == 1:
            first, error = helds[failed[0]], outcomes[failed[0]]
            _log.warning(
                "%d commits are made again until their leases end, that of %s in %.1f s (%s)",
                len(failed),
                shown(first.item),
                first.remaining,
                error,
            )
        yield Sleep(pause)
        again = yield from together([helds[i] for i in failed], commit)
        for i, outcome in zip(failed, again, strict=True):
            outcomes[i] = outcome
    return outcomes


def _may_pass(error: Exception | None, held: Held) -> bool:
    """Return whether the commit of a claim may be answered when it is made again.

    Without `retry_safe` it has no lane, and one that was perhaps executed is not made again.
    """
    if held.remaining == 0 or (isinstance(error, ServerRefusedError) and error.word not in PASSING):
        return False
    if isinstance(error, OutcomeUnknownError):
        return held.lane is not None
    return isinstance(error, ConnectionFailedError | ServerRefusedError)
