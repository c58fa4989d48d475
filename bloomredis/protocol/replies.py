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


class RefusedAgain(ServerRefusedError):  # noqa: N818 - callers see its base class
    """A refusal of the last attempt of a pending call."""


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
    # Errors without their word: two from a command inside a script (6.2 and 7.0; from 7.2 on), two from the
    # handshake of an asyncio client.
    "can't run this command": "NOPERM",
    "ACL failure in script": "NOPERM",
    "invalid username-password pair": "NOAUTH",
    "HELLO must be called with the client already authenticated": "NOAUTH",
    "all keys must map to the same key slot": "CROSSSLOT",  # by a cluster client
    "bit offset is not an integer or out of range": "proto-max-bulk-len",  # of a string that became too long
}
_ADVICE: Final = {
    "OOM": "it is out of memory (maxmemory): raise maxmemory, free memory, or use a smaller filter; a "
    "ScalingBloomFilter begins small",
    "READONLY": "it is a read-only replica: connect to the primary (after a failover, reconnect)",
    "NOPERM": "the ACL rule of the user lacks a permission: `bloomredis doctor` names it",
    "NOAUTH": "it requires a valid user name and password: give the client the right ones, or put them into "
    "its URL",
    "MISCONF": "it cannot save its data to disk and refuses writes: see its log, free disk space",
    "NOREPLICAS": "it has fewer replicas than its min-replicas-to-write: bring the replicas back",
    "LOADING": "it is loading its data after a start: try again in a moment",
    "BUSY": "another client's script has run for too long: wait, or end it with SCRIPT KILL",
    "CLUSTERDOWN": "the cluster does not serve this slot: wait for its failover, check its nodes",
    "MASTERDOWN": "it is a replica that has lost its primary: wait, or connect to the primary",
    "TRYAGAIN": "the slot of the filter is migrating, and its keys are on two nodes: "
    "let the migration end (CLUSTER SETSLOT), then try again",
    "MOVED": "another node of the cluster serves this slot: use a cluster client; if it is one, check "
    "whether the nodes agree",
    "ASK": "the slot of the filter is migrating to a node that the client does not know: let the "
    "migration end, or give the client that node too",
    "proto-max-bulk-len": "it no longer allows strings as long as the filter: set proto-max-bulk-len to the "
    "filter's size or more, or use a ShardedBloomFilter, whose strings are shorter",
    "CROSSSLOT": "the name puts the filter's keys into different slots: avoid '}' in it",
}
TRANSIENT_WORDS: Final = frozenset(_ADVICE) - {"NOPERM", "NOAUTH", "CROSSSLOT", "proto-max-bulk-len"}
"""Refusals that may end by themselves, so that a later retry can succeed."""

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
_UNSENT_TEXTS: Final = frozenset(
    (
        "Too many connections",  # a ConnectionError of redis-py 5 and valkey-py
        "No connection available.",  # of a pool that waits for a free connection
    )
)
_CLAIMS: Final = re.compile(r"[bcd]*(?: [0-9]{1,15}(?:=[0-9a-f]{16})?)*")
_DIGITS: Final = b"\0\x0101"
_FLAGS: Final = tuple(flag in (1, 49) for flag in range(256))  # 49 is "1"
_WORD: Final = re.compile(
    "|".join(
        [
            *(MISSING, FOREIGN, CHANGED, DAMAGED, ARGUMENT, STALE, SESSION_REUSED, FULL, ENDED, MODULE),
            WRONG_TYPE,
            *(rf"\b{word}\b" for word in _ADVICE),
        ]
    )
)
_NO_DATABASE: Final = "DB index is out of range"
_NO_SCRIPTS: Final = re.compile(r"unknown command .?eval(sha)?\b", re.IGNORECASE)


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


def explained(error: Exception) -> Exception:
    """Translate a client's error to an error of this library; return unknown errors as they are."""
    if isinstance(error, BloomError):
        return error
    word = word_of(error)
    if word in _ADVICE:
        message = f"the server refused ({word}): {_ADVICE[word]}. The server said: {error}"
        return ServerRefusedError(message, word)
    if word:
        return Refusal(word, str(error).partition(f"{word} ")[2])
    if is_no_reply(error) and _NO_DATABASE not in str(error):
        return ConnectionFailedError(str(error))
    if "data string too short" in str(error):  # Lua's struct library, reading past the end of the string
        return FilterMismatchError(
            "the filter's string ends before its bits do: delete the key or restore it. "
            f"The server said: {error}"
        )
    return _not_sent(error) if is_unsent(error) else _of_server(error)


