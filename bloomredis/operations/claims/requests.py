"""Requests about single items: to claim one, or to commit, release or extend a claim.

One script call can take several requests of one kind.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Literal

from bloomredis.operations.claims.state import ClaimOptions, ClaimState

Verb = Literal["claim", "commit", "release", "extend", "renew"]

ANY_OWNER: Final = ClaimOptions(0)
"""The options of requests that make no claim."""


class ClaimRequest:
    """A request about an item, and its outcome.

    :ivar state: the claim; for the verb `claim` the one to make.
    :ivar options: of a claim to make.
    :ivar lease: of an extension, in ms.
    :ivar outcome: `state` once the request is answered, or the error of the last attempt; None before it.
    :ivar fills: the claim is one of a batch, which takes the room of a filter that stops at its capacity.
    """

    __slots__ = ("encoded", "fills", "lease", "options", "outcome", "state", "verb")

    def __init__(
        self,
        verb: Verb,
        state: ClaimState,
        options: ClaimOptions = ANY_OWNER,
        *,
        lease: int = 0,
    ) -> None:
        self.verb = verb
        self.state = state
        self.encoded = state.encoded
        self.options = options
        self.lease = lease
        self.outcome: ClaimState | Exception | None = None
        self.fills = False

    @property
    def group(self) -> Hashable:
        """The value that the requests of one script call share."""
        return self.verb, self.options, self.lease

    def answer(self) -> ClaimState:
        """Return the claim, or raise the error of the last attempt."""
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.state

    @property
    def error(self) -> Exception | None:
        """The error of the last attempt; None without an error."""
        return self.outcome if isinstance(self.outcome, Exception) else None
