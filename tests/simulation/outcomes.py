"""Outcomes of calls: answers are checked, and unanswered requests are recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import redis

from bloomredis.errors import (
    BatchInterruptedError,
    ClaimLostError,
    FilterFullError,
    FilterLostError,
    FilterNotFoundError,
    OutcomeUnknownError,
    ServerRefusedError,
)
from tests.simulation.entries import NOTHING_IN_DOUBT
from tests.simulation.history import Request, State, Violation, state_of
from tests.simulation.processes import READING, Call, SoftTimeLimit
from tests.simulation.server import REFUSES

if TYPE_CHECKING:
    from tests.simulation.world import World


def is_refused(error: BaseException | None) -> bool:
    """Return whether an error is the server's own refusal that a fault caused."""
    return isinstance(error, redis.exceptions.ResponseError) and REFUSES in str(error)


_CANCELLED: Final[tuple[type[BaseException], ...]] = (SoftTimeLimit, asyncio.CancelledError, GeneratorExit)
_UNKNOWN: Final[tuple[type[BaseException], ...]] = (
    OutcomeUnknownError,
    ServerRefusedError,
    NOTHING_IN_DOUBT,
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    *_CANCELLED,
)


def settle(world: World, call: Call, answer: Any, error: BaseException | None) -> None:
    """Check a call's outcome."""
    answers = answer if isinstance(answer, list) else [answer] * len(call.requests)
    tokens: Sequence[str | None] = getattr(error, "tokens", ())
    if error is not None:
        answers = error.results if isinstance(error, BatchInterruptedError) else []
        error = error.__cause__ or error if isinstance(error, BatchInterruptedError) else error
    for i, request in enumerate(call.requests):
        if i < len(answers):
            _answered(world, request, answers[i])
        elif error is not None:
            place = i - len(answers)
            # A load is repeated as a whole: the error has no answers, so its tokens have no places.
            own = tokens[place] if place < len(tokens) and not request.is_load else None
            request.token = getattr(error, "token", None) if request.is_single else own
            request.wall_error = world.environment.wall_error(call.owner.process.pid)
            _failed(world, request, error)


def _end(world: World, request: Request, state: State, *, answered: bool) -> None:
    world.history.end(request, state, *world.clocks())
    request.owner.end(request, world.history.step, answered=answered)


def _answered(world: World, request: Request, answer: Any) -> None:
    request.answer = None if request.is_load else answer
    check = _CHECKS.get("update" if request.is_load else request.verb)
    try:
        if check is not None:
            check(world, request, answer)
    finally:
        _end(world, request, "answered", answered=True)


def _failed(world: World, request: Request, error: BaseException) -> None:
    try:
        if isinstance(error, FilterFullError) and request.owner.options.get("on_full") == "raise":
            world.rules.full(request, (world.kind.options | dict(world.scenario.options))["capacity"])
        elif isinstance(error, FilterLostError):
            world.rules.lost(request)
            request.owner.raise_loss(request, world.history.step)
        elif isinstance(error, FilterNotFoundError) and request.verb in READING:
            world.rules.missing(request)
        elif isinstance(error, ClaimLostError):
            _not_held(world, request)
        elif not isinstance(error, _UNKNOWN) and not is_refused(error):
            raise Violation("unexpected error", f"{request} raised {error!r}") from error
        request.is_cancelled = isinstance(error, _CANCELLED)
        if request.is_cancelled:
            request.owner.raised_quietly = world.history.step  # a loss that it meets is told to another call
        asked_again = "same object" in str(error)  # about an earlier call, whose caller has the token
        alone = request.is_single and request.owner.process.loop is None and not asked_again
        if isinstance(error, OutcomeUnknownError) and alone and request.verb == "add":
            world.rules.unknown(request)
    finally:
        is_unknown = isinstance(error, _UNKNOWN) or is_refused(error)
        _end(world, request, "unknown" if is_unknown else "void", answered=False)


def _not_held(world: World, request: Request) -> None:
    if request.verb in ("commit", "extend"):
        world.claims.not_held(request)


def _claimed(world: World, request: Request, claim: Any) -> None:
    if any(each.held is claim for each in world.held):
        return  # it belongs to an equal item of the batch
    request.held = claim
    status = state_of(claim).status
    if status == "claimed":
        world.held.append(request)
    world.claims.claimed(request, status)


def _committed(world: World, request: Request, state: str | None) -> None:
    if state in (None, "done"):
        world.claims.committed(request)
    elif state == "lost":
        world.claims.not_held(request)


def _extended(world: World, request: Request, state: str | None) -> None:
    if state in (None, "claimed"):
        world.claims.extended(request)
    else:
        world.claims.not_held(request)


def _renewed(world: World, request: Request, error: Exception | None) -> None:
    if error is None and request.executed:
        world.claims.extended(request)
    elif isinstance(error, ClaimLostError):
        world.claims.not_held(request)


_CHECKS: Final[dict[str, Any]] = {
    "add": lambda world, request, answer: world.rules.added(request, new=answer),
    "update": lambda world, request, _: world.rules.loaded(request),
    "contains": lambda world, request, answer: world.rules.asked(request, there=answer),
    "create": lambda world, request, _: world.rules.created(request),
    "acknowledge": lambda world, request, answer: world.rules.acknowledged(request, had_lost=answer),
    "remove": lambda world, request, answer: world.rules.removed(request, was_in=answer),
    "claim": _claimed,
    "commit": _committed,
    "extend": _extended,
    "renew": _renewed,
}
