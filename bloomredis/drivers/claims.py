"""Claims as workers see them: one class over synchronous clients, one over asyncio clients."""

from __future__ import annotations

import logging
import os
from collections.abc import Coroutine, Generator, Iterable
from datetime import timedelta
from typing import Any, Literal, NoReturn, Self, TypeVar

from bloomredis.arguments import listed, shown
from bloomredis.drivers.binding import documented_as
from bloomredis.drivers.driven import AsyncDriven, Driven
from bloomredis.drivers.observing import observed
from bloomredis.drivers.renewing import renew_in_task, renew_in_thread
from bloomredis.errors import ClaimUncheckedError
from bloomredis.operations.claims.state import Held, State

_log = logging.getLogger("bloomredis")

K = TypeVar("K", "Claim", "AsyncClaim")


class _Claim:
    """An item that this worker may hold: true if it does.

    `state` is `"claimed"` (this worker holds the item until the lease runs out), `"done"` (it is in the
    filter) or `"busy"` (another worker holds it); after a call `"released"` or `"lost"`.  As a context
    manager it commits on a clean exit and releases the item on an exception; where the item is not
    held it does nothing, so test it first: ``with f.claim(x) as claim: if claim: ...``.  A block that ends
    without having asked for its truth or `state` raises `ClaimUncheckedError` then.

    It pickles with its filter: another process may commit it.  A filter that was given a client pickles
    without; hand on `token` then, for `from_token`.
    """

    def __init__(self, seen: Any, held: Held, *, renew: bool = False) -> None:
        self._filter = seen
        self._operations = seen._operations  # noqa: SLF001 - a filter and its claims are one thing
        self._observe = seen._observe  # noqa: SLF001
        self._run = seen._run_claim  # noqa: SLF001
        self._held = held
        self._process = os.getpid()  # that made or entered it
        self._to_check = held.state != "claimed"
        if renew and held.state == "claimed":
            self._renew()

    def _renew(self) -> None:
        """Renew the lease from now on, until the claim ends."""
        raise NotImplementedError

    @property
    def item(self) -> Any:
        """The item as it was given; of equal items the first."""
        return self._held.item

    @property
    def state(self) -> State:
        """`"claimed"` if this worker holds the item, else the reason why not."""
        self._to_check = False
        return self._held.state

    @property
    def remaining(self) -> float:
        """Seconds for which the item is still held, unless its holder extends the lease or ends it before.

        For a busy item they count from the server's answer: ask again after so many.  For a claimed one they
        are those that are left of the lease, for sure.  Otherwise 0.
        """
        return self._held.remaining

    @property
    def lost(self) -> bool:
        """True if another worker may hold the item by now, so that the work on it should stop.

        A call has found that the claim is gone, or no reply says that it still stands.  Nothing is sent.
        """
        return self._held.is_lost

    @property
    def token(self) -> str:
        """Text that makes the same claim in another process: ``Claim.from_token(seen, token)``.

        It is the claim as it is now, with a commit that has no answer yet.  Of all who hold it one should go
        on with it; a renewal goes on only here, while this object lives.
        """
        return str(self._operations.token(self._held))

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickled, (self._filter, self.token)

    def __bool__(self) -> bool:
        return self.state == "claimed"

    def __repr__(self) -> str:
        return f"<Claim on {shown(self.item)}: {self._held.state}>"

    def _end_by(self, kind: type[BaseException] | None) -> Literal["commit", "release"] | None:
        """Return how a block that is left ends the claim: a forked child leaves its parent's as it is."""
        if self._process != os.getpid():
            return None
        state = self._held.state
        if kind is None and (state == "claimed" or self._held.is_unreported):
            return "commit"
        if kind is None and self._to_check:
            raise ClaimUncheckedError(
                f"the block ran, though {shown(self.item)} is {state}: this worker did not hold it. "
                "Test the claim in the block: with seen.claim(item) as claim: if claim: ..."
            )
        return "release" if state == "claimed" else None

    def _not_released(self, error: Exception) -> None:
        """Log that a release failed, since the caller's own exception is the one to raise."""
        _log.warning("%s was not released (%s); it is free when its lease runs out", shown(self.item), error)


