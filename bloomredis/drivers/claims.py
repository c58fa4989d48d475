# Made from aio_claims.py by `make generate`: change that file instead.
"""The claim that a worker holds on an item."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from bloomredis.drivers.driven import Driven
from bloomredis.drivers.held import HeldClaim, state_of_token
from bloomredis.drivers.observing import observed
from bloomredis.drivers.renewing import renew_in_thread
from bloomredis.protocol.forks import process


class Claim(HeldClaim):
    """A claim on an item: true if this worker holds the item.

    `state` is `"claimed"` (this worker holds the item until the lease runs out), `"done"` (the item is in the
    filter) or `"busy"` (another worker holds it, or `is_own`); after a call `"released"` or `"lost"`.

    As a context manager a claim commits at a clean end of the block, and releases the item after an
    exception.  If the item is not held it does neither, so test the claim first:
    ``with f.claim(x) as claim: if claim: ...``.  A block that ends cleanly without a look at the truth
    or `state` of a claim that is not held raises `ClaimUncheckedError`.

    A claim pickles with its filter, and another process may commit it.  A filter that was given a client
    pickles without it; then hand on the `token`, for `from_token`.
    """

    __slots__ = ()

    @classmethod
    def from_token(cls, seen: Driven, token: str) -> Self:
        """Return the claim of a token, on the filter that it was made on; nothing is sent.

        The claim's item is a str, bytes or int if it was one; otherwise it is the bytes that are hashed for
        the item.

        :raises ValueError, TypeError: this is no token of a claim, or that of a claim on another filter.
        """
        return cls(seen, state_of_token(seen, token, Driven))

    _renew = staticmethod(renew_in_thread)

    @observed
    def commit(self) -> None:
        """Add the item to the filter and end the claim, in one step.  If the item is done, nothing happens.

        A commit is retried until the lease has ended if it gets no answer, or if the server refuses it during
        a restart or a failover.

        :raises ClaimLostError: the claim is not held any more; nothing was changed.
        :raises OutcomeUnknownError: no answer came; a retry on the same object returns the answer of this
            call.
        """
        self._answer(self._operations.end("commit", self._state))

    @observed
    def release(self) -> None:
        """Release the item at once.  If it is not held any more, nothing happens."""
        self._answer(self._operations.end("release", self._state))

    @observed
    def extend(self, lease: float | timedelta) -> None:
        """Hold the item for `lease` seconds (or a timedelta) from now; a lease that would end later stays.

        :raises ClaimLostError: the claim is not held any more.
        """
        self._answer(self._operations.extend(self._state, lease))

    def __enter__(self) -> Self:
        self._process = process()
        self._state.use()
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
