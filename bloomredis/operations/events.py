"""Events: what a public call was about, and what became of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Literal, NamedTuple, Protocol

from bloomredis.arguments import shown

Outcome = Literal["ok", "unknown", "failed", "refused", "lost", "interrupted", "full", "cancelled", "error"]


class CallEvent(NamedTuple):
    """A public call that has ended; it never has the items themselves.

    :ivar filter: the filter's name.
    :ivar kind: its class, as `BloomFilter`.
    :ivar verb: the method, of the filter or of a claim: `add_many`, `commit`.  `update`, `dedupe` and the
        masks are made of `add_many` and `contains_many`, and are seen as those.  A `rebuild` ends with its
        block.
    :ivar items: the items that it was about, of `load` those that were read; 0 for the filter as a whole.
    :ivar new: the items that were new; of `claim` and `claim_many` those that were claimed, of `contains` and
        `contains_many` those that are not in the filter.  None for other verbs, and after an error.
    :ivar seconds: the time that it took.
    :ivar round_trips: to the server; 0 for a call that was answered here, or in a round trip of another one.
    :ivar resends: round trips that followed one without a reply.  Those that the client library makes by
        itself are not seen.
    :ivar outcome: `ok`; `unknown` for `OutcomeUnknownError`, `failed` for `ConnectionFailedError`, `refused`
        for `ServerRefusedError`, `lost` for `FilterLostError` and `ClaimLostError`, `interrupted` for
        `BatchInterruptedError`, `full` for `FilterFullError`; `cancelled`; `error` for any other.
    :ivar busy: of `claim` and `claim_many` the items that another worker holds; the others that are not new
        are done.
    :ivar lost: of `commit_many`, `release_many` and `extend_many` the claims that were not held any more.
    :ivar cached: the items of a call that the local cache answered; 0 for one that went to the server.
    :ivar receipts: the earlier calls without an answer whose answers it asked for.
    """

    filter: str
    kind: str
    verb: str
    items: int
    new: int | None
    seconds: float
    round_trips: int
    resends: int
    outcome: Outcome
    busy: int = 0
    lost: int = 0
    cached: int = 0
    receipts: int = 0


Report = Callable[[CallEvent], object]
"""Is called with the event of a call that has ended, in its thread or task."""


class Around(Protocol):
    """A hook that is entered before a call and left after it, as a span of a trace."""

    def around(self, filter: str, kind: str, verb: str, /) -> AbstractContextManager[Report | None]:  # noqa: A002 - as in `CallEvent`
        """Return the context of a call; what it yields is called with the event before it is left.

        It is entered and left in the thread or task of the call, and left without an exception, whatever the
        call raises: the event has the outcome.
        """


Hook = Report | Around
"""Is told of each call; what it raises is logged."""


def check_hook(what: str, hook: object) -> None:
    """Raise `TypeError` for what is neither a hook nor None."""
    if hook is not None and not callable(hook) and not hasattr(type(hook), "around"):
        raise TypeError(f"{what} must be a callable, have a method around(), or be None, not {shown(hook)}")
