"""The public errors, classed by who has to act; each has its parts as attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Generic

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    ItemT = TypeVar("ItemT", default=Any)
    AnswerT = TypeVar("AnswerT", default=Any)
else:
    from typing import TypeVar

    ItemT, AnswerT = TypeVar("ItemT"), TypeVar("AnswerT")

_TRANSIENT: Final = (
    *("OOM", "READONLY", "MISCONF", "NOREPLICAS", "LOADING", "BUSY"),
    *("CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "MOVED", "ASK"),
)
"""Refusals that may end by themselves, so that a later retry can succeed."""


class BloomError(Exception):
    """The base class of all errors of bloomredis.

    The text of an error is its `problem`, then its `advice`.

    :ivar problem: what was found, and what was wanted instead.
    :ivar advice: the way out in a program.
    :ivar command: the way out for a user of the command `bloomredis`.
    :ivar transient: True if the reason may end by itself, so that the same call may succeed later.

    While a server is away, every call raises one of these:

    * `ConnectionFailedError`: no reply arrived, but the call can safely be repeated.
    * `OutcomeUnknownError`: the server may have executed the call.
    * `BatchInterruptedError`: a batch was interrupted; `rest` has the items without an answer.
    * `ServerRefusedError`: the server replied that it cannot execute the call.
    """

    transient: bool = False

    def __init__(self, problem: str = "", *, advice: str = "", command: str | None = None) -> None:
        super().__init__()
        self.advice = advice
        self.command = advice if command is None else command
        self.restate(problem)

    def restate(self, problem: str) -> None:
        """Replace the problem, and compose the text again."""
        self.problem = problem
        self.args = (f"{problem}; {self.advice}" if self.advice else problem,)


class FilterNotFoundError(BloomError):
    """No filter has this name, and the call only reads, or the caller gave no parameters to create one."""


class FilterMismatchError(BloomError):
    """The key holds something other than the requested filter; the call left it unchanged.

    The key has another type, or it holds a string that is not a filter, or a filter with other
    parameters.  The message gives the values found and wanted.
    """


class FilterExistsError(FilterMismatchError):
    """The name for a restored filter or a copy is in use; its key was left unchanged."""


class FilterLostError(BloomError):
    """A filter that this object has used is gone, or another client has cleared or replaced it.

    All items added before are lost, so the answer "new" would be a guess.  Every call raises this error until
    somebody calls ``acknowledge()`` or ``clear()``, in any process.

    A call also raises it, and the next call tries again, if the filter vanishes as often as it is made.
    """

    def __init__(self, problem: str = "", *, advice: str = "", command: str | None = None) -> None:
        super().__init__(problem, advice=advice, command=command)
        self.told = [False]  # whether a caller got the error or a copy of it; all copies share the list
        self.is_damage = False  # a part of the filter is lost, so that only clear() helps


class FilterFullError(BloomError):
    """The filter takes no more items; this one was not added.

    A `BloomFilter` with ``on_full="raise"`` holds as many items as its capacity.  A filter with layers needs
    another layer, but already has the maximum number.
    """


class ConnectionFailedError(BloomError):
    """No reply arrived, but the call changed nothing, or repeating it does no harm.

    The client's own error is its ``__cause__``.  If no connection was free for any attempt, `sent` is False:
    the server cannot have executed the call.
    """

    transient = True
    sent = True

    def __init__(
        self,
        problem: str = "",
        *,
        reason: str | None = None,
        advice: str = "",
        command: str | None = None,
        transient: bool = True,
    ) -> None:
        super().__init__(problem, advice=advice, command=command)
        self.reason = problem if reason is None else reason  # without the name of the filter
        self.transient = transient


class ServerRefusedError(BloomError):
    """The server refused the call; the message says why and how to fix it.

    `word` is the first word of the server's error, such as ``OOM`` or ``READONLY``.
    """

    is_pending: bool = False  # an earlier attempt of the call may have been executed

    def __init__(
        self, problem: str = "", word: str = "", *, advice: str = "", command: str | None = None
    ) -> None:
        super().__init__(problem, advice=advice, command=command)
        self.word = word

    @property
    def transient(self) -> bool:  # type: ignore[override]  # of each error, not of the class
        """True for a refusal that may end by itself, such as a server that loads its data."""
        return self.word in _TRANSIENT


class OutcomeUnknownError(BloomError):
    """The server may or may not have executed the call: its reply was lost, and so were those to its retries.

    The client's own error is its ``__cause__``.

    Within a minute, ``add(item, token=error.token)`` returns the answer of the first attempt, and so does
    ``add(item)`` on the same filter object.  The same holds for ``remove`` after a call of ``remove``.

    :ivar final: True if the server has forgotten the call, so that the answer can never be known.  No retry
        brings the answer then, so a loop of retries must stop.  The caller decides whether to do the item's
        work, which may have been done already.
    """

    final: bool = False
    tokens: Sequence[str | None] = ()  # one for each item of the call

    def __init__(
        self, problem: str = "", token: str | None = None, *, advice: str = "", command: str | None = None
    ) -> None:
        super().__init__(problem, advice=advice, command=command)
        self.token = token

    @property
    def transient(self) -> bool:  # type: ignore[override]  # of each error, not of the class
        """True unless the error is `final`."""
        return not self.final


class RefusedOutcomeUnknownError(ServerRefusedError, OutcomeUnknownError):
    """The server refused the last attempt of a call, but may have executed an earlier attempt."""

    def __init__(
        self,
        problem: str = "",
        word: str = "",
        token: str | None = None,
        *,
        advice: str = "",
        command: str | None = None,
    ) -> None:
        BloomError.__init__(self, problem, advice=advice, command=command)
        self.word = word
        self.token = token


class BatchInterruptedError(BloomError, Generic[ItemT, AnswerT]):
    """The error in ``__cause__`` interrupted a batch.

    `results` has the answers so far, in order, and `done` is their number; `rest` has the items without an
    answer.  Continue with ``add_many(error.rest)`` (or ``claim_many``) on the same filter object within a
    minute.  No answer is lost then, even if the server processed some of these items and their replies were
    lost.

    For type checkers, `BatchInterruptedError[str, bool]` is the error of a batch of str with the answers of
    adds; ``except`` gives both as `Any`.

    `add_many`, `contains_many` and `claim_many` have read an iterator to its end.  `dedupe` and `update`
    read it in batches: `rest` has the items of the current batch, and the iterator still has the unread
    items.  Continue with ``dedupe(error.rest)``, then ``dedupe(iterator)``.

    `update` gives no answers: `results` is empty, and `done` is the number of items that are in the filter.
    Continue with ``update(error.rest)``, then with the iterator; if `rest` is empty too, with all items.

    :ivar final: True if nobody can know any more whether the first item of `rest` was new; the cause is an
        `OutcomeUnknownError` that is `final` too.  Decide about this item, then continue with
        ``error.rest[1:]``.
    """

    final: bool = False

    def __init__(
        self,
        problem: str = "",
        results: list[AnswerT] | None = None,
        rest: Sequence[ItemT] = (),
        tokens: Sequence[str | None] = (),
        *,
        advice: str = "",
        command: str | None = None,
    ) -> None:
        super().__init__(problem, advice=advice, command=command)
        self.results: list[AnswerT] = [] if results is None else results
        self.done = len(self.results)
        self.rest: Sequence[ItemT] = rest
        self.tokens = tokens  # of the items in `rest` that were sent, in order

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args, vars(self) | {"results": [*self.results]}  # without what it came from


class ClaimUncheckedError(BloomError):
    """A block ran without holding its claim, and never tested the claim.

    The item was done, or another worker held it.  Test it: ``with f.claim(x) as claim: if claim: ...``.
    """


class ClaimLostError(BloomError):
    """The worker does not hold its claim any more: the lease expired, or the filter was cleared.

    The call changed nothing.  Another worker may hold the item, or may have completed it.
    """
