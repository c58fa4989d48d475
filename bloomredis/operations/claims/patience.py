"""Patience of claims: calls wait for a connection, and a commit is retried until its lease has ended.

At its commit the work on a claimed item is done, and would be lost if the commit gave up.  As long as the
lease lasts, no other worker begins the work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from bloomredis.arguments import shown
from bloomredis.errors import ConnectionFailedError, OutcomeUnknownError, ServerRefusedError
from bloomredis.operations.claims.state import ClaimState
from bloomredis.protocol import clock
from bloomredis.protocol.clock import pauses
from bloomredis.protocol.gather import gather, through, unless_failed
from bloomredis.protocol.replies import is_unsent
from bloomredis.protocol.steps import Call, Many, Op, Reply, Sleep, Step

T = TypeVar("T")

CONNECTION_SECONDS: Final = 20.0
"""Seconds for which a call waits for a connection, as in redis-py's BlockingConnectionPool."""

_POLLED: Final = 0.05
"""Maximal pause between two attempts to get a connection, in seconds."""

_MOST_CALLS: Final = 1000
"""Maximal number of claims whose calls share a round trip."""

_log = logging.getLogger("bloomredis")


def with_connection(operation: Op[T]) -> Op[T]:
    """Run an operation; its steps wait for a connection if the client's pool has none left."""
    return through(operation, _execute)


def _execute(step: Step) -> Op[object]:
    """Execute a step; retry its calls that got no connection."""
    outcome: Any
    try:
        outcome = yield step
    except Exception as error:
        outcome = error
    if isinstance(step, Many) and isinstance(outcome, list):
        return (yield from _wait_and_send(step.calls, outcome))
    if isinstance(step, Call) and _is_unsent(outcome):
        (outcome,) = yield from _wait_and_send([step], [outcome])
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _is_unsent(outcome: object) -> bool:
    """Return whether no connection was free for a call."""
    return isinstance(outcome, Exception) and is_unsent(outcome)


def _wait_and_send(calls: Sequence[Call], outcomes: list[Reply]) -> Op[list[Reply]]:
    """Retry the calls that got no connection; return the outcome of each call."""
    outcomes = list(outcomes)
    until, waits = clock.now() + CONNECTION_SECONDS, pauses(_POLLED)
    while unsent := [i for i, each in enumerate(outcomes) if _is_unsent(each)]:
        pause = next(waits)
        if clock.now() + pause > until:
            break
        yield Sleep(pause)
        if len(calls) == 1:  # not as `Many`, since a single call may share a round trip
            try:
                outcomes = [(yield calls[0])]
            except Exception as error:
                outcomes = [error]
            continue
        again: list[Reply] = yield Many([calls[i] for i in unsent])
        for i, each in zip(unsent, again, strict=True):
            outcomes[i] = each
    return outcomes


def call_each(
    states: Sequence[ClaimState], call: Callable[[ClaimState], Op[None]]
) -> Op[list[Exception | None]]:
    """Make a call for each claim, in one round trip; return the error of each."""
    return gather(map(call, states), most=_MOST_CALLS)


def until_lease_ends(state: ClaimState, commit: Callable[[ClaimState], Op[None]]) -> Op[None]:
    """Commit a claim; retry after a transient error as long as the lease lasts."""
    try:
        yield from commit(state)
    except Exception as error:
        if not _is_worth_retry(error, state):
            raise
        unless_failed((yield from retry_until_leases_end([state], commit, [error])))


def retry_until_leases_end(
    states: Sequence[ClaimState], commit: Callable[[ClaimState], Op[None]], outcomes: list[Exception | None]
) -> Op[list[Exception | None]]:
    """Retry the commits that failed with a transient error; return the error of each commit."""
    for number, pause in enumerate(pauses()):
        failed = [i for i, state in enumerate(states) if _is_worth_retry(outcomes[i], state)]
        if not failed:
            break
        if number == 1:
            first, error = states[failed[0]], outcomes[failed[0]]
            _log.warning(
                "%d commits are retried until their leases end; the lease of %s ends in %.1f s (%s)",
                len(failed),
                shown(first.item),
                first.remaining,
                error,
            )
        yield Sleep(pause)
        again = yield from call_each([states[i] for i in failed], commit)
        for i, outcome in zip(failed, again, strict=True):
            outcomes[i] = outcome
    return outcomes


def _is_worth_retry(error: Exception | None, state: ClaimState) -> bool:
    """Return whether a retry of the commit of a claim may succeed.

    Without `retry_safe` a commit has no session, and is not retried if it may have been executed.
    """
    if state.remaining == 0 or (isinstance(error, ServerRefusedError) and not error.passes):
        return False
    if isinstance(error, OutcomeUnknownError):
        return state.session is not None
    return isinstance(error, ConnectionFailedError | ServerRefusedError)
