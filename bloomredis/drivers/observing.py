"""Observed calls: one event a call, for a hook of the process or of a filter.

The methods of an object that is observed are replaced by others that call them, so an object that is not has
nothing to test.
"""

from __future__ import annotations

import functools
import inspect
import logging
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Sized
from time import perf_counter
from typing import Any, Final, NamedTuple
from weakref import WeakSet

from bloomredis import errors
from bloomredis.arguments import shown
from bloomredis.operations.events import CallEvent, Hook, Outcome
from bloomredis.protocol.metering import Counts, Meter, of_task, of_thread

_log = logging.getLogger("bloomredis")


_Counted = tuple[int | None, int, int]
_NOTHING: Final[_Counted] = (None, 0, 0)


class _Verb(NamedTuple):
    """The numbers in the event of a verb.

    :ivar items: returns the number of items, given the first argument and the answer (None after an error).
    :ivar new: returns the number of new ones, given the answer; None for a verb that has none.
    :ivar busy: returns the number of items that others hold, likewise.
    :ivar lost: returns the number of claims that were lost, likewise.
    :ivar may_be_cached: a local cache may answer.
    """

    items: Callable[[Any, Any], int]
    new: Callable[[Any], int] | None = None
    busy: Callable[[Any], int] | None = None
    lost: Callable[[Any], int] | None = None
    may_be_cached: bool = False

    def counted(self, answer: Any) -> _Counted:
        """Return the numbers of an answer: new, busy and lost ones."""
        return (
            None if self.new is None else self.new(answer),
            0 if self.busy is None else self.busy(answer),
            0 if self.lost is None else self.lost(answer),
        )


def _many(items: Any, answer: Any) -> int:
    known = answer if answer is not None else items
    return len(known) if isinstance(known, Sized) else 0


def _one(_: Any, __: Any) -> int:
    return 1


def _none(_: Any, __: Any) -> int:
    return 0


def _in_state(state: str) -> Callable[[Any], int]:
    """Return what counts claims in a state; it does not look at them for a caller who has to."""
    return lambda claims: sum(claim._held.state == state for claim in claims)  # noqa: SLF001


def _of_one(count: Callable[[Any], int]) -> Callable[[Any], int]:
    return lambda claim: count([claim])


_VERBS: Final = {
    "add": _Verb(_one, int, may_be_cached=True),
    "contains": _Verb(_one, lambda there: int(not there), may_be_cached=True),
    "add_many": _Verb(_many, sum, may_be_cached=True),
    "contains_many": _Verb(_many, lambda there: len(there) - sum(there), may_be_cached=True),
    "remove": _Verb(_one),
    "load": _Verb(lambda _, read: read or 0),
    "claim": _Verb(_one, _of_one(_in_state("claimed")), _of_one(_in_state("busy"))),
    "claim_many": _Verb(_many, _in_state("claimed"), _in_state("busy")),
    **dict.fromkeys(
        ("commit_many", "release_many", "extend_many"), _Verb(_many, lost=lambda states: states.count("lost"))
    ),
    **dict.fromkeys(
        (
            *("reserve", "info", "approximate_count", "clear", "delete", "expire"),
            *("save", "copy", "merge", "snapshot"),
        ),
        _Verb(_none),
    ),
}
_OF_CLAIMS: Final = dict.fromkeys(("commit", "release", "extend"), _Verb(_one))

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


class _Observers:
    """The hook of the process, and the filters that it concerns."""

    def __init__(self) -> None:
        self.hook: Hook | None = None
        self.filters: WeakSet[Any] = WeakSet()


_observers: Final = _Observers()


def instrument(hook: Hook | None) -> None:
    """Call a hook with a `CallEvent` after each public call of every filter in this process.

    None is for no hook.  It is called in the thread or task of the call, which waits for it; what it raises
    is logged and goes no further.  A filter that was made with `observe=` has that hook instead.

    :raises TypeError: it is not callable.
    """
    if hook is not None and not callable(hook):
        raise TypeError(f"hook must be a callable or None, not {shown(hook)}")
    _observers.hook = hook
    for each in list(_observers.filters):
        watch(each)


