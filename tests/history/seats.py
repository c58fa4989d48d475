"""Seats of workers: they make calls on a filter object and record them."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from bloomredis import (
    BatchInterruptedError,
    ClaimLostError,
    ConnectionFailedError,
    FilterLostError,
    OutcomeUnknownError,
    ServerRefusedError,
)
from tests.history.calls import Ask, Outcome, Work
from tests.rules.calls import Call, State

VERBS: Final[dict[str, Callable[[Any, Ask], Any]]] = {
    "add": lambda f, ask: f.add(ask.items[0], token=ask.token),
    "add_many": lambda f, ask: f.add_many(ask.items),
    "contains": lambda f, ask: f.contains(ask.items[0]),
    "remove": lambda f, ask: f.remove(ask.items[0], token=ask.token),
    "claim": lambda f, ask: f.claim(ask.items[0], lease=ask.lease, renew=ask.renews, owner=ask.holder),
    "claim_many": lambda f, ask: f.claim_many(ask.items, lease=ask.lease, owner=ask.holder),
    "commit_many": lambda f, ask: f.commit_many([claim for _, claim in ask.claims]),
    "release_many": lambda f, ask: f.release_many([claim for _, claim in ask.claims]),
    "commit": lambda _, ask: ask.claim[1].commit(),  # type: ignore[index]  # a claim's ask has one
    "release": lambda _, ask: ask.claim[1].release(),  # type: ignore[index]
    "extend": lambda _, ask: ask.claim[1].extend(ask.lease),  # type: ignore[index]
    "create": lambda f, _: f.create(),
    "acknowledge": lambda f, _: f.acknowledge(),
    "clear": lambda f, _: f.clear(),
    "delete": lambda f, _: f.delete(),
}
_ONE_OF: Final = {
    "add_many": "add",
    "dedupe": "add",
    "claim_many": "claim",
    "commit_many": "commit",
    "release_many": "release",
}
_PAUSE: Final = 0.001
"""Seconds between calls while no connection can be made, so that an outage does not make endless records."""
_STATES: Final[tuple[tuple[tuple[type[BaseException], ...], State], ...]] = (
    ((FilterLostError,), "lost"),
    ((ClaimLostError,), "not held"),
    ((OutcomeUnknownError, ServerRefusedError, ConnectionFailedError, asyncio.CancelledError), "unknown"),
)


class Seat:
    """One worker's place at a filter object.

    :param worker: a unique name.
    :ivar records: all calls, in order.
    """

    def __init__(self, worker: str, owner: str, made: Any) -> None:
        self.records: list[Call] = []
        self._worker = worker
        self._owner = owner
        self._filter = made
        self._numbers = itertools.count()

    def run(self, work: Work) -> None:
        """Make a worker's calls in this thread."""
        ask = next(work, None)
        while ask is not None:
            calls = self._begin(ask)
            value, error = None, None
            try:
                value = list(self._filter.dedupe(ask.items)) if ask.verb == "dedupe" else self._made(ask)
            except Exception as raised:
                error = raised
            if isinstance(error, ConnectionFailedError):
                time.sleep(_PAUSE)
            ask = _next(work, ended(ask, calls, value, error, time.monotonic()))

    async def run_task(self, work: Work) -> None:
        """Make a worker's calls in this task, or in one that is cancelled after a time."""
        ask = next(work, None)
        while ask is not None:
            calls = self._begin(ask)
            value, error = None, None
            try:
                value = await self._in_time(ask)
            except (Exception, asyncio.CancelledError) as raised:
                error = raised
            if isinstance(error, ConnectionFailedError):
                await asyncio.sleep(_PAUSE)
            ask = _next(work, ended(ask, calls, value, error, time.monotonic()))

    def _made(self, ask: Ask) -> Any:
        return VERBS[ask.verb](self._filter, ask)

    async def _awaited(self, ask: Ask) -> Any:
        if ask.verb == "dedupe":
            return [item async for item in self._filter.dedupe(ask.items)]
        return await self._made(ask)

    async def _in_time(self, ask: Ask) -> Any:
        """Make a call; of calls with a time limit `wait_for` cancels half, and their task the others."""
        if ask.hurry is None:
            return await self._awaited(ask)
        if len(self.records) % 2:
            try:
                return await asyncio.wait_for(self._awaited(ask), ask.hurry)
            except TimeoutError:
                raise asyncio.CancelledError from None
        task = asyncio.ensure_future(self._awaited(ask))
        asyncio.get_running_loop().call_later(ask.hurry, task.cancel)
        return await task

    def _begin(self, ask: Ask) -> list[Call]:
        now = time.monotonic()
        earlier: Iterator[Call | None] = iter(ask.earlier)
        claims = iter(ask.claims)
        calls: list[Call] = []
        for item in ask.items or ("",):
            again, claim = next(earlier, None), next(claims, ask.claim)
            call = Call(
                name=f"{self._worker}#{next(self._numbers)}",
                owner=self._owner,
                verb=_ONE_OF.get(ask.verb, ask.verb),
                item=item,
                start=now,
                earlier=again.name if again else None,
                claim=claim[0].name if claim else None,
                lease=ask.lease,
                equal=next((each.name for each in calls if each.item == item), None),
                holder=ask.holder,
            )
            calls.append(call)
        self.records += calls
        return calls


def _next(work: Work, outcome: Outcome) -> Ask | None:
    try:
        return work.send(outcome)
    except StopIteration:
        return None


def ended(ask: Ask, calls: list[Call], value: Any, error: BaseException | None, now: float) -> Outcome:
    """Record the answers of a call, or its error."""
    answers = _answers(ask, calls, value) if error is None else getattr(error, "results", ())
    tokens: Sequence[str | None] = (getattr(error, "token", None),)
    if isinstance(error, BatchInterruptedError):
        tokens, value, error = error.tokens, error.results, error.__cause__
    for call, answer in zip(calls, answers, strict=False):
        call.state, call.answer = "answered", getattr(answer, "status", getattr(answer, "state", answer))
        if call.verb in ("commit", "release") and answer == "lost":
            call.state = "not held"
    for call, token in itertools.zip_longest(calls[len(answers) :], tokens[: len(calls) - len(answers)]):
        call.state, call.token = _state(error), token
        call.error = repr(error)
    for call in calls:
        call.end = now
    return Outcome(calls, value)


def _answers(ask: Ask, calls: list[Call], value: Any) -> Sequence[Any]:
    if ask.verb != "dedupe":
        return value if isinstance(value, list) else [value]
    new = iter([*value, None])
    following = next(new)
    answers = []
    for call in calls:
        answers.append(call.item == following)
        if answers[-1]:
            following = next(new)
    return answers


def _state(error: BaseException | None) -> State:
    return next((state for kinds, state in _STATES if isinstance(error, kinds)), "failed")
