"""The methods of a filter that make claims, over synchronous and asyncio clients."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Generic, Never, ParamSpec, TypeVar, overload

from bloomredis import arguments
from bloomredis.arguments import shown
from bloomredis.drivers.binding import documented_as
from bloomredis.drivers.claims import AsyncClaim, Claim, Claiming, states_of
from bloomredis.drivers.driven import AsyncDriven, Driven
from bloomredis.drivers.observing import observed
from bloomredis.operations.claims.state import ClaimStatus
from bloomredis.operations.options import I
from bloomredis.protocol.steps import Op

P = ParamSpec("P")
R = TypeVar("R")
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class Skipped:
    """The return value of a function with `once` whose body was not run.

    `state` is `"done"` if the body has been run for the item, or `"busy"` if another worker holds the item.
    Then `remaining` is the number of seconds until that worker's lease ends, unless the worker extends it.
    """

    item: object
    state: ClaimStatus
    remaining: float


class Claimer(Driven, Generic[I]):
    """The methods that make claims, and those for many claims at once."""

    @observed
    def claim(
        self, item: I, lease: float | timedelta = 30.0, *, renew: bool = False, owner: str | None = None
    ) -> Claim:
        """Claim an item to work on it; the claim is false if the item is done or another worker holds it.

        The block runs in either case, so test the claim first::

            with seen.claim(url, renew=True) as claim:
                if claim:
                    fetch(url)

        Of concurrent claims on an item exactly one is `"claimed"`.  The item is in the filter from the commit
        on.  If a worker crashes, its lease runs out, and then another worker may claim the item.

        The claim costs one round trip, and its commit another one.  If the client's pool has no connection
        left, each of the two waits for one, up to 20 seconds.

        :param lease: seconds (or a timedelta) for which the item is held; `Claim.extend` extends them.
        :param renew: extend the lease after each third of it, in the background, until the commit or the
            release begins or the `Claim` object is gone.  If the item is lost all the same, `Claim.lost` is
            True and the commit raises `ClaimLostError`.
        :param owner: a name for the holder, for work that is run again under the same name, such as the rank
            of a job or a partition of a batch.  The next run immediately gets the items that its predecessor
            holds.  From then on commits of the predecessor raise `ClaimLostError`.  Two workers that live at
            the same time must not share a name, since both would work on the item.  Don't use the id of a
            message if the message may be delivered again while a worker still handles the first delivery, as
            after a visibility timeout.
        :raises OutcomeUnknownError: no answer came; a retry on the same object returns the answer of this
            call.
        """
        arguments.flag("renew", renew)
        made = partial(Claim, self, renew=renew)
        return self._run_claim(self._operations.claim(item, lease, made, owner))

    @observed
    def claim_many(
        self, items: Iterable[I], lease: float | timedelta = 30.0, *, owner: str | None = None
    ) -> list[Claim]:
        """Claim items; return a `Claim` of each, in order.  Equal items share one claim.

        :param owner: a name for the holder: see `claim`.
        :raises BatchInterruptedError: an error stopped the batch; `results` has the claims so far.  If an
            item of `rest` equals one of those, it is busy until the claim on that one ends.
        """
        return self._run(self._operations.claim_many(items, lease, partial(Claim, self), owner))

    @observed
    def commit_many(self, claims: Iterable[Claim]) -> list[ClaimStatus]:
        """Commit claims; return the state of each afterwards, in order.

        Every 1,000 claims cost one round trip; the first batch of an object costs one more.  Commits without
        an answer are retried until their leases have ended.

        The state is `"done"`, or `"lost"` if the claim was not held any more and nothing was changed.  A
        claim that is not held, such as one on a busy item, is skipped and keeps its state.  Each commit is
        atomic by itself; a retry returns the answer of the first execution.

        :raises BatchInterruptedError: an error stopped the batch; call this again with `error.rest`.
        """
        return self._each(self._operations.commit_many, claims)

    @observed
    def release_many(self, claims: Iterable[Claim]) -> list[ClaimStatus]:
        """Release claims; return the state of each afterwards, as `commit_many` does."""
        return self._each(self._operations.release_many, claims)

    @observed
    def extend_many(self, claims: Iterable[Claim], lease: float | timedelta) -> list[ClaimStatus]:
        """Hold items for `lease` seconds (or a timedelta) from now; return the state of each claim.

        The state is `"claimed"` or `"lost"`: see `commit_many`.
        """
        return self._each(self._operations.extend_many, claims, lease)

    def _each(
        self, call: Callable[..., Op[list[ClaimStatus]]], claims: Iterable[Claim], *rest: float | timedelta
    ) -> list[ClaimStatus]:
        return self._run(call(*states_of(self, claims, Claim), *rest))

    @overload
    def once(
        self,
        *bare: Never,
        key: Callable[..., I] | None = None,
        lease: float | timedelta = 30.0,
        renew: bool = True,
        on_busy: None = None,
    ) -> Callable[[Callable[P, R]], Callable[P, R | Skipped]]: ...

    @overload
    def once(
        self,
        *bare: Never,
        key: Callable[..., I] | None = None,
        lease: float | timedelta = 30.0,
        renew: bool = True,
        on_busy: Callable[[Any, float], B],
    ) -> Callable[[Callable[P, R]], Callable[P, R | Skipped | B]]: ...

    def once(
        self,
        *bare: Never,
        key: Callable[..., I] | None = None,
        lease: float | timedelta = 30.0,
        renew: bool = True,
        on_busy: Callable[[Any, float], B] | None = None,
    ) -> Callable[[Callable[P, R]], Callable[P, R | Skipped | B]]:
        """Return a decorator: the function's body runs once for an item; other calls return `Skipped`.

        ::

            @seen.once(key=lambda order: order.id)
            def ship(order): ...

        The item is claimed before the body runs, committed after it, and released if the body raises.

        :param key: returns the item, given the arguments of the call; None takes the first argument, given by
            position, by name or by default.
        :param lease: lease of the claim; without `renew` the body must end within it.
        :param renew: extend the lease as long as the body runs.
        :param on_busy: handles a call whose item another worker holds.  It is called with the item and the
            seconds left of the lease; the call returns its result, or raises its error.  None returns
            `Skipped`.  A queue must deliver the message again, since the other worker may be dead.
        :raises ClaimLostError: the body took longer than the lease.
        """
        _check_brackets(bare)
        _check_options(lease, renew, on_busy)

        def decorate(function: Callable[P, R]) -> Callable[P, R | Skipped | B]:
            _check_function(function, is_asyncio=False)
            item_of = key or _first_argument(function)

            @functools.wraps(function)
            def wrapper(*args: P.args, **kwargs: P.kwargs) -> R | Skipped | B:
                item = item_of(*args, **kwargs)
                with self.claim(item, lease, renew=renew) as claim:
                    if claim:
                        return function(*args, **kwargs)
                    if on_busy is None or claim.state != "busy":
                        return _skipped(item, claim)
                return on_busy(item, claim.remaining)

            return wrapper

        return decorate


@documented_as(Claimer)
class AsyncClaimer(AsyncDriven, Generic[I]):
    """The methods that make claims, and those for many claims at once."""

    def claim(
        self, item: I, lease: float | timedelta = 30.0, *, renew: bool = False, owner: str | None = None
    ) -> Claiming:
        """Claim an item to work on it: await the claim, or enter it with `async with`."""
        return Claiming(self._claim(item, lease, renew=renew, owner=owner))

    @observed
    async def _claim(
        self, item: I, lease: float | timedelta, *, renew: bool, owner: str | None
    ) -> AsyncClaim:
        arguments.flag("renew", renew)
        made = partial(AsyncClaim, self, renew=renew)
        return await self._run_claim(self._operations.claim(item, lease, made, owner))

    @observed
    async def claim_many(
        self, items: Iterable[I], lease: float | timedelta = 30.0, *, owner: str | None = None
    ) -> list[AsyncClaim]:
        """Claim items; return a `Claim` of each, in order."""
        return await self._run(self._operations.claim_many(items, lease, partial(AsyncClaim, self), owner))

    @observed
    async def commit_many(self, claims: Iterable[AsyncClaim]) -> list[ClaimStatus]:
        """Commit claims; return the state of each afterwards, in order."""
        return await self._each(self._operations.commit_many, claims)

    @observed
    async def release_many(self, claims: Iterable[AsyncClaim]) -> list[ClaimStatus]:
        """Release claims; return the state of each afterwards."""
        return await self._each(self._operations.release_many, claims)

    @observed
    async def extend_many(self, claims: Iterable[AsyncClaim], lease: float | timedelta) -> list[ClaimStatus]:
        """Hold items for `lease` seconds (or a timedelta) from now; return the state of each claim."""
        return await self._each(self._operations.extend_many, claims, lease)

    async def _each(
        self,
        call: Callable[..., Op[list[ClaimStatus]]],
        claims: Iterable[AsyncClaim],
        *rest: float | timedelta,
    ) -> list[ClaimStatus]:
        return await self._run(call(*states_of(self, claims, AsyncClaim), *rest))

    @overload
    def once(
        self,
        *bare: Never,
        key: Callable[..., I] | None = None,
        lease: float | timedelta = 30.0,
        renew: bool = True,
        on_busy: None = None,
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R | Skipped]]]: ...

    @overload
    def once(
        self,
        *bare: Never,
        key: Callable[..., I] | None = None,
        lease: float | timedelta = 30.0,
        renew: bool = True,
        on_busy: Callable[[Any, float], Awaitable[B]],
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R | Skipped | B]]]: ...

    @overload
    def once(
        self,
        *bare: Never,
        key: Callable[..., I] | None = None,
        lease: float | timedelta = 30.0,
        renew: bool = True,
        on_busy: Callable[[Any, float], B],
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R | Skipped | B]]]: ...

    def once(
        self,
        *bare: Never,
        key: Callable[..., I] | None = None,
        lease: float | timedelta = 30.0,
        renew: bool = True,
        on_busy: Callable[[Any, float], Any] | None = None,
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R | Any]]]:
        """Return a decorator: the coroutine function's body runs once for an item."""
        _check_brackets(bare)
        _check_options(lease, renew, on_busy)

        def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R | Any]]:
            _check_function(function, is_asyncio=True)
            item_of = key or _first_argument(function)

            @functools.wraps(function)
            async def wrapper(*args: P.args, **kwargs: P.kwargs) -> R | Any:
                item = item_of(*args, **kwargs)
                async with self.claim(item, lease, renew=renew) as claim:
                    if claim:
                        return await function(*args, **kwargs)
                    if on_busy is None or claim.state != "busy":
                        return _skipped(item, claim)
                decided = on_busy(item, claim.remaining)
                return await decided if inspect.isawaitable(decided) else decided

            return wrapper

        return decorate


