"""Events for hooks: one describes a public call and its outcome."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Literal, NamedTuple, Protocol

CallOutcome = Literal[
    "ok", "unknown", "failed", "refused", "lost", "interrupted", "full", "cancelled", "error"
]


class CallEvent(NamedTuple):
    """A public call that has ended; the event never has the items themselves.

    :ivar filter: the filter's name.
    :ivar kind: its class, such as `BloomFilter`.
    :ivar verb: the method, of the filter or of a claim: `add_many`, `commit`.  `dedupe` and the
        masks call `add_many` and `contains_many`, and appear as those.
    :ivar items: number of items of the call; for `update` the items that were read; 0 for a call about the
        whole filter.
    :ivar new: number of items that were new; for `claim` and `claim_many` the items that were claimed, for
        `contains` and `contains_many` the items that are not in the filter.  None for other verbs, and after
        an error.
    :ivar seconds: the time that the call took.
    :ivar round_trips: round trips to the server; 0 if the call was answered in this process, or shared the
        round trip of another call.
    :ivar resends: round trips that followed one without a reply.  Retries that the client library makes by
        itself are not counted.
    :ivar outcome: `ok`; `unknown` for `OutcomeUnknownError`, `failed` for `ConnectionFailedError`, `refused`
        for `ServerRefusedError`, `lost` for `FilterLostError` and `ClaimLostError`, `interrupted` for
        `BatchInterruptedError`, `full` for `FilterFullError`; `cancelled`; `error` for any other.
    :ivar busy: for `claim` and `claim_many`, the items that another worker holds.  Items that are neither new
        nor busy are done.
    :ivar lost: for `commit_many`, `release_many` and `extend_many`, the claims that were not held any more.
    :ivar cached: number of items of a call that made no round trip of its own, since the local cache answered
        it, or it shared that of another call; else 0.
    :ivar receipts: number of pending calls whose answers this call asked for.
    """

    filter: str
    kind: str
    verb: str
    items: int
    new: int | None
    seconds: float
    round_trips: int
    resends: int
    outcome: CallOutcome
    busy: int = 0
    lost: int = 0
    cached: int = 0
    receipts: int = 0


Report = Callable[[CallEvent], object]
"""A function that is called with the event of a call that has ended, in the call's thread or task."""


class Around(Protocol):
    """A hook that is entered before a call and left after it, as a span of a trace."""

    def around(self, filter: str, kind: str, verb: str, /) -> AbstractContextManager[Report | None]:  # noqa: A002 - as in `CallEvent`
        """Return the context of a call; it yields the function to call with the event before it is left.

        The context is entered and left in the thread or task of the call.  It is left without an exception,
        whatever the call raises: the event has the outcome.
        """


Hook = Report | Around
"""A hook, which is told of each call; its errors are logged."""
