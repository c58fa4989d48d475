"""The parts of a claim that send nothing: its state, its token, and the call that ends its block."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Literal, Self, TypeVar

from bloomredis.arguments import listed, shown
from bloomredis.drivers.binding import Bound
from bloomredis.drivers.renewing import Renewal
from bloomredis.errors import ClaimUncheckedError
from bloomredis.operations.claims.state import ClaimState, ClaimStatus
from bloomredis.protocol import clock
from bloomredis.protocol.forks import process

_log = logging.getLogger("bloomredis")

K = TypeVar("K", bound="HeldClaim")


class HeldClaim:
    """The base of the claims of both kinds of filters: everything that sends nothing."""

    __slots__ = (
        "__weakref__",
        "_answer",
        "_filter",
        "_operations",
        "_process",
        "_renewal",
        "_state",
        "_to_check",
    )

    def __init__(self, seen: Any, state: ClaimState, renew: float = 0.0) -> None:
        self._filter = seen
        self._operations = seen._operations
        self._answer = seen._answer
        self._state = state
        self._process = process()  # the process that made or entered it
        self._to_check = state.status != "claimed"
        if renew and state.status == "claimed":
            self._renewal = Renewal(state, seen, renew, clock.now())
            self._renew(self._renewal)

    @staticmethod
    def _renew(renewal: Renewal) -> None:
        """Renew the lease from now on, until the claim ends."""
        raise NotImplementedError

    @property
    def item(self) -> Any:
        """The item as the caller gave it; of equal items the first."""
        return self._state.item

    @property
    def state(self) -> ClaimStatus:
        """`"claimed"` if this worker holds the item; otherwise why it does not."""
        self._to_check = False
        self._state.use()
        return self._state.status

    @property
    def is_own(self) -> bool:
        """True if the item is busy, and held under this claim's own `owner`: by another run of its work."""
        return self._state.is_own

    @property
    def remaining(self) -> float:
        """Seconds until the lease ends, unless its holder extends it or ends the claim earlier.

        For a busy item, claim again after that time.  For a claimed item at least that much is left.  In any
        other state 0.
        """
        self._state.use()
        return self._state.remaining

    @property
    def lost(self) -> bool:
        """True if another worker may hold the item by now, so the work on it should stop.

        A call has found the claim gone, or its lease has ended as far as this process knows.  Reading `lost`
        sends nothing.
        """
        self._state.use()
        return self._state.is_lost

    @property
    def token(self) -> str:
        """Text from which another process makes the same claim: ``Claim.from_token(seen, token)``.

        It holds the present state of the claim, including a pending commit.  Only one process should go on
        with the claim.  Renewal goes on in this process only, while this object lives.
        """
        return str(self._operations.token(self._state))

    @classmethod
    def from_token(cls, seen: Any, token: str) -> Self:
        """Return the claim of a token."""
        raise NotImplementedError

    def __reduce__(self) -> tuple[object, ...]:
        return type(self).from_token, (self._filter, self.token)

    def __bool__(self) -> bool:
        return self.state == "claimed"

    def __repr__(self) -> str:
        return f"<Claim on {shown(self.item)}: {self._state.status}>"

    def _end_by(self, kind: type[BaseException] | None) -> Literal["commit", "release"] | None:
        """Return the call to make at the end of a block, if any; a forked child makes none."""
        if self._process is not process():
            return None
        status = self._state.status
        if kind is None and (status == "claimed" or self._state.loss_unreported):
            return "commit"
        if kind is None and self._to_check:
            raise ClaimUncheckedError(
                f"the block ran, though {shown(self.item)} is {status}: this worker did not hold it",
                advice="test the claim in the block: with seen.claim(item) as claim: if claim: ...",
            )
        return "release" if status == "claimed" else None

    def _not_released(self, error: Exception) -> None:
        """Log that a release failed; the exception to raise is that of the caller's block."""
        _log.warning("%s was not released (%s); it is free when its lease runs out", shown(self.item), error)


def states_of(seen: Bound[Any], claims: Iterable[K], kind: type[K]) -> tuple[list[K], list[ClaimState]]:
    """Return claims as a list, and the state of each.

    :raises TypeError, ValueError: a claim is not of that class, or is on another filter.
    """
    every: list[K] = listed(claims)
    for claim in every:
        if type(claim) is not kind:
            raise TypeError(f"claims must be claims that {shown(seen)} has made, not {shown(claim)}")
        if claim._filter.name != seen.name:
            raise ValueError(f"{shown(claim)} is on {claim._filter.name!r}, not on {seen.name!r}")
    return every, [claim._state for claim in every]


def state_of_token(seen: object, token: str, driver: type[Bound[Any]]) -> ClaimState:
    """Return the state of a token's claim.

    :raises TypeError: the filter is one of the other driver.
    """
    if not isinstance(seen, driver):
        half = "bloomredis.asyncio" if driver._is_asyncio else "bloomredis"
        raise TypeError(f"the claims of {half} are on filters of {half}, not on {shown(seen)}")
    return seen._operations.from_token(token)
