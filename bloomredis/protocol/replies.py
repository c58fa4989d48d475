"""Replies, refusals and lost replies."""

from __future__ import annotations

import re
from typing import Final, NoReturn, TypeGuard

from bloomredis.errors import (
    BloomError,
    ConnectionFailedError,
    FilterMismatchError,
    OutcomeUnknownError,
    RefusedOutcomeUnknownError,
    ServerRefusedError,
)
from bloomredis.protocol.explanations import AGAIN, AGAIN_ON_COMMAND_LINE, FAILURES, REFUSALS
from bloomredis.protocol.steps import Reply

Flags = bytes | str | int
"""The reply of add and contains: a number for one item, a string of '0' and '1' for more."""


class Refusal(BloomError):  # noqa: N818 - translated to another public error before a caller sees it
    """An error reply of a script: its first word and the rest of its text."""

    def __init__(self, word: str, detail: str) -> None:
        super().__init__(f"{word} {detail}")
        self.word = word
        self.detail = detail


class Unconfirmed(ConnectionFailedError):  # noqa: N818 - callers see its base class
    """A write that was done, but that too few replicas confirmed."""


MISSING: Final = "BLOOMMISSING"
FOREIGN: Final = "BLOOMFOREIGN"
CHANGED: Final = "BLOOMCHANGED"
ARGUMENT: Final = "BLOOMARGUMENT"
DAMAGED: Final = "BLOOMDAMAGED"
STALE: Final = "BLOOMSTALE"
SESSION_REUSED: Final = "BLOOMLANE"
FULL: Final = "BLOOMFULL"
ENDED: Final = "BLOOMENDED"
MODULE: Final = "BLOOMMODULE"
WRONG_TYPE: Final = "WRONGTYPE"

_CLASSES: Final = {
    # redis-py removes these words from the message and raises a class for each.
    "NoScriptError": "NOSCRIPT",
    "MasterNotFoundError": "",  # in redis-py 5 its text has the errors of the Sentinels
    "ReadOnlyError": "READONLY",
    "OutOfMemoryError": "OOM",
    "NoPermissionError": "NOPERM",
    "AuthenticationError": "NOAUTH",
    "BusyLoadingError": "LOADING",
    "MasterDownError": "MASTERDOWN",  # a subclass of ClusterDownError
    "ClusterDownError": "CLUSTERDOWN",
    "SlotNotCoveredError": "CLUSTERDOWN",
    "ClusterCrossSlotError": "CROSSSLOT",
    "TryAgainError": "TRYAGAIN",
    "MovedError": "MOVED",
    "AskError": "ASK",  # the base class of MovedError
}
_TEXTS: Final = {
    # Errors without their word: two from a command inside a script (6.2 and 7.0; from 7.2 on), three from the
    # handshake of an asyncio client.
    "can't run this command": "NOPERM",
    "ACL failure in script": "NOPERM",
    "invalid username-password pair": "NOAUTH",
    "Authentication required": "NOAUTH",  # redis-py 5
    "HELLO must be called with the client already authenticated": "NOAUTH",
    "all keys must map to the same key slot": "CROSSSLOT",  # by a cluster client
    "bit offset is not an integer or out of range": "proto-max-bulk-len",  # of a string that became too long
}
_UNSURE_ON_COMMAND_LINE: Final = "run the command again; it may find that the first run has done the work"

_CONNECTION: Final = frozenset(
    (
        "ConnectionError",
        "TimeoutError",
        "ClusterError",
        # Errors of a cluster client that lost the cluster, possibly after it had sent the call:
        "RedisClusterException",
        "ValkeyClusterException",
    )
)
_UNSENT: Final = "MaxConnectionsError"
_UNSENT_TEXTS: Final = frozenset(("Too many connections", "No connection available."))
_CLAIMS: Final = re.compile(r"[bcd]*(?: [0-9]{1,15}(?:=[0-9a-f]{16})?)*")
_DIGITS: Final = b"\0\x0101"
_FLAGS: Final = tuple(flag in (1, 49) for flag in range(256))  # 49 is "1"
_WORD: Final = re.compile(
    "|".join(
        [
            *(MISSING, FOREIGN, CHANGED, DAMAGED, ARGUMENT, STALE, SESSION_REUSED, FULL, ENDED, MODULE),
            WRONG_TYPE,
            *(rf"\b{word}\b" for word in REFUSALS),
        ]
    )
)
_OTHER_LOOP: Final = (
    "the client has connections of another event loop: make a client in each loop, with "
    "bloomredis.asyncio.connect(), or use from_url(), which does"
)
_NO_DATABASE: Final = "DB index is out of range"
_NO_SCRIPTS: Final = re.compile(r"unknown command .?eval(sha)?\b", re.IGNORECASE)
_NO_SENTINEL: Final = "unknown command 'SENTINEL'"


