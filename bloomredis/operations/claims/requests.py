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
    :ivar error: the error of the last attempt, None without an error.
    :ivar fills: the claim is one of a batch, which takes the room of a filter that stops at its capacity.
    :ivar is_done: the request was answered, by the claim's state or by an error that a retry would get again.
    """

    __slots__ = ("encoded", "error", "fills", "is_done", "lease", "options", "state", "verb")

    def __init__(
        self,
        verb: Verb,
        state: ClaimState,
        options: ClaimOptions = ANY_OWNER,
        *,
        lease: int = 0,
        is_done: bool = False,
    ) -> None:
        self.verb = verb
        self.state = state
        self.encoded = state.encoded
        self.options = options
        self.lease = lease
        self.error: Exception | None = None
        self.is_done, self.fills = is_done, False

    @property
    def group(self) -> Hashable:
        """The value that the requests of one script call share."""
        return self.verb, self.options, self.lease

    def fail(self, error: Exception) -> None:
        """Record an answer that is an error."""
        self.error, self.is_done = error, True