class Claim(_Claim):
    __doc__ = _Claim.__doc__

    @classmethod
    def from_token(cls, seen: Driven, token: str) -> Self:
        """Return the claim of a token, on the filter that it was made on; nothing is sent.

        Its item is a str, bytes or int if it was one, else the bytes that are hashed for it.

        :raises ValueError, TypeError: for what is no token, or one of another filter.
        """
        return cls(seen, _held(seen, token, Driven))

    def _renew(self) -> None:
        renew_in_thread(self, self._held, self._filter)

    @observed
    def commit(self) -> None:
        """Put the item into the filter and drop the claim, in one step.  Nothing to do if it is done.

        Without an answer, or refused by a server that restarts or fails over, it is made again until the
        lease has ended.

        :raises ClaimLostError: the claim is not held any more; nothing was changed.
        :raises OutcomeUnknownError: no answer came; a second call answers as this one would have.
        """
        self._run(self._operations.commit(self._held))

    @observed
    def release(self) -> None:
        """Give the item back at once.  Nothing happens if it is not held any more."""
        self._run(self._operations.release(self._held))

    @observed
    def extend(self, lease: float | timedelta) -> None:
        """Hold the item for `lease` seconds (or a timedelta) from now.

        :raises ClaimLostError: the claim is not held any more.
        """
        self._run(self._operations.extend(self._held, lease))

    def __enter__(self) -> Self:
        self._process = os.getpid()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        end = self._end_by(kind)
        if end == "commit":
            self.commit()
        elif end == "release":
            try:
                self.release()
            except Exception as failure:
                self._not_released(failure)


@documented_as(Claim)
class AsyncClaim(_Claim):
    """An item that this worker may hold: true if it does."""

    __qualname__ = "Claim"

    @classmethod
    def from_token(cls, seen: AsyncDriven, token: str) -> Self:
        """Return the claim of a token, on the filter that it was made on; nothing is sent."""
        return cls(seen, _held(seen, token, AsyncDriven))

    def _renew(self) -> None:
        renew_in_task(self, self._held, self._filter)

    @observed
    async def commit(self) -> None:
        """Put the item into the filter and drop the claim, in one step."""
        await self._run(self._operations.commit(self._held))

    @observed
    async def release(self) -> None:
        """Give the item back at once."""
        await self._run(self._operations.release(self._held))

    @observed
    async def extend(self, lease: float | timedelta) -> None:
        """Hold the item for `lease` seconds (or a timedelta) from now."""
        await self._run(self._operations.extend(self._held, lease))

    async def __aenter__(self) -> Self:
        self._process = os.getpid()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        end = self._end_by(kind)
        if end == "commit":
            await self.commit()
        elif end == "release":
            try:
                await self.release()
            except Exception as failure:
                self._not_released(failure)


def held_by(seen: Driven | AsyncDriven, claims: Iterable[K], kind: type[K]) -> tuple[list[K], list[Held]]:
    """Return claims of that kind as a list, and what this process knows of each.

    :raises TypeError, ValueError: for one of another half, or on another filter.
    """
    every: list[K] = listed(claims)
    for claim in every:
        if type(claim) is not kind:
            raise TypeError(f"claims must be those that {shown(seen)} has made, not {shown(claim)}")
        if claim._filter.name != seen.name:  # noqa: SLF001 - as above
            raise ValueError(f"{shown(claim)} is on {claim._filter.name!r}, not on {seen.name!r}")  # noqa: SLF001
    return every, [claim._held for claim in every]  # noqa: SLF001


def _held(seen: object, token: str, kind: type[Driven | AsyncDriven]) -> Held:
    """Return the claim of a token, on a filter of that kind."""
    if not isinstance(seen, kind):
        half = "bloomredis" if kind is Driven else "bloomredis.asyncio"
        raise TypeError(f"the claims of {half} are on filters of {half}, not on {shown(seen)}")
    return seen._operations.from_token(token)  # noqa: SLF001 - as above


def _unpickled(seen: Driven | AsyncDriven, token: str) -> Claim | AsyncClaim:
    """Return the claim of a token, of the same half as its filter."""
    return Claim.from_token(seen, token) if isinstance(seen, Driven) else AsyncClaim.from_token(seen, token)


class Claiming:
    """A claim in progress: await it, or enter it with `async with`."""

    def __init__(self, claiming: Coroutine[Any, Any, AsyncClaim]) -> None:
        self._claiming = claiming

    def __bool__(self) -> NoReturn:
        self._claiming.close()  # or it would be reported a second time, as never awaited
        raise TypeError(
            "a claim in progress is neither true nor false: await it, or enter it with async with"
        )

    def __repr__(self) -> str:
        return "<claim in progress: await it, or enter it with async with>"

    def __await__(self) -> Generator[Any, Any, AsyncClaim]:
        return self._claiming.__await__()

    async def __aenter__(self) -> AsyncClaim:
        self._claim = await self._claiming
        return await self._claim.__aenter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        await self._claim.__aexit__(kind, error, traceback)
