"""Observed calls: one event each, for the hook of a filter or of the process.

A call is observed where it begins: `observed` wraps each public method that may reach the server, and calls
straight through where there is no hook.
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
from bloomredis.operations.events import CallEvent, Hook, Outcome, Report, check_hook
from bloomredis.protocol.metering import Meter
from bloomredis.protocol.steps import Op

F = TypeVar("F", bound=Callable[..., object])
Asked = tuple[Any, tuple[object, ...], dict[str, object]]
"""What a call is made on, a filter, a claim or a class; and its arguments."""
T = TypeVar("T")
Numbers = tuple[int, int | None, int, int]
"""Items; the new ones, None for a verb that has none; those that others hold; the claims that were lost."""

_log = logging.getLogger("bloomredis")


def _one(_: object) -> int:
    return 1


def _none(_: object) -> int:
    return 0


def _each(items: object) -> int:
    return len(items) if isinstance(items, Sized) else 0


def _of_claims(claims: list[Any]) -> Numbers:
    """Return the numbers of claims; their states are not looked at for a caller who has to."""
    states = [claim._held.state for claim in claims]
    return len(states), states.count("claimed"), states.count("busy"), 0


_COUNTING: Final[dict[str, tuple[Callable[[object], int], Callable[[Any], Numbers]]]] = {
    "add": (_one, lambda new: (1, int(new), 0, 0)),
    "contains": (_one, lambda there: (1, int(not there), 0, 0)),
    "add_many": (_each, lambda new: (len(new), sum(new), 0, 0)),
    "contains_many": (_each, lambda there: (len(there), len(there) - sum(there), 0, 0)),
    "load": (_none, lambda read: (read, None, 0, 0)),
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
"""The number of items after an error, given the first argument; and the numbers of an answer."""
_OF_THE_WHOLE: Final = _none, lambda _: (0, None, 0, 0)
"""Those of verbs that are about the filter as a whole."""
_CACHED: Final = frozenset(("add", "contains", "add_many", "contains_many"))
"""Verbs that a local cache may answer."""

_OUTCOMES: Final[tuple[tuple[type[BaseException], Outcome], ...]] = (
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

    None is for no hook.  It is called in the thread or task of the call, which waits for it; what it raises
    is logged and goes no further.  A filter that was made with `observe=` has that hook instead.

    A hook that is an object with a method `around(filter, kind, verb)` is entered before the call: the method
    returns a context manager, which yields the function to call with the event.

    :raises TypeError: it is neither.
    """
    check_hook("hook", hook)
    process.hook = hook


def observed(method: F) -> F:
    """Let a public method report each call to the filter's own hook, or else to that of the process."""
    verb, is_coroutine = _Verb(method.__name__.lstrip("_")), inspect.iscoroutinefunction(method)
    reported = verb.wait if is_coroutine else verb.call

    def call(target: Any, item: Any = _NOTHING, /, *args: Any, **kwargs: Any) -> Any:
        if (hook := target._observe) is None and (hook := process.hook) is None:
            if item is not _NOTHING and not (args or kwargs):
                return method(target, item)  # unpacked, it would be 3% of an add that shares its trip
            return method(target, *_given(item, args), **kwargs)
        return reported(hook, method, target, _given(item, args), kwargs)

    # No coroutine more, which would take 5% of such an add.
    wrapper = cast("F", functools.wraps(method)(call))
    return _as_coroutine_function(wrapper) if is_coroutine else wrapper


def _given(item: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return all positional arguments of a call."""
    return args if item is _NOTHING else (item, *args)


def _as_coroutine_function(function: F) -> F:
    """Mark a function that returns coroutines; Python 3.11 has no mark that `inspect` knows."""
    mark: Callable[[F], F] | None = getattr(inspect, "markcoroutinefunction", None)
    if mark is not None:
        return mark(function)
    function._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
    return function


@contextmanager
def observed_block(seen: Any, name: str) -> Iterator[Callable[[Op[Any]], Any]]:
    """Report a block when it has ended; yield what runs the operations at its beginning and its end."""
    if (hook := seen._observe) is None and (hook := process.hook) is None:
        yield seen._run
        return
    verb = _Verb(name)
    asked: Asked = seen, (), {}
    with _entered(hook, verb.names(*asked)) as report:
        meter = Meter()
        try:
            yield functools.partial(meter.count_task if seen._is_asyncio else meter.count_thread, seen._run)
        except BaseException as error:
            verb.report(report, asked, meter, error)
            raise
        verb.report(report, asked, meter, None)


@functools.lru_cache
def _is_around(kind: type) -> bool:
    """True if hooks of a class are entered; kept, since a method that is not there takes long to miss."""
    return hasattr(kind, "around")


@contextmanager
def _entered(hook: Any, names: tuple[str, str, str]) -> Iterator[Report]:
    """Enter the context of a hook that has one; yield what is called with the event."""
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
    """Leave the context of a hook without the error of the call, whose text may have items."""
    try:
        context.__exit__(None, None, None)
    except Exception:
        _failed(name)


class _Verb:
    """Makes the calls of one verb, and reports them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._asked, self._counted = _COUNTING.get(name, _OF_THE_WHOLE)
        self._may_be_cached = name in _CACHED
        self._is_of_claim = name in ("commit", "release", "extend")
        self._is_of_filter = not self._is_of_claim and name not in ("restore", "adopt")

    def call(
        self,
        hook: Any,  # a `Report` or an `Around`, told apart by its class
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
        """Make a call and wait for it, and report it."""
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
        """Return the names of the filter and its class, and the verb's."""
        if isinstance(target, type):  # which makes the filter of a client and a name
            name = kwargs.get("name", args[1] if len(args) > 1 else "")
            return name if isinstance(name, str) else shown(name), target.__name__, self._name
        seen = target._filter if self._is_of_claim else target
        return seen._operations.name, seen.__class__.__name__, self._name

    def report(self, hook: Report, asked: Asked, meter: Meter, answer: object) -> None:
        """Call a hook with the event of a call that has ended, with an answer or an error."""
        seconds, trips, cached = perf_counter() - meter.started, meter.round_trips, 0
        outcome: Outcome = "ok"
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
"""Makes an event of its fields; in half the time of the class's own way."""


def _failed(name: str) -> None:
    _log.exception("the hook that observes %r failed", name)


def _outcome(error: BaseException) -> Outcome:
    return next((outcome for kind, outcome in _OUTCOMES if isinstance(error, kind)), "error")