def word_of(error: Exception) -> str:
    """Return the word that classifies a server's error; '' if the error is unknown.

    Error classes are compared by name, since redis-py and valkey-py have separate ones.  The word may stand
    anywhere in the text, since Redis 6.2 puts an error inside a script behind the script's name.
    """
    names = _names(error)
    for name, word in _CLASSES.items():
        if name in names:
            return word
    text = str(error)
    for phrase, word in _TEXTS.items():
        if phrase in text:
            return word
    match = None if is_no_reply(error) else _WORD.search(text)
    return match[0] if match else ""


def explained(error: Exception, about: str = "", tried: str = "") -> Exception:
    """Translate a client's error to an error of this library; return unknown errors as they are.

    :param about: the filter or key that the call was about, for the text.
    :param tried: the number of attempts, for the text.
    """
    if isinstance(error, BloomError):
        return error
    word, of = word_of(error), f" a call on {about!r}" if about else ""
    if word in REFUSALS:
        meaning, advice, command = REFUSALS[word]
        problem = f"the server refused ({word}){of}: {meaning} (the server said: {error}{tried})"
        return ServerRefusedError(problem, word, advice=advice, command=command)
    if word:
        return Refusal(word, str(error).partition(f"{word} ")[2])
    if is_no_reply(error) and _NO_DATABASE not in str(error):
        return failed(_OTHER_LOOP if _is_of_other_loop(error) else str(error), about, tried)
    if is_unsent(error):
        unsent = failed(str(error), about, tried)
        unsent.sent = False
        return unsent
    return _of_server(error, about)


def failed(reason: str, about: str = "", tried: str = "") -> ConnectionFailedError:
    """Return the error for a call that got no answer."""
    known = next((way for part, way in FAILURES.items() if part in reason), None)
    reason = reason.partition(" : <")[0].rstrip(".") + tried  # the clients of Sentinels follow
    advice = known.advice if known else AGAIN
    if known and known.transient:
        advice += f"; then {AGAIN}"
    return ConnectionFailedError(
        f"a call on {about!r} got no answer ({reason})" if about else reason,
        reason=reason,
        advice=advice,
        command=known.command if known else AGAIN_ON_COMMAND_LINE,
        transient=known is None or known.transient,
    )


def _of_server(error: Exception, about: str) -> Exception:
    """Return the error for a string, a database or a command that the server lacks; others as they are."""
    if "data string too short" in str(error):  # Lua's struct library, reading past the end of the string
        return FilterMismatchError(
            f"the string of {about!r} ends before its bits do (the server said: {error})",
            advice="delete the key or restore it",
        )
    of = f" a call on {about!r}" if about else ""
    if _NO_DATABASE in str(error):
        return ServerRefusedError(
            f"the server refused{of}, as it has no database of this number (it said: {error})",
            "ERR",
            advice="give another db=, or another number at the end of the URL",
            command="give another number at the end of --url",
        )
    if _NO_SENTINEL in str(error):
        return ServerRefusedError(
            f"the server is no Sentinel (it said: {error})",
            "ERR",
            advice="connect to it with redis://host:6379, or give the URL of a Sentinel",
            command="--url names no Sentinel; for a server itself, give redis://host:6379",
        )
    if not _NO_SCRIPTS.search(str(error)):
        return error
    return ServerRefusedError(
        f"the server runs no Lua scripts, which every filter needs (it said: {error})",
        "ERR",
        advice="for fakeredis: pip install 'fakeredis[lua]'; with Sentinel use the client of "
        "sentinel.master_for(name); otherwise use Redis or Valkey",
        command="for the primary that a Sentinel names, give sentinel://host:26379/NAME; otherwise use Redis "
        "or Valkey",
    )


def raise_meaning(meaning: Exception, error: Exception) -> NoReturn:
    """Raise what a client's error means (`explained`)."""
    if meaning is error:
        raise error
    raise meaning from error


def flags_of(reply: Flags) -> list[bool]:
    """Return the reply of add or contains as booleans; it has a digit, or a byte 0 or 1, for each item."""
    if isinstance(reply, int):
        return [reply == 1]
    return list(map(_FLAGS.__getitem__, digits_of(reply)))


def digits_of(reply: Flags) -> bytes:
    """Return the reply of add or contains as bytes: a digit, or a byte 0 or 1, for each item."""
    if isinstance(reply, int):
        return b"1" if reply == 1 else b"0"
    return reply.encode() if isinstance(reply, str) else reply