def watch(seen: Any) -> None:
    """Let a filter be observed, if it has a hook or the process has."""
    _observers.filters.add(seen)
    _replace(seen, _VERBS, _hook_of(seen), seen)


def watch_claim(claim: Any, seen: Any) -> None:
    """Let a new claim of a filter be observed, if that is."""
    if (hook := _hook_of(seen)) is not None:
        _replace(claim, _OF_CLAIMS, hook, seen)


def _hook_of(seen: Any) -> Hook | None:
    own: Hook | None = seen._operations.options.observe  # noqa: SLF001 - a filter and its observer are one thing
    return _observers.hook if own is None else own


def _replace(target: Any, verbs: dict[str, _Verb], hook: Hook | None, seen: Any) -> None:
    """Replace the methods of an object, or take back what replaced them."""
    for name, verb in verbs.items():
        target.__dict__.pop(name, None)
        if hook is not None and (method := getattr(target, name, None)) is not None:
            target.__dict__[name] = _observed(method, _Reporter(hook, seen, name, verb))


def _observed(method: Any, reporter: _Reporter) -> Any:
    """Return a method that reports each call of another one."""
    report = reporter.report
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def wait(*args: Any, **kwargs: Any) -> Any:
            return await _awaited(method(*args, **kwargs), report, args)

        return wait

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        meter = of_thread.meter
        if meter is None:
            meter = of_thread.meter = Meter()
        before, started = meter.counts(), perf_counter()
        try:
            answer = method(*args, **kwargs)
        except BaseException as error:
            report(args, error, started, meter.since(before))
            raise
        if answer.__class__.__name__ == "Claiming":
            return answer.through(lambda claiming: _awaited(claiming, report, args))
        report(args, answer, started, meter.since(before))
        return answer

    return call


async def _awaited(called: Awaitable[Any], report: Callable[..., None], args: tuple[Any, ...]) -> Any:
    """Wait for a call, and report it."""
    meter, started = Meter(), perf_counter()
    token = of_task.set(meter)
    try:
        answer = await called
    except BaseException as error:
        report(args, error, started, meter.counts())
        raise
    finally:
        of_task.reset(token)
    report(args, answer, started, meter.counts())
    return answer


class _Reporter:
    """The events of one method."""

    def __init__(self, hook: Hook, seen: Any, name: str, verb: _Verb) -> None:
        self._hook = hook
        self._names = seen.name, type(seen).__name__, name
        self._filter = seen.__dict__
        self._verb = verb
        self._is_cached = verb.may_be_cached and seen._operations.cache is not None  # noqa: SLF001 - as in _hook_of

    def report(self, args: tuple[Any, ...], answer: Any, started: float, counts: Counts) -> None:
        """Call the hook with the event of a call that has ended, with an answer or an error."""
        seconds, verb, outcome, counted = perf_counter() - started, self._verb, "ok", _NOTHING
        trips, resends, receipts = counts
        try:
            if isinstance(answer, BaseException):
                answer, outcome = None, _outcome(answer)
            else:
                counted = verb.counted(answer)
            items = verb.items(args[0] if args else None, answer)
            new, busy, lost = counted
            cached = items if self._is_cached and not trips and outcome == "ok" else 0
            numbers = seconds, trips, resends, outcome, busy, lost, cached, receipts
            self._hook(_event((*self._names, items, new, *numbers)))
        except Exception:
            _log.exception("the hook that observes %r failed", self._names[0])


_event: Final = functools.partial(tuple.__new__, CallEvent)
"""Makes an event of its fields; in half the time of the class's own way."""


def _outcome(error: BaseException) -> Outcome:
    return next((outcome for kind, outcome in _OUTCOMES if isinstance(error, kind)), "error")