def _first_argument(function: Callable[..., object]) -> Callable[..., Any]:
    """Return a function of the arguments of a call that returns the first one, however it is given."""

    def first(*args: Any, **kwargs: Any) -> Any:
        if args:
            return args[0]
        bound = inspect.signature(function).bind(**kwargs)
        bound.apply_defaults()
        for argument in bound.arguments.values():
            return argument
        raise TypeError(f"once() without key= takes the first argument as the item; {function} has none")

    return first


def _check_options(lease: float | timedelta, renew: bool, on_busy: object) -> None:  # noqa: FBT001 - as given
    """Raise `TypeError` or `ValueError` for invalid options of `once`."""
    arguments.flag("renew", renew)
    arguments.milliseconds("lease", lease)
    if on_busy is not None and not callable(on_busy):
        raise TypeError(f"on_busy must be a function of the item and the seconds left, not {shown(on_busy)}")


def _skipped(item: object, claim: Claim | AsyncClaim) -> Skipped:
    return Skipped(item, claim.state, claim.remaining)


def _check_brackets(bare: tuple[object, ...]) -> None:
    """Raise `TypeError` for `@seen.once` without parentheses."""
    if bare:
        raise TypeError(
            f"once() must be called, with keywords for its options: @seen.once(), not {shown(bare[0])}"
        )


def _check_function(function: object, *, is_asyncio: bool) -> None:
    """Raise `TypeError` for an object that is no function, or a function for the other driver."""
    if not callable(function):
        raise TypeError(f"once() decorates functions, as in @seen.once(): {shown(function)} is no function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"once() is not for generators like {shown(function)}: the body runs after the call")
    if inspect.iscoroutinefunction(function) != is_asyncio:
        kinds = ("functions", "bloomredis"), ("coroutine functions", "bloomredis.asyncio")
        (what, half), (_, other) = kinds if not is_asyncio else kinds[::-1]
        raise TypeError(f"once() of {half} is for {what}; use a filter of {other} for {shown(function)}")
