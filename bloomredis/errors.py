"""Public errors, classed by who has to act."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class BloomError(Exception):
    """The base class of all errors of bloomredis.

    While a server is away, every call raises one: `ConnectionFailedError` where nothing is in doubt,
    `OutcomeUnknownError` where it may have been executed, `BatchInterruptedError` in a batch that was
    done in part, `ServerRefusedError` where the server answers that it cannot.
    """


class FilterNotFoundError(BloomError):
    """There is no filter with this name, and no parameters were given to create it."""


class FilterMismatchError(BloomError):
    """The key holds something other than the filter asked for; it was left unchanged.

    It is a key of another type, a string that is not a filter, or a filter with other parameters.
    The message gives the values found and wanted.
    """


class FilterLostError(BloomError):
    """A filter that this object has used is gone, or was cleared or replaced by another client.

    All items added before are lost, so the answer "new" would be a guess.  Every call raises the
    error until the caller has handled it and calls ``reserve()`` or ``clear()``.
    """


class FilterFullError(BloomError):
    """The filter takes no more items; nothing was added by this call.

    A plain one with ``on_full="raise"`` has as many as its capacity; one of several layers needs another
    layer, but has as many as it can.
    """


class ConnectionFailedError(BloomError):
    """No reply arrived, and nothing is in doubt: the call changes nothing, or may simply be made again.

    The client's own error is its ``__cause__``.  `sent` is False where no connection was free, so that the
    call cannot have been executed.
    """

    sent = True


class ServerRefusedError(BloomError):
    """The server refused the call; the message says why and how to fix it.

    `word` is the first word of the server's error, such as ``OOM`` or ``READONLY``.
    """

    def __init__(self, message: str, word: str = "") -> None:
        super().__init__(message)
        self.word = word

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.args, self.word)


class OutcomeUnknownError(BloomError):
    """The call may or may not have been executed: its reply was lost, and so were those of retries.

    The client's own error is its ``__cause__``.

    ``add(item, token=error.token)`` within a minute returns the answer of the first attempt; so does
    ``add(item)`` on the same filter object, and likewise ``remove`` after a call of ``remove``.

    :ivar final: True if the answer cannot be known any more, since the server has forgotten the call: a
        loop that asks until it has an answer ends here, or does the work of an item that is perhaps done.
    """

    final: bool = False
    tokens: Sequence[str | None] = ()  # of all items of the call

    def __init__(self, message: str, token: str | None = None) -> None:
        super().__init__(message)
        self.token = token

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.args, self.token), {"final": self.final}


class RefusedOutcomeUnknownError(ServerRefusedError, OutcomeUnknownError):
    """The server refused the last sending of a call, and an earlier one may have been executed."""

    def __init__(self, message: str, word: str = "", token: str | None = None) -> None:
        ServerRefusedError.__init__(self, message, word)
        self.token = token

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.args, self.word, self.token)


class BatchInterruptedError(BloomError):
    """A batch was interrupted by the error in ``__cause__``.

    `results` are the answers so far, in order, and `rest` the items without an answer.
    ``add_many(error.rest)`` (or ``claim_many``) on the same filter object within a minute loses
    nothing, even if some of these items were executed and their replies lost.

    `add_many`, `contains_many` and `claim_many` have read an iterator to its end.  `update`, `dedupe` and
    `load` read it in batches: `rest` has the items of the batch, and those that were not read yet are
    still in the iterator, so go on with ``update(error.rest)`` and then ``update(iterator)``.

    :ivar final: True if whether the first item of `rest` was new cannot be known any more (the cause is an
        `OutcomeUnknownError` with the same mark): decide about it, and go on with ``error.rest[1:]``.
    """

    final: bool = False

    def __init__(
        self, message: str, results: list[Any], rest: Sequence[Any], tokens: Sequence[str | None] = ()
    ) -> None:
        super().__init__(message)
        self.results = results
        self.rest = rest
        self.tokens = tokens  # of items of the rest that were sent, in order; shorter than the rest
        self.answers: Any = None  # with what keeps them, for the operations that a batch is a part of

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.args, self.results, self.rest, self.tokens), {"final": self.final}


class ClaimUncheckedError(BloomError):
    """A block ran with a claim that was not held, and never asked whether it was.

    The item was done, or another worker held it.  Test it: ``with f.claim(x) as claim: if claim: ...``.
    """


class ClaimLostError(BloomError):
    """The worker does not hold the item (any more): its lease expired, or the filter was cleared.

    Nothing was changed.  Another worker may hold the item, or may have completed it.
    """
