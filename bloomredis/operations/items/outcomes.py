"""Outcomes of calls: answers that can be kept, and errors for answers that did not come."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NoReturn

from bloomredis.errors import (
    BatchInterruptedError,
    BloomError,
    ConnectionFailedError,
    OutcomeUnknownError,
    RefusedOutcomeUnknownError,
    ServerRefusedError,
)
from bloomredis.protocol.replies import (
    NOT_EXECUTED,
    Refusal,
    client_error,
    in_doubt,
    is_used_by_clone,
)
from bloomredis.stored.state.handle import LayoutChanged

PASSING: Final = (ConnectionFailedError, OutcomeUnknownError, ServerRefusedError)
"""Errors whose reason passes, so that a caller goes on with the same items."""

_ADVICE: Final = "ask again with the token of this error"
_ADVICE_WITHOUT: Final = "a second call on the same object answers as this one would have"
_FORGOTTEN: Final = (
    "the item is in {!r}, perhaps by a call that got no reply, and whose receipt is gone: whether it was new "
    "cannot be known any more, however often it is asked (error.final)"
)

UNCOUNTED: Final = (
    "a call on {!r} got no reply, and its receipt is gone: whether it was executed cannot be known any more, "
    "and to send it again might count it twice (error.final); the next call without its token is another one"
)
"""For a filter in which every call counts."""


class Answers(list[bool]):
    """Answers of a batch, in order; one that could not be delivered can be kept for who asks again.

    `keep` is given the index of an item and its answer; it must not refer to the answers, which would keep
    both in memory until the next collection of garbage.  A forked child keeps none of its parent's answers.
    """

    def __init__(self, keep: Callable[[int, bool], None], answers: Iterable[bool] = ()) -> None:
        super().__init__(answers)
        self._keep = keep
        self._process = os.getpid()

    def keep(self, indexes: Iterable[int]) -> None:
        """Keep the answers of these items of the batch."""
        for i in indexes if self._process == os.getpid() else ():
            self._keep(i, self[i])


def is_not_executed(error: BaseException) -> bool:
    """True if an error proves that a call was not executed, even if it had been sent before."""
    if isinstance(error, ServerRefusedError):
        return error.word in NOT_EXECUTED
    if isinstance(error, ConnectionFailedError):
        return not error.sent
    if isinstance(error, OutcomeUnknownError):
        return False
    return isinstance(error, LayoutChanged | Refusal | BloomError)


def raise_unknown(
    name: str, error: BaseException | None, tokens: Sequence[str | None], forgotten: str = _FORGOTTEN
) -> NoReturn:
    """Raise the public error for a call without an answer, whose items have these tokens.

    :param error: None if the server has forgotten the call; so it has where its lane has gone on.
    :param forgotten: the message for that.
    """
    advice = _ADVICE if tokens[0] else _ADVICE_WITHOUT
    unknown: OutcomeUnknownError
    if error is None or is_used_by_clone(error):
        unknown = OutcomeUnknownError(forgotten.format(name), tokens[0])
        unknown.final = True
    elif isinstance(error, ConnectionFailedError):
        unknown = in_doubt(error, name, advice, tokens[0])
    elif isinstance(error, Refusal):  # of a script that was asked about an earlier call
        unknown = OutcomeUnknownError(f"what a call on {name!r} did cannot be known any more: {error}")
    elif isinstance(error, ServerRefusedError):
        message = f"{error}. An earlier sending may have been executed: {advice}"
        unknown = RefusedOutcomeUnknownError(message, error.word, tokens[0])
    else:
        raise error
    unknown.tokens = tokens
    raise unknown from error and client_error(error)


def raise_interrupted(
    call: str, answers: Sequence[object], items: Sequence[object], error: Exception
) -> NoReturn:
    """Raise `BatchInterruptedError`, or the error that stopped the batch if no item was touched."""
    if not answers and not isinstance(error, OutcomeUnknownError):
        raise error
    interrupted = interrupted_by(error, call, answers, items, getattr(error, "tokens", ()))
    interrupted.answers = answers
    raise interrupted from error


def interrupted_reading(error: BloomError, call: str, items: Sequence[object]) -> BatchInterruptedError:
    """Return the error of one batch of many, the later of which have not been read."""
    if not isinstance(error, BatchInterruptedError):
        return interrupted_by(error, call, [], items, getattr(error, "tokens", ()), unread=True)
    interrupted = interrupted_by(error.__cause__, call, error.results, items, error.tokens, unread=True)
    interrupted.answers = error.answers
    return interrupted


def raise_unread(error: BloomError, call: str, items: Sequence[object], *, is_alone: bool) -> NoReturn:
    """Raise the error of one batch of many.

    :param is_alone: the caller still has the items, and can make the whole call again.
    """
    if is_alone and not isinstance(error, BatchInterruptedError):
        raise error
    cause = error.__cause__ if isinstance(error, BatchInterruptedError) else error
    raise interrupted_reading(error, call, items) from cause


def interrupted_by(
    error: BaseException | None,
    call: str,
    answers: Sequence[object],
    items: Sequence[object],
    tokens: Sequence[str | None],
    *,
    unread: bool = False,
) -> BatchInterruptedError:
    """Return the error of a batch whose first items have these answers, the others these tokens."""
    then = f", and then with {call}(iterator) for the items that were not read yet" if unread else ""
    final = isinstance(error, OutcomeUnknownError) and error.final
    rest, once = ("error.rest[1:]", "") if final else ("error.rest", " once the reason is gone")
    interrupted = BatchInterruptedError(
        f"{len(answers)} of {len(items)} items were answered, then: {error}. Go on with {call}({rest})"
        f"{once}{then}: nothing is lost",
        list(answers),
        items[len(answers) :],
        tokens,
    )
    interrupted.final = final
    return interrupted