def is_answer(reply: object, most: int, least: int = 1) -> TypeGuard[Flags]:
    """Return whether a reply of add or contains has between `least` and `most` answers."""
    if isinstance(reply, str):
        reply = reply.encode()
    if isinstance(reply, bytes):
        return least <= len(reply) <= most and not reply.strip(_DIGITS)
    return reply in (0, 1) and least == 1


def checked(reply: Reply, most: int, least: int = 1) -> Flags:
    """Return the reply of add or contains; `ConnectionFailedError` if it has another form or length."""
    if not is_answer(reply, most, least):
        raise failed(f"{reply!r:.80} is no reply with the answers to {most} items")
    return reply


def claims_of(reply: Reply, count: int, *, is_capped: bool) -> tuple[str, list[str]]:
    """Return the answer to each claim, and for each busy item the text that follows about its holder.

    :param is_capped: the answers may end before the first item that the filter has no room for.
    :raises ConnectionFailedError: the reply has another form or length.
    """
    text = text_of(reply)
    if _CLAIMS.fullmatch(text):
        answers, *left = text.split(" ")
        least = 1 if is_capped else count
        if least <= len(answers) <= count and answers.count("b") == len(left):
            return answers, left
    raise failed(f"{reply!r:.80} is no reply with the answers to {count} claims")


def text_of(reply: Reply) -> str:
    """Return a reply as text: a number's digits, the characters of a text."""
    return reply.decode("latin-1") if isinstance(reply, bytes) else str(reply)


def without_module(name: str) -> ServerRefusedError:
    """Return the error for a filter of the module on a server without the module."""
    return ServerRefusedError(
        f"the server has no Bloom filter module (commands BF.*), which layout='module' of {name!r} needs",
        MODULE,
        advice="use Redis 8, Redis Stack or Valkey with valkey-bloom, or omit layout, which works on any "
        "server",
    )


def is_used_by_clone(error: BaseException) -> bool:
    """Return True if a clone of this machine or process used the session, so the server refused the call."""
    return isinstance(error, Refusal) and error.word == SESSION_REUSED


def is_no_reply(error: Exception) -> bool:
    """Return whether an error means that a reply was lost."""
    return bool(_names(error) & _CONNECTION or _is_of_other_loop(error)) and not is_unsent(error)


def _is_of_other_loop(error: Exception) -> bool:
    """Return whether asyncio refused a connection that another event loop has made, as only the text says."""
    return type(error) is RuntimeError and " loop" in str(error)


def is_unsent(error: Exception) -> bool:
    """Return whether a client's error means that its pool had no free connection, so nothing was sent."""
    names = _names(error)
    return _UNSENT in names or ("ConnectionError" in names and str(error) in _UNSENT_TEXTS)


def outcome_unknown(
    error: ConnectionFailedError,
    name: str,
    advice: str,
    token: str | None = None,
    *,
    command: str = _UNSURE_ON_COMMAND_LINE,
) -> OutcomeUnknownError:
    """Return the public error for a lost reply whose outcome matters, with advice on the retry."""
    if isinstance(error, Unconfirmed):
        problem = f"a write to {name!r} is on the primary, but {error.problem}"
        advice = f"{advice}, or lower min_replicas"
    else:
        problem = f"a call on {name!r} may or may not have been executed ({error.reason})"
    return OutcomeUnknownError(problem, token, advice=advice, command=command)


def refused_unknown(
    error: ServerRefusedError, advice: str, token: str | None = None
) -> RefusedOutcomeUnknownError:
    """Return the public error for a pending call whose last attempt was refused, with advice on the retry."""
    return RefusedOutcomeUnknownError(
        f"{error.problem}; the call may have been executed before",
        error.word,
        token,
        advice=f"{error.advice}; then {advice}",
        command=error.command,
    )


class OutcomeMatters:
    """The context of a call on a filter, in which a pending call becomes `OutcomeUnknownError`."""

    __slots__ = ("advice", "command", "name")

    def __init__(
        self,
        name: str,
        advice: str = "repeat the call, which may find its work done already",
        command: str = _UNSURE_ON_COMMAND_LINE,
    ) -> None:
        self.name = name
        self.advice = advice
        self.command = command

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, ConnectionFailedError) and error.sent:
            raise outcome_unknown(error, self.name, self.advice, command=self.command) from client_error(
                error
            )
        if isinstance(error, ServerRefusedError) and error.is_pending:
            raise refused_unknown(error, self.advice) from client_error(error)


def client_error(error: BaseException) -> BaseException:
    """Return the client's error that caused an error of this library, or else the error itself."""
    return error.__cause__ or error


def _names(error: Exception) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


def unhex(text: str | bytes) -> bytes:
    """Return the bytes of a hexadecimal reply, decoded by the client or not."""
    return bytes.fromhex(text if isinstance(text, str) else text.decode())
