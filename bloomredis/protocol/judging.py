"""The judge: what a call is, given what its attempts did.

A call that was sent once and never answered is *pending*, whatever a later attempt says, until an attempt
is answered.  A script answers by its reply, or by a refusal after it has read the call's receipt in an
unchanged filter.  A filter that is missing or has changed may have lost the receipt too.

Every way of sending calls records in the call what its attempts did (`steps.Call`), and no other code judges
a call by its last error.
"""

from __future__ import annotations

from enum import Enum, auto
from time import monotonic
from traceback import walk_tb
from typing import Final, NoReturn

from bloomredis.errors import BloomError, ConnectionFailedError, OutcomeUnknownError, ServerRefusedError
from bloomredis.protocol.replies import (
    ENDED,
    FULL,
    STALE,
    explained,
    failed,
    is_unsent,
    is_used_by_clone,
    raise_meaning,
)
from bloomredis.protocol.steps import Call, Outcome


class Verdict(Enum):
    """The state of a call after its attempts."""

    ANSWERED = auto()
    REFUSED = auto()  # executed by no attempt, and a delayed copy will not execute it
    NOT_SENT = auto()
    PENDING = auto()  # executed by an attempt, or not


_FINAL: Final = frozenset((FULL, STALE, ENDED, "CROSSSLOT"))
"""Refusals that count as answers: scripts give them after the receipt was read; no node serves two slots."""


def judge(call: Call, outcome: Outcome) -> Verdict:
    """Return what a call is after this outcome of its last attempt; record the attempt if it was lost."""
    if not isinstance(outcome, BaseException):
        return Verdict.ANSWERED
    error = explained(outcome) if isinstance(outcome, Exception) else outcome
    if getattr(error, "word", "") in _FINAL:
        call.lost = None
        return Verdict.REFUSED
    if call.lost is not None:
        return Verdict.PENDING
    if isinstance(error, ConnectionFailedError) and not error.sent:
        return Verdict.NOT_SENT
    if _is_refusal(error, by_client=call.by_client):
        return Verdict.REFUSED
    call.lose(outcome)
    return Verdict.PENDING


def _is_refusal(error: BaseException, *, by_client: bool) -> bool:
    """Return whether an error shows that the only attempt was refused before its first write.

    A server's refusal of an attempt `by_client` does not, since the client may have resent it after a loss.
    """
    if isinstance(error, ServerRefusedError) or getattr(error, "word", "") == "NOSCRIPT":
        return not by_client
    is_unknown = isinstance(error, ConnectionFailedError | OutcomeUnknownError)
    return isinstance(error, BloomError) and not is_unknown and not is_used_by_clone(error)


def attempts_of(error: Exception) -> int:
    """Return the number of attempts that a client made by itself before it raised an error.

    Only the function of redis-py and valkey-py that retries knows it, so it is read from the traceback.
    """
    frames = [frame for frame, _ in walk_tb(error.__traceback__) if frame.f_code.co_name == "call_with_retry"]
    return max((frame.f_locals.get("failures", 1) for frame in frames), default=1)


def raise_judged(call: Call, error: Exception) -> NoReturn:
    """Raise the error of this library for the error of a call's last attempt.

    If there were more, the text says how many, and in how many seconds.
    """
    attempts, begun = call.attempts + attempts_of(error), getattr(error, "begun", call.begun)
    tried = f"; {attempts} attempts in {monotonic() - begun:.1f} s" if attempts > 1 and begun else ""
    meaning = explained(error, call.about, tried)
    if judge(call, error) is Verdict.PENDING:
        if is_unsent(error):
            raise failed(f"{call.lost}; then {error}", call.about, tried) from error
        if isinstance(meaning, ServerRefusedError):
            meaning.is_pending = True
    raise_meaning(meaning, error)
