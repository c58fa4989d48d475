"""The verbs of claims, over synchronous and over asyncio clients."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

from bloomredis import arguments
from bloomredis.arguments import shown
from bloomredis.drivers.binding import documented_as
from bloomredis.drivers.claims import AsyncClaim, Claim, Claiming, held_by
from bloomredis.drivers.driven import AsyncDriven, Driven
from bloomredis.drivers.observing import observed
from bloomredis.operations.claims.state import State
from bloomredis.operations.options import I
from bloomredis.protocol.steps import Op

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Skipped:
    """The answer of a function with `once` that was not run.

    `state` is `"done"` if somebody has run it for the item, or `"busy"` if another worker is at it; then
    `remaining` are the seconds until that worker's lease is over, unless it is extended.
    """

    item: object
    state: State
    remaining: float


class Claimer(Driven, Generic[I]):
    """The verbs that make claims, and those for many of them."""

    @observed
    def claim(
        self, item: I, lease: float | timedelta = 30.0, *, renew: bool = False, owner: str | None = None
    ) -> Claim:
        """Hold an item while working on it, unless it is done or another worker holds it.

        Test it first, as a claim that is not held does nothing::

            with seen.claim(url, renew=True) as claim:
                if claim:
                    fetch(url)

        Of concurrent claims on an item one is `"claimed"`; the item is in the filter from its commit on.
        A worker that crashes loses the item when the lease runs out, and then another may claim it.
        One round trip, and one more for the commit; where the client's pool has no connection left, each
        waits for one up to 20 seconds.

        :param lease: seconds (or a timedelta) for which it is held; `Claim.extend` makes it longer.
        :param renew: hold it until its commit or release begins, or this object is gone: at each third of the
            lease it is extended by the lease, in a thread or task of its own.  If it is lost all the same,
            `Claim.lost` is true, and the commit raises `ClaimLostError`.
        :param owner: a name for the holder, for work that is run again under the same name, as the rank of a
            job or a partition of a batch.  The next run gets the items that its predecessor holds, at once,
            and commits of the predecessor raise `ClaimLostError` from then on.  Two workers that live at the
            same time must not have one name, since both would work on the item.  So the id of a message is
            no owner where a message is delivered again while the first delivery is still worked on, as
            after a visibility timeout.
        :raises OutcomeUnknownError: no answer came; a second call answers as this one would have.
        """
        arguments.flag("renew", renew)
        made = partial(Claim, self, renew=renew)
        return self._run_claim(self._operations.claim(item, lease, made, owner))

    @observed
    def claim_many(
        self, items: Iterable[I], lease: float | timedelta = 30.0, *, owner: str | None = None
    ) -> list[Claim]:
        """Claim items; return a `Claim` of each, in order.  Equal items get the same one.

        :param owner: a name for the holder: see `claim`.
        :raises BatchInterruptedError: an error came in between; it has the claims so far.  An item of its
            `rest` that equals one of those is busy until that one's claim ends.
        """
        return self._run(self._operations.claim_many(items, lease, partial(Claim, self), owner))

    @observed
    def commit_many(self, claims: Iterable[Claim]) -> list[State]:
        """Commit claims; return the state of each afterwards, in order.

        One round trip for 1,000, and one more for the first batch of an object.  Those that have no answer
        are made again until their leases have ended.

        The state is `"done"`; or `"lost"` if the claim was not held any more, and nothing was changed.  One
        that is not held, as of a busy item, is left alone and keeps its state.  Each commit is atomic by
        itself, and answered as it was first executed if it is sent again.

        :raises BatchInterruptedError: an error came in between; call it again with `error.rest`.
        """
        return self._each(self._operations.commit_many, claims)

    @observed
    def release_many(self, claims: Iterable[Claim]) -> list[State]:
        """Give items back; return the state of each claim afterwards, as `commit_many` does."""
        return self._each(self._operations.release_many, claims)

    @observed
    def extend_many(self, claims: Iterable[Claim], lease: float | timedelta) -> list[State]:
        """Hold items for `lease` seconds (or a timedelta) from now; return the state of each claim.

        It is `"claimed"`, or `"lost"`; see `commit_many`.
        """
        return self._each(self._operations.extend_many, claims, lease)

    def _each(
        self, call: Callable[..., Op[list[State]]], claims: Iterable[Claim], *rest: float | timedelta
    ) -> list[State]:
        return self._run(call(*held_by(self, claims, Claim), *rest))

    def once(
        self,
        *,
        key: Callable[..., I] | None = None,
        lease: float | timedelta = 30.0,
        renew: bool = True,
    ) -> Callable[[Callable[P, R]], Callable[P, R | Skipped]]:
        """Return a decorator of functions: the body is run once for an item, other calls return `Skipped`.

        ::

            @seen.once(key=lambda order: order.id)
            def ship(order): ...

        The item is claimed before the body, committed after it, and given back if it raises.

        :param key: returns the item, given the arguments of the call; None for the first argument.
        :param lease: of the claim; if it is not renewed, the body must be faster.
        :param renew: extend the lease as long as the body runs.
        :raises ClaimLostError: from a call whose body took longer than the lease.
        """
        arguments.flag("renew", renew)
        arguments.milliseconds("lease", lease)

        def decorate(function: Callable[P, R]) -> Callable[P, R | Skipped]:
            _check_function(function, is_asyncio=False)

            @functools.wraps(function)
            def wrapper(*args: P.args, **kwargs: P.kwargs) -> R | Skipped:
                item = _item_of(key, args, kwargs)
                with self.claim(item, lease, renew=renew) as claim:
                    return function(*args, **kwargs) if claim else _skipped(item, claim)

            return wrapper

        return decorate


@documented_as(Claimer)
class AsyncClaimer(AsyncDriven, Generic[I]):
    """The verbs that make claims, and those for many of them."""

    def claim(
        self, item: I, lease: float | timedelta = 30.0, *, renew: bool = False, owner: str | None = None
    ) -> Claiming:
        """Hold an item while working on it: await the claim, or enter it with `async with`."""
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
    async def commit_many(self, claims: Iterable[AsyncClaim]) -> list[State]:
        """Commit claims; return the state of each afterwards, in order."""
        return await self._each(self._operations.commit_many, claims)

    @observed
    async def release_many(self, claims: Iterable[AsyncClaim]) -> list[State]:
        """Give items back; return the state of each claim afterwards."""
        return await self._each(self._operations.release_many, claims)

    @observed
    async def extend_many(self, claims: Iterable[AsyncClaim], lease: float | timedelta) -> list[State]:
        """Hold items for `lease` seconds (or a timedelta) from now; return the state of each claim."""
        return await self._each(self._operations.extend_many, claims, lease)

    async def _each(
        self, call: Callable[..., Op[list[State]]], claims: Iterable[AsyncClaim], *rest: float | timedelta
    ) -> list[State]:
        return await self._run(call(*held_by(self, claims, AsyncClaim), *rest))

    def once(
        self,
        *,
        key: Callable[..., I] | None = None,
        lease: float | timedelta = 30.0,
        renew: bool = True,
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R | Skipped]]]:
        """Return a decorator of coroutine functions, whose body is run once for an item."""
        arguments.flag("renew", renew)
        arguments.milliseconds("lease", lease)

        def decorate(
            function: Callable[P, Awaitable[R]],
        ) -> Callable[P, Coroutine[Any, Any, R | Skipped]]:
            _check_function(function, is_asyncio=True)

            @functools.wraps(function)
            async def wrapper(*args: P.args, **kwargs: P.kwargs) -> R | Skipped:
                item = _item_of(key, args, kwargs)
                async with self.claim(item, lease, renew=renew) as claim:
                    return await function(*args, **kwargs) if claim else _skipped(item, claim)

            return wrapper

        return decorate


def _item_of(key: Callable[..., Any] | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the item that a call of a decorated function is about."""
    if key is not None:
        return key(*args, **kwargs)
    if not args:
        raise TypeError("once() without key= takes the first positional argument for the item: there is none")
    return args[0]


def _skipped(item: object, claim: Claim | AsyncClaim) -> Skipped:
    return Skipped(item, claim.state, claim.remaining)


def _check_function(function: object, *, is_asyncio: bool) -> None:
    """Raise `TypeError` for what is no function, or one of the other half."""
    if not callable(function):
        raise TypeError(f"once() is called first, as in @seen.once(): {shown(function)} is no function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"once() is not for generators, as {shown(function)}: its body runs after the call")
    if inspect.iscoroutinefunction(function) != is_asyncio:
        kinds = ("functions", "bloomredis"), ("coroutine functions", "bloomredis.asyncio")
        (what, half), (_, other) = kinds if not is_asyncio else kinds[::-1]
        raise TypeError(f"once() of {half} is for {what}; use a filter of {other} for {shown(function)}")
