"""What can go wrong, classed by who has to act."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class BloomError(Exception):
    """The root of every error that bloomredis itself raises."""


class FilterNotFoundError(BloomError):
    """There is no filter under this name, and the caller gave no parameters to create one with."""


class FilterMismatchError(BloomError):
    """The key holds something else than the caller asked for; it was left untouched.

    It is a key of another type, a string that is no filter, or a filter with other parameters.
    The message gives what is stored and what was wanted.
    """


class FilterLostError(BloomError):
    """A filter that this object has used is gone, or was cleared or replaced by someone else.

    Every item added before is forgotten, so answering "new" would be a guess.  The error comes
    back on every call until the caller has dealt with it and calls ``reserve()`` or ``clear()``.
    """


class FilterFullError(BloomError):
    """A filter of several layers needs another one, and can have no more.  Nothing was added."""


class ConnectionFailedError(BloomError):
    """No reply arrived, and nothing is in doubt: the call changes nothing, or may simply be made again.

    The client's own error is its ``__cause__``.
    """


class ServerRefusedError(BloomError):
    """The server answered, but would not do it; the message says why and what to do about it.

    `word` is the server's own word for it, such as ``OOM`` or ``READONLY``.
    """

    def __init__(self, message: str, word: str = "") -> None:
        super().__init__(message)
        self.word = word

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.args, self.word)


class OutcomeUnknownError(BloomError):
    """The call may or may not have been executed: no answer came back, and retries ran out.

    Calling ``add(item, token=error.token)`` within a minute answers as the first try would have;
    on the same filter object ``add(item)`` does too.  So does ``remove`` for a call of ``remove``.
    """

    tokens: Sequence[str] = ()  # of all items of the call

    def __init__(self, message: str, token: str | None = None) -> None:
        super().__init__(message)
        self.token = token

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.args, self.token)


class RefusedOutcomeUnknownError(ServerRefusedError, OutcomeUnknownError):
    """The server refused the last sending of a call, and an earlier one may have been executed."""

    def __init__(self, message: str, word: str = "", token: str | None = None) -> None:
        ServerRefusedError.__init__(self, message, word)
        self.token = token

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.args, self.word, self.token)


class BatchInterruptedError(BloomError):
    """A batch stopped on its way; ``__cause__`` is what stopped it.

    `results` are the answers so far, in order, and `rest` the items without an answer.  Calling
    ``add_many(error.rest)`` (or ``claim_many``) on the same filter object within a minute loses
    nothing, even where some of them were executed and the answer did not arrive.
    """

    def __init__(
        self, message: str, results: list[Any], rest: Sequence[Any], tokens: Sequence[str | None] = ()
    ) -> None:
        super().__init__(message)
        self.results = results
        self.rest = rest
        self.tokens = tokens  # of items of the rest that were sent, in order; shorter than the rest
        self.answers: Any = None  # with what keeps them, for the operations that a batch is a part of

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.args, self.results, self.rest, self.tokens)


class ClaimLostError(BloomError):
    """The worker does not hold the item (any more): its lease ran out, or the filter was cleared.

    Nothing was changed.  Another worker may have the item, or may have done it.
    """
