"""Patience of claims: a commit is retried until its lease has ended.

At its commit the work on a claimed item is done, and would be lost if the commit gave up.  As long as the
lease lasts, no other worker begins the work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from bloomredis.arguments import shown
from bloomredis.errors import BloomError, ConnectionFailedError, OutcomeUnknownError, ServerRefusedError
from bloomredis.operations.claims.requests import ClaimRequest
from bloomredis.operations.claims.state import ClaimState
from bloomredis.protocol.clock import now, pauses
from bloomredis.protocol.steps import Ask, Op, Sleep

_log = logging.getLogger("bloomredis")

Attempt = Callable[[ClaimRequest], Op[ClaimState]]
"""Makes an attempt at one request: returns the claim, or raises the error."""


def ask(request: ClaimRequest) -> Op[ClaimState]:
    """Let the driver answer a request together with those of other callers."""
    state: ClaimState = yield Ask(request)
    return state


def patient(request: ClaimRequest, attempt: Attempt) -> Op[ClaimState]:
    """Make a request, unless a first attempt has failed; retry a commit as long as that is worthwhile."""
    if request.outcome is None:
        try:
            return (yield from attempt(request))
        except Exception as error:
            request.outcome = error

    def again(_: Sequence[ClaimRequest]) -> Op[None]:
        try:
            request.outcome = yield from attempt(request)
        except Exception as error:
            request.outcome = error

    yield from retry_patiently([request], again)
    return request.answer()


def retry_patiently(
    requests: Sequence[ClaimRequest], attempt: Callable[[Sequence[ClaimRequest]], Op[None]]
) -> Op[None]:
    """Retry the failed commits of requests as long as that is worthwhile.

    :param attempt: makes an attempt at several requests, each of which is answered or keeps its error.
    """
    waits, begun, failed, number = enumerate(pauses(), 1), now(), list[ClaimRequest](), 0
    while left := [each for each in requests if _is_worth_retry(each)]:
        number, pause = next(waits)
        if number == 2:  # the first retry comes at once
            _tell(left)
        yield Sleep(pause)
        yield from attempt(failed := left)
    for error in {each.error for each in failed}:
        if isinstance(error, BloomError):
            error.restate(f"{error.problem}; the commit was repeated {number} times in {now() - begun:.1f} s")


def _is_worth_retry(request: ClaimRequest) -> bool:
    """Return whether a retry of a failed commit may succeed.

    Without `retry_safe` a commit has no session, and is not retried if it may have been executed.
    """
    error, state = request.error, request.state
    if error is None or request.verb != "commit":
        return False
    if state.remaining == 0:
        return state.status == "done"  # by a call beside this one
    if isinstance(error, ServerRefusedError) and not error.transient:
        return False
    if isinstance(error, OutcomeUnknownError):
        return state.session is not None
    return isinstance(error, ConnectionFailedError | ServerRefusedError)


def _tell(failed: Sequence[ClaimRequest]) -> None:
    first = failed[0].state
    _log.warning(
        "%d commits are retried until their leases end; the lease of %s ends in %.1f s (%s)",
        len(failed),
        shown(first.item),
        first.remaining,
        failed[0].error,
    )
