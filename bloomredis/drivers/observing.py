"""Observation of public calls: the hook of the process gets one event for each call.

`observed` wraps each public method that may reach the server.  Without a hook it only passes the call on.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Sized
from contextlib import AbstractContextManager, contextmanager
from time import perf_counter
from typing import Any, Final, TypeVar, cast

from bloomredis import errors
from bloomredis.arguments import shown
from bloomredis.operations.events import CallEvent, CallOutcome, Hook, Report
from bloomredis.protocol.metering import Meter

F = TypeVar("F", bound=Callable[..., object])
ObservedCall = tuple[Any, tuple[object, ...], dict[str, object]]
"""The filter, claim or class on which a call is made, and the call's arguments."""
T = TypeVar("T")
Numbers = tuple[int, int | None, int, int]
"""Four numbers of items: all; new (None if the verb has no such number); busy; lost claims."""

_log = logging.getLogger("bloomredis")


def _one(_: object) -> int:
    return 1


def _none(_: object) -> int:
    return 0


def _each(items: object) -> int:
    return len(items) if isinstance(items, Sized) else 0


def _of_claims(claims: list[Any]) -> Numbers:
    """Return the numbers of claims, without a look at `Claim.state`, which would count as the caller's."""
    states = [claim._state.status for claim in claims]
    return len(states), states.count("claimed"), states.count("busy"), 0


_COUNTING: Final[dict[str, tuple[Callable[[object], int], Callable[[Any], Numbers]]]] = {
    "add": (_one, lambda new: (1, int(new), 0, 0)),
    "contains": (_one, lambda there: (1, int(not there), 0, 0)),
    "add_many": (_each, lambda new: (len(new), sum(new), 0, 0)),
    "contains_many": (_each, lambda there: (len(there), len(there) - sum(there), 0, 0)),
    "update": (_none, lambda read: (read, None, 0, 0)),
    "claim": (_one, lambda claim: _of_claims([claim])),
    "claim_many": (_each, _of_claims),
    **dict.fromkeys(
        ("commit_many", "release_many", "extend_many"),
        (_each, lambda states: (len(states), None, 0, states.count("lost"))),
    ),
    **dict.fromkeys(
        ("remove", "commit", "release", "extend", "queue_add", "queue_contains"),
        (_one, lambda _: (1, None, 0, 0)),
    ),
}
"""For each verb two functions: the items after an error, by the first argument; the numbers of an answer."""
_OF_THE_WHOLE: Final = _none, lambda _: (0, None, 0, 0)
"""The same two functions for verbs about the filter as a whole."""
_CACHED: Final = frozenset(("add", "contains", "add_many", "contains_many"))
"""Verbs that a local cache may answer."""

_OUTCOMES: Final[tuple[tuple[type[BaseException], CallOutcome], ...]] = (
    (errors.BatchInterruptedError, "interrupted"),
    (errors.OutcomeUnknownError, "unknown"),
    (errors.ConnectionFailedError, "failed"),
    (errors.ServerRefusedError, "refused"),
    (errors.FilterLostError, "lost"),
    (errors.ClaimLostError, "lost"),
    (errors.FilterFullError, "full"),
    (CancelledError, "cancelled"),
)


class _Process:
    """The hook of the process."""

    hook: Hook | None = None


process: Final = _Process()
_NOTHING: Final = object()


def instrument(hook: Hook | None) -> None:
    """Call a hook with a `CallEvent` after each public call of every filter in this process.

    None removes the hook.  The hook runs in the thread or task of the call, which waits for it.  Errors of
    the hook are logged, not raised.

    A hook with a method `around(filter, kind, verb)` surrounds the call: the method returns a context
    manager, which is entered before the call and yields the function to call with the event.

    :raises TypeError: the hook is neither callable nor has a method `around`.
    """
    if hook is not None and not callable(hook) and not hasattr(type(hook), "around"):
        raise TypeError(f"hook must be a callable, have a method around(), or be None, not {shown(hook)}")
    process.hook = hook


def observed(method: F) -> F:
    """Return a public method that reports each call to the hook of the process."""
    name, is_coroutine = method.__name__.lstrip("_"), inspect.iscoroutinefunction(method)
    verb = _Verb(name)
    reported = verb.wait if is_coroutine else verb.call

    def call(target: Any, item: Any = _NOTHING, /, *args: Any, **kwargs: Any) -> Any:
        if (hook := process.hook) is None:
            if item is _NOTHING:
                return method(target, **kwargs)
            # Unpacking the arguments would take 3% of an add that shares its round trip.
            return method(target, item, *args, **kwargs) if args or kwargs else method(target, item)
        return reported(hook, method, target, args if item is _NOTHING else (item, *args), kwargs)

    for each in (call, method):
        each.__code__ = each.__code__.replace(co_name=name)  # tracebacks show the public method

    # An `async def` wrapper would be one more coroutine, 5% of such an add.
    wrapper = cast("F", functools.wraps(method)(call))
    method.__qualname__ = method.__name__  # an error for too many arguments shows it; the class is private
    return _as_coroutine_function(wrapper) if is_coroutine else wrapper