def _of_server(error: Exception) -> Exception:
    """Return the error for a server without the database or without EVAL; return other errors as they are."""
    if _NO_DATABASE in str(error):
        return ServerRefusedError(
            "the server has no database of this number: give another db=, or another number at the end of "
            f"the URL. The server said: {error}",
            "ERR",
        )
    if not _NO_SCRIPTS.search(str(error)):
        return error
    return ServerRefusedError(
        "the server runs no Lua scripts, which every filter needs. For fakeredis: pip install "
        "'fakeredis[lua]'; with Sentinel use the client of sentinel.master_for(name); otherwise use Redis or "
        f"Valkey. The server said: {error}",
        "ERR",
    )


def _not_sent(error: Exception) -> ConnectionFailedError:
    failed = ConnectionFailedError(str(error))
    failed.sent = False
    return failed


def raise_explained(error: Exception) -> NoReturn:
    """Raise the error of this library for a client's error."""
    meaning = explained(error)
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
        raise ConnectionFailedError(f"{reply!r:.80} is no reply with the answers to {most} items")
    return reply


def claims_of(reply: Reply, count: int, *, is_capped: bool) -> tuple[str, list[str]]:
    """Return the answer to each claim, and for each busy item the text that follows about its holder.

    :param is_capped: the answers may end before the first item that the filter has no room for.
    :raises ConnectionFailedError: the reply has another form or length.
    """
    text = reply.decode("latin-1") if isinstance(reply, bytes) else reply
    if isinstance(text, str) and _CLAIMS.fullmatch(text):
        answers, *left = text.split(" ")
        least = 1 if is_capped else count
        if least <= len(answers) <= count and answers.count("b") == len(left):
            return answers, left
    raise ConnectionFailedError(f"{reply!r:.80} is no reply with the answers to {count} claims")


def without_module(name: str) -> ServerRefusedError:
    """Return the error for a filter of the module on a server without the module."""
    return ServerRefusedError(
        f"the server has no Bloom filter module (commands BF.*), which layout='module' of {name!r} needs: "
        "use Redis 8, Redis Stack or Valkey with valkey-bloom, or omit layout, which works on any server",
        MODULE,
    )


def is_used_by_clone(error: BaseException) -> bool:
    """Return True if a clone of this machine or process used the session, so the server refused the call."""
    return isinstance(error, Refusal) and error.word == SESSION_REUSED


def is_no_reply(error: Exception) -> bool:
    """Return whether an error means that a reply was lost."""
    return bool(_names(error) & _CONNECTION) and not is_unsent(error)


def is_unsent(error: Exception) -> bool:
    """Return whether a client's error means that its pool had no free connection, so nothing was sent."""
    names = _names(error)
    return _UNSENT in names or ("ConnectionError" in names and str(error) in _UNSENT_TEXTS)


def in_doubt(
    error: ConnectionFailedError, name: str, advice: str, token: str | None = None
) -> OutcomeUnknownError:
    """Return the public error for a lost reply whose outcome matters, with advice on the retry."""
    message = f"a call on {name!r} may or may not have been executed ({error}); {advice}"
    return OutcomeUnknownError(message, token)


def refused_in_doubt(
    error: ServerRefusedError, advice: str, token: str | None = None
) -> RefusedOutcomeUnknownError:
    """Return the public error for a pending call whose last attempt was refused, with advice on the retry."""
    message = f"{error}. The call may have been executed before: {advice}"
    return RefusedOutcomeUnknownError(message, error.word, token)


class OutcomeMatters:
    """The context of a call on a filter, in which a pending call becomes `OutcomeUnknownError`."""

    __slots__ = ("advice", "name")

    def __init__(self, name: str, advice: str = "a second call may find the work of the first done") -> None:
        self.name = name
        self.advice = advice

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, ConnectionFailedError) and error.sent:
            raise in_doubt(error, self.name, self.advice) from client_error(error)
        if isinstance(error, RefusedAgain):
            raise refused_in_doubt(error, self.advice) from client_error(error)


def client_error(error: BaseException) -> BaseException:
    """Return the client's error that caused an error of this library, or else the error itself."""
    return error.__cause__ or error


def _names(error: Exception) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


def unhex(text: str | bytes) -> bytes:
    """Return the bytes of a hexadecimal reply, decoded by the client or not."""
    return bytes.fromhex(text if isinstance(text, str) else text.decode())
