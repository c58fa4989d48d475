"""The methods of a filter that make claims."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import timedelta
from functools import partial
from typing import Any, Generic, Never, ParamSpec, TypeVar, overload

from bloomredis import arguments
from bloomredis.drivers.aio_claims import Claim
from bloomredis.drivers.awaiting import Claiming
from bloomredis.drivers.driven import AsyncDriven
from bloomredis.drivers.held import states_of
from bloomredis.drivers.observing import observed
from bloomredis.drivers.once import (
    Skipped,
    check_brackets,
    check_function,
    check_options,
    first_argument,
    skipped,
)
from bloomredis.operations.claims.state import ClaimOptions, ClaimStatus
from bloomredis.operations.options import I
from bloomredis.protocol.steps import Op

P = ParamSpec("P")
R = TypeVar("R")
B = TypeVar("B")


class Claimer(AsyncDriven, Generic[I]):
    """The methods that make claims, and those for many claims at once."""

    # asyncio:
    def claim(
        self, item: I, lease: float | timedelta = 30.0, *, renew: bool = False, owner: str | None = None
    ) -> Claiming:
        # sync: @observed
        # sync: def claim(
        # sync:     self, item: I, lease: float | timedelta = 30.0, *,
        # sync:     renew: bool = False, owner: str | None = None,
        # sync: ) -> Claim:
        # both.
        """Claim an item to work on it; the claim is false if the item is done or another worker holds it.

        The block runs in either case, so test the claim first::

            async with seen.claim(url, renew=True) as claim:
                if claim:
                    await fetch(url)

        Of concurrent claims on an item exactly one is `"claimed"`, unless they have one `owner`.  From the
        commit on the item is in the filter.  If a worker crashes, its lease runs out, and then another worker
        may claim the item.

        The claim costs one round trip, and its commit another one.

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
        options = ClaimOptions.of(lease, owner)
        # asyncio:
        return Claiming(self._claim(item, options, renew))

    @observed
    async def _claim(self, item: I, options: ClaimOptions, renew: bool) -> Claim:  # noqa: FBT001 - it is checked
        # both.
        return Claim(self, await self._answer(self._operations.claim(item, options)), renew=renew)

    @observed
    async def claim_many(
        self, items: Iterable[I], lease: float | timedelta = 30.0, *, owner: str | None = None
    ) -> list[Claim]:
        """Claim items; return a `Claim` of each, in order.  Equal items share one claim.

        :param owner: a name for the holder: see `claim`.
        :raises BatchInterruptedError: an error stopped the batch; `results` has the claims so far.  If an
            item of `rest` equals one of those, it is busy until the claim on that one ends.
        """
        return await self._run_claims(self._operations.claim_many(items, lease, partial(Claim, self), owner))

    @observed
    async def commit_many(self, claims: Iterable[Claim]) -> list[ClaimStatus]:
        """Commit claims; return the state of each afterwards, in order.

        Every 1,000 claims cost one round trip; the first batch of an object costs one more.  Commits without
        an answer are retried until their leases have ended.

        The state is `"done"`, or `"lost"` if the claim was not held any more and nothing was changed.  A
        claim that is not held, such as one on a busy item, is skipped and keeps its state.  Each commit is
        atomic by itself; a retry returns the answer of the first execution.

        :raises BatchInterruptedError: an error stopped the batch; call this again with `error.rest`.
        """
        return await self._each(self._operations.commit_many, claims)

    @observed
    async def release_many(self, claims: Iterable[Claim]) -> list[ClaimStatus]:
        """Release claims; return the state of each afterwards, as `commit_many` does."""
        return await self._each(self._operations.release_many, claims)

    @observed
    async def extend_many(self, claims: Iterable[Claim], lease: float | timedelta) -> list[ClaimStatus]:
        """Hold items for `lease` seconds (or a timedelta) from now; return the state of each claim.

        The state is `"claimed"` or `"lost"`: see `commit_many`.
        """
        return await self._each(self._operations.extend_many, claims, lease)

    async def _each(
        self,
        call: Callable[..., Op[list[ClaimStatus]]],
        claims: Iterable[Claim],
        *rest: float | timedelta,
    ) -> list[ClaimStatus]:
        return await self._run_claims(call(*states_of(self, claims, Claim), *rest))

    @overload
    def once(
        self,
        *bare: Never,
        key: Callable[..., I] | None = None,
        lease: float | timedelta = 30.0,
        renew: bool = True,
        on_busy: None = None,
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R | Skipped]]]: ...

    # asyncio:
    @overload
    def once(
        self,
        *bare: Never,
        key: Callable[..., I] | None = None,
        lease: float | timedelta = 30.0,
        renew: bool = True,
        on_busy: Callable[[Any, float], Awaitable[B]],
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R | Skipped | B]]]: ...

    # both.
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
        """Return a decorator: the function's body runs once for an item; other calls return `Skipped`.

        ::

            @seen.once(key=lambda order: order.id)
            async def ship(order): ...

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
        check_brackets(bare)
        # asyncio:
        options = check_options(lease, renew, on_busy)
        # sync: check_options(lease, renew, on_busy)
        # both.

        def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R | Any]]:
            check_function(function, is_asyncio=self._is_asyncio)
            item_of = key or first_argument(function)

            @functools.wraps(function)
            async def wrapper(*args: P.args, **kwargs: P.kwargs) -> R | Any:
                item = item_of(*args, **kwargs)
                # asyncio: needs neither a `Claiming` nor another look at the options
                async with await self._claim(item, options, renew) as claim:
                    # sync: with self.claim(item, lease, renew=renew) as claim:
                    # both.
                    if claim:
                        return await function(*args, **kwargs)
                    if on_busy is None or claim.state != "busy":
                        return skipped(item, claim)
                # asyncio:
                decided = on_busy(item, claim.remaining)
                return await decided if inspect.isawaitable(decided) else decided
                # sync: return on_busy(item, claim.remaining)
                # both.

            return wrapper

        return decorate
