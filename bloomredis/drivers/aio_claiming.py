"""The methods of a filter that make claims."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import timedelta
from functools import partial
from typing import Any, Generic, Literal, ParamSpec, TypeVar, overload

from bloomredis import arguments
from bloomredis.arguments import Renew
from bloomredis.drivers.aio_claims import Claim
from bloomredis.drivers.awaiting import Claiming
from bloomredis.drivers.driven import AsyncDriven
from bloomredis.drivers.held import states_of
from bloomredis.drivers.observing import observed
from bloomredis.drivers.once import (
    RunsOnce,
    Skipped,
    Work,
    check_function,
    check_name,
    check_options,
    complete,
    skipped,
)
from bloomredis.operations.claims.state import ClaimOptions, ClaimStatus
from bloomredis.operations.codec import WorkItem
from bloomredis.operations.options import I

P = ParamSpec("P")
R = TypeVar("R")
B = TypeVar("B")


class Claimer(AsyncDriven, Generic[I]):
    """The methods that make claims, and those for many claims at once."""

    # asyncio: returns an object that is awaited, or entered by `async with`
    # sync: @observed
    # both.
    def claim(
        self,
        item: I | WorkItem,
        *,
        lease: float | timedelta = 30.0,
        renew: Renew = True,
        owner: str | None = None,
    ) -> Claiming:
        """Claim an item to work on it; the claim is false if the item is done or another worker holds it.

        The block runs in either case, so test the claim first::

            async with seen.claim(url) as claim:
                if claim:
                    await fetch(url)

        Of concurrent claims on an item exactly one is `"claimed"`, unless they have one `owner`.  From the
        commit on the item is in the filter.  If a worker crashes, its lease runs out, and then another worker
        may claim the item.  As long as it lives and holds the `Claim`, the lease is renewed in the
        background.  The claim costs one round trip, and its commit another one.

        :param lease: seconds (or a timedelta) after which the item of a dead worker is free.
        :param renew: renew the lease each time a third of it has passed, until the commit or the release
            begins or the `Claim` object is gone; True for 24 hours at most, a number of seconds (or a
            timedelta) for at most that long.  If the item is lost all the same, `Claim.lost` is True and the
            commit raises `ClaimLostError`.  With False the claim ends with its lease, unless `Claim.extend`
            extends it.
        :param owner: a name for the holder, for work that is run again under the same name, such as the rank
            of a job or a partition of a batch.  The next run immediately gets the items that its predecessor
            holds.  From then on commits of the predecessor raise `ClaimLostError`.  Two workers that live at
            the same time must not share a name, since both would work on the item.  Don't use the id of a
            message if the message may be delivered again while a worker still handles the first delivery, as
            after a visibility timeout.
        :raises OutcomeUnknownError: no answer came; a retry on the same object returns the answer of this
            call.
        """
        seconds = arguments.renewal_seconds(renew)
        options = ClaimOptions.of(lease, owner)
        # asyncio:
        return Claiming(self._claim(item, options, seconds))
        # sync: return Claim(self, self._answer(self._operations.claim(item, options)), seconds)
        # both.

    # asyncio:
    @observed
    async def _claim(self, item: I | WorkItem, options: ClaimOptions, seconds: float) -> Claim:
        return Claim(self, await self._answer(self._operations.claim(item, options)), seconds)

    # both.

    @observed
    async def claim_many(
        self,
        items: Iterable[I],
        *,
        lease: float | timedelta = 30.0,
        renew: Renew = False,
        owner: str | None = None,
    ) -> list[Claim]:
        """Claim items; return a `Claim` of each, in order.  Equal items share one claim.

        :param renew: renew the leases in the background; without it, call `extend_many` before they end.
        :param owner: a name for the holder: see `claim`.
        :raises BatchInterruptedError: an error stopped the batch; `results` has the claims so far.  If an
            item of `rest` equals one of those, it is busy until the claim on that one ends.
        """
        make = partial(Claim, self, renew=arguments.renewal_seconds(renew))
        return await self._run_claims(self._operations.claim_many(items, lease, make, owner))

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
        return await self._each("commit", claims)

    @observed
    async def release_many(self, claims: Iterable[Claim]) -> list[ClaimStatus]:
        """Release claims; return the state of each afterwards, as `commit_many` does."""
        return await self._each("release", claims)

    @observed
    async def extend_many(self, claims: Iterable[Claim], lease: float | timedelta) -> list[ClaimStatus]:
        """Hold items for `lease` seconds (or a timedelta) from now; return the state of each claim.

        A lease that would have ended later stays as it is.
        The state is `"claimed"` or `"lost"`: see `commit_many`.
        """
        return await self._each("extend", claims, arguments.lease(lease))

    async def _each(
        self,
        verb: Literal["commit", "release", "extend"],
        claims: Iterable[Claim],
        lease: int = 0,
    ) -> list[ClaimStatus]:
        changed = self._operations.change_many(verb, *states_of(self, claims, Claim), lease)
        return await self._run_claims(changed)

    @overload
    def once(
        self,
        name: str | None,
        *,
        key: Callable[..., I] | None = None,
        lease: float | timedelta = 30.0,
        renew: Renew = True,
        on_busy: None = None,
    ) -> Callable[[Callable[P, Awaitable[R]]], RunsOnce[P, Coroutine[Any, Any, R | Skipped]]]: ...

    # asyncio:
    @overload
    def once(
        self,
        name: str | None,
        *,
        key: Callable[..., I] | None = None,
        lease: float | timedelta = 30.0,
        renew: Renew = True,
        on_busy: Callable[[Any, float], Awaitable[B]],
    ) -> Callable[[Callable[P, Awaitable[R]]], RunsOnce[P, Coroutine[Any, Any, R | Skipped | B]]]: ...

    # both.
    @overload
    def once(
        self,
        name: str | None,
        *,
        key: Callable[..., I] | None = None,
        lease: float | timedelta = 30.0,
        renew: Renew = True,
        on_busy: Callable[[Any, float], B],
    ) -> Callable[[Callable[P, Awaitable[R]]], RunsOnce[P, Coroutine[Any, Any, R | Skipped | B]]]: ...

    def once(  # long: the signature declares every option
        self,
        name: str | None,
        *,
        key: Callable[..., I] | None = None,
        lease: float | timedelta = 30.0,
        renew: Renew = True,
        on_busy: Callable[[Any, float], Any] | None = None,
    ) -> Callable[[Callable[P, Awaitable[R]]], RunsOnce[P, Coroutine[Any, Any, R | Any]]]:
        """Return a decorator: the function's body runs once for an item; other calls return `Skipped`.

        ::

            @seen.once("ship", key=lambda order: order.id)
            async def ship(order): ...

        The item is claimed before the body runs, committed after it, and released if the body raises.  It is
        made of the name and of the value that `key` returns, so two names share no items.
        ``ship.item(order)`` is the item of a call, which `add`, `contains` and `claim` take.

        :param name: names the work.  Keep it when the function is renamed or moved.  None marks the bare
            value, as `add(value)` does; a layout of `compat` takes no other name.
        :param key: returns a value, given the arguments of the call; None takes the first argument after
            `self` or `cls`, given by position, by name or by default.
        :param lease: see `claim`; without `renew` the body must end within it.
        :param renew: renew the lease while the body runs: see `claim`.
        :param on_busy: handles a call whose item another worker holds.  It is called with the value and the
            seconds left of the lease; the call returns its result, or raises its error.  None returns
            `Skipped`.  A queue must deliver the message again, since the other worker may be dead.
        :raises ClaimLostError: the body took longer than the lease.
        :raises TypeError: the function returned an awaitable or a generator, whose body has yet to run.
        :raises ValueError: another function of this filter object has the name.
        """
        check_name(name, self._operations.codec)
        # asyncio:
        options, seconds = check_options(lease, renew, on_busy)
        # sync: check_options(lease, renew, on_busy)
        # both.

        def decorate(function: Callable[P, Awaitable[R]]) -> RunsOnce[P, Coroutine[Any, Any, R | Any]]:
            check_function(function, is_asyncio=self._is_asyncio)
            work = Work(vars(self).setdefault("_works", {}), name, function, key)

            @functools.wraps(function)
            async def wrapper(*args: P.args, **kwargs: P.kwargs) -> R | Any:
                value = work.value(*args, **kwargs)
                # asyncio: needs neither a `Claiming` nor another look at the options
                async with await self._claim(work.of(value), options, seconds) as claim:
                    # sync: with self.claim(work.of(value), lease=lease, renew=renew) as claim:
                    # both.
                    if claim:
                        # asyncio:
                        awaited = function(*args, **kwargs)
                        return complete(function, await awaited if inspect.isawaitable(awaited) else awaited)
                        # sync: return complete(function, function(*args, **kwargs))
                        # both.
                    if on_busy is None or claim.state != "busy":
                        return skipped(value, claim)
                # asyncio:
                decided = on_busy(value, claim.remaining)
                return await decided if inspect.isawaitable(decided) else decided
                # sync: return on_busy(value, claim.remaining)
                # both.

            wrapper.item = work.item  # type: ignore[attr-defined]  # a function takes any attribute
            return wrapper  # type: ignore[return-value]  # it has `item` now

        return decorate