def _as_coroutine_function(function: F) -> F:
    """Mark a function as a coroutine function; in Python 3.11 only `asyncio` knows such a mark."""
    mark: Callable[[F], F] | None = getattr(inspect, "markcoroutinefunction", None)
    if mark is not None:
        return mark(function)
    function._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
    return function


@functools.lru_cache
def _is_around(kind: type) -> bool:
    """Return whether hooks of a class have `around`; cached, since a failing `hasattr` is slow."""
    return hasattr(kind, "around")


@contextmanager
def _entered(hook: Any, names: tuple[str, str, str]) -> Iterator[Report]:
    """Enter the context of a hook that has one; yield the function to call with the event."""
    if not _is_around(hook.__class__):
        yield hook
        return
    context: AbstractContextManager[object] | None = None
    report: Report | None = None
    try:
        entering = hook.around(*names)
        report = entering.__enter__()
        context = entering
    except Exception:
        _failed(names[0])
    try:
        yield lambda event: report is not None and report(event)
    finally:
        if context is not None:
            _leave(context, names[0])


def _leave(context: AbstractContextManager[object], name: str) -> None:
    """Leave the context of a hook without the error of the call, whose text may contain items."""
    try:
        context.__exit__(None, None, None)
    except Exception:
        _failed(name)


class _Verb:
    """One verb, whose calls are made and reported."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._asked, self._counted = _COUNTING.get(name, _OF_THE_WHOLE)
        self._may_be_cached = name in _CACHED
        self._is_of_claim = name in ("commit", "release", "extend")
        self._is_of_filter = not self._is_of_claim and name not in ("restore", "adopt")

    def call(
        self,
        hook: Any,  # a `Report` or an `Around`
        method: Callable[..., T],
        target: object,
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> T:
        """Make a call, and report it."""
        if _is_around(hook.__class__):
            with _entered(hook, self.names(target, args, kwargs)) as report:
                return self.call(report, method, target, args, kwargs)
        meter = Meter()
        try:
            answer = meter.count_thread(method, target, *args, **kwargs)
        except BaseException as error:
            self.report(hook, (target, args, kwargs), meter, error)
            raise
        self.report(hook, (target, args, kwargs), meter, answer)
        return answer

    async def wait(
        self,
        hook: Any,
        method: Callable[..., Any],
        target: object,
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        """Make a call, await it, and report it."""
        if _is_around(hook.__class__):
            with _entered(hook, self.names(target, args, kwargs)) as report:
                return await self.wait(report, method, target, args, kwargs)
        meter = Meter()
        try:
            answer = await meter.count_task(method, target, *args, **kwargs)
        except BaseException as error:
            self.report(hook, (target, args, kwargs), meter, error)
            raise
        self.report(hook, (target, args, kwargs), meter, answer)
        return answer

    def names(self, target: Any, args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[str, str, str]:
        """Return the names of the filter, its class and the verb."""
        if isinstance(target, type):  # `restore` and `adopt` are called with a client and a name
            name = kwargs.get("name", args[1] if len(args) > 1 else "")
            return name if isinstance(name, str) else shown(name), target.__name__, self._name
        seen = target._filter if self._is_of_claim else target
        return seen._operations.name, seen.__class__.__name__, self._name

    def report(self, hook: Report, asked: ObservedCall, meter: Meter, answer: object) -> None:
        """Call a hook with the event of a call that has ended, with an answer or an error."""
        seconds, trips, cached = perf_counter() - meter.started, meter.round_trips, 0
        outcome: CallOutcome = "ok"
        target, args, _ = asked
        try:
            if isinstance(answer, BaseException):
                items, new, busy, lost = self._asked(args[0] if args else None), None, 0, 0
                outcome = _outcome(answer)
            else:
                items, new, busy, lost = self._counted(answer)
                if not trips and self._may_be_cached and target._operations.cache is not None:
                    cached = items
            resends, receipts = meter.resends, meter.receipts
            numbers = items, new, seconds, trips, resends, outcome, busy, lost, cached, receipts
            if self._is_of_filter:  # as `names` does
                names = target._operations.name, target.__class__.__name__, self._name
            else:
                names = self.names(*asked)
            hook(_event(names + numbers))
        except Exception:
            _failed(self.names(*asked)[0])


_event: Final = functools.partial(tuple.__new__, CallEvent)
"""Make an event of its fields, in half the time that calling the class takes."""


def _failed(name: str) -> None:
    _log.exception("the hook that observes %r failed", name)


def _outcome(error: BaseException) -> CallOutcome:
    return next((outcome for kind, outcome in _OUTCOMES if isinstance(error, kind)), "error")
