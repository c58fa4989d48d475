"""Errors for missing answers."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Final, NoReturn

from bloomredis.errors import (
    BatchInterruptedError,
    BloomError,
    ConnectionFailedError,
    FilterFullError,
    OutcomeUnknownError,
    ServerRefusedError,
)
from bloomredis.protocol.replies import (
    Refusal,
    client_error,
    is_used_by_clone,
    outcome_unknown,
    refused_unknown,
)

TRANSIENT: Final = (ConnectionFailedError, OutcomeUnknownError, ServerRefusedError, FilterFullError)
"""Errors after which a caller can go on with the same items, once the reason is gone."""

ASK_AGAIN: Final = "repeat the call with the token of this error"
ON_THE_SAME_OBJECT: Final = "repeat the call on the same object to get its answer"
_FORGOTTEN: Final = (
    "the item is in {!r}, perhaps through a call whose reply was lost and whose receipt is gone: whether the "
    "item was new cannot be known any more, so do not retry (error.final)"
)
_DECIDE: Final = "decide whether to do the item's work, which may have been done already"

UNCOUNTED: Final = (
    "a call on {!r} got no reply, and its receipt is gone: whether it was executed cannot be known any more, "
    "and a retry might count it twice (error.final)"
)
"""For a filter in which every call counts."""


def own_error(error: Exception, tokens: Sequence[str | None]) -> Exception:
    """Return the error of one item or caller, for the error of a call that several share.

    :param tokens: begins with the item's own token; empty if the item was not sent.
    """
    reason = error.__cause__ if isinstance(error, BatchInterruptedError) else None
    if not isinstance(reason, Exception):
        mine = copied(error)
        if mine is not error:
            mine.__cause__ = error.__cause__
        return mine
    mine = copied(reason)
    if isinstance(mine, OutcomeUnknownError):
        mine.token = tokens[0] if tokens else None
        mine.tokens = tokens[:1]
        if mine.token is None:  # the item was not sent, or was sent with another caller's token
            mine = OutcomeUnknownError(
                f"a call that shared a round trip with this one was not answered ({mine.problem})",
                advice=ON_THE_SAME_OBJECT,
            )
    if mine is not reason:
        mine.__cause__ = reason
    return mine


def copied(error: Exception) -> Exception:
    """Return a copy, since callers must not share an exception; the error itself if copying fails."""
    try:
        mine = copy(error)
    except Exception:
        return error
    return mine if isinstance(mine, type(error)) else error


def raise_unknown(
    name: str, error: BaseException | None, tokens: Sequence[str | None], forgotten: str = _FORGOTTEN
) -> NoReturn:
    """Raise the public error for a call without an answer, whose items have these tokens.

    :param error: the error of the call; None if the server has forgotten the call.  An error that shows that
        a clone has used the call's session is treated like None.
    :param forgotten: the message for a forgotten call.
    """
    advice = ASK_AGAIN if tokens[0] else ON_THE_SAME_OBJECT
    unknown: OutcomeUnknownError
    if error is None or is_used_by_clone(error):
        way_out = "the next call without its token counts again" if forgotten is UNCOUNTED else _DECIDE
        unknown = OutcomeUnknownError(forgotten.format(name), tokens[0], advice=way_out)
        unknown.final = True
    elif isinstance(error, ConnectionFailedError):
        unknown = outcome_unknown(error, name, advice, tokens[0])
    elif isinstance(error, Refusal):  # a retry was refused
        unknown = OutcomeUnknownError(
            f"what a call on {name!r} did cannot be known any more: {error}", advice=_DECIDE
        )
    elif isinstance(error, ServerRefusedError):
        unknown = refused_unknown(error, advice, tokens[0])
    else:
        raise error
    unknown.tokens = tokens
    raise unknown from error and client_error(error)


def raise_interrupted(call: str, answers: list[Any], items: Sequence[object], error: Exception) -> NoReturn:
    """Raise `BatchInterruptedError`, or an error of the connection or server before the first answer."""
    if not answers and not isinstance(error, OutcomeUnknownError | FilterFullError):
        raise error
    raise interrupted_by(error, call, answers, items, getattr(error, "tokens", ())) from error


def interrupted_stream(error: BloomError, call: str, items: Sequence[object]) -> BatchInterruptedError:
    """Return the error for one batch of a stream, whose later items have not been read."""
    if not isinstance(error, BatchInterruptedError):
        return interrupted_by(error, call, [], items, getattr(error, "tokens", ()), stream=True)
    return interrupted_by(error.__cause__, call, error.results, items, error.tokens, stream=True)


def interrupted_load(error: BloomError, done: int) -> BatchInterruptedError:
    """Return the error of an `update` which has added so many items, and has not kept the others."""
    again = "call update() again with all items: nothing is lost"
    interrupted = BatchInterruptedError(
        f"{done} items were added, then: {error.problem}",
        advice=f"{error.advice}; then {again}" if error.advice else again,
        command=error.command,
    )
    interrupted.done, interrupted.transient = done, error.transient
    return interrupted


def raise_batch_of_stream(
    error: BloomError, call: str, items: Sequence[object], *, can_repeat_all: bool
) -> NoReturn:
    """Raise the error for one batch of a stream.

    :param can_repeat_all: the caller still has all items, and can make the whole call again.
    """
    if can_repeat_all and not isinstance(error, BatchInterruptedError):
        raise error
    cause = error.__cause__ if isinstance(error, BatchInterruptedError) else error
    raise interrupted_stream(error, call, items) from cause


def interrupted_by(
    error: BaseException | None,
    call: str,
    answers: list[Any],
    items: Sequence[object],
    tokens: Sequence[str | None],
    *,
    stream: bool = False,
) -> BatchInterruptedError:
    """Return the error of a batch whose first items have these answers, and the others these tokens."""
    then = f", and then with {call}(iterator) for the items that were not read yet" if stream else ""
    final = isinstance(error, OutcomeUnknownError) and error.final
    rest, once = ("error.rest[1:]", "") if final else ("error.rest", " once the reason is gone")
    going_on = f"go on with {call}({rest}){once}{then}: nothing is lost"
    reason, advice = (error.problem, error.advice) if isinstance(error, BloomError) else (error, "")
    for of_one_item in (ASK_AGAIN, ON_THE_SAME_OBJECT):  # the call with `rest` repeats that item, too
        advice = advice.removesuffix(of_one_item).removesuffix("; then ")
    interrupted = BatchInterruptedError(
        f"{len(answers)} of {len(items)} items were answered, then: {reason}",
        answers,
        items[len(answers) :],
        tokens,
        advice=f"{advice}; then {going_on}" if advice else going_on,
        command=error.command if isinstance(error, BloomError) else "",
    )
    interrupted.final = final
    interrupted.transient = isinstance(error, BloomError) and error.transient
    return interrupted
