"""Sessions and tokens, which make a call safe to retry.

Every mutating call runs in a *session*: a numbered sequence of calls, one at a time.  The script stores the
last reply of each session as its *receipt* (lua/include/receipts.lua).  A call that arrives twice, resent by
the client or retried by the caller, gets the answer of its first execution.  A session is reused once its
call is answered.  A session with an unanswered call is not reused; its receipt expires.
So the number of receipts is bounded by concurrent callers, not by calls.

A call's name is its number in the session and a checksum over the packed items, the generation and the time
at which the call began.  So a receipt answers only its own call: no call about another filter, and no call of
a cloned machine or process.  (A clone has the same sessions and numbers.)

A *token* names an item of a call: the session, the call and the item's index in it.  A token also carries
checksums of the item and of the generation, and the time at which the call was first sent.  Sessions of
removals are named differently, so that the token of a removal never passes for the token of an add.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from time import time_ns
from typing import Final, TypeVar
from zlib import crc32

from bloomredis.arguments import shown
from bloomredis.protocol import clock
from bloomredis.protocol.forks import register_after_fork
from bloomredis.protocol.keys import as_bytes
from bloomredis.protocol.replies import Refusal, is_used_by_clone
from bloomredis.protocol.steps import Op

T = TypeVar("T")

REMOVAL: Final = "r"
"""The mark in the names of sessions of removals."""

RECEIPT_SECONDS: Final = 590.0
"""The seconds for which a receipt can be relied on: less than the server's limit (lua/include/format.lua)."""

_CALL: Final = r"\d{1,15}\.[0-9a-f]{8}"
SESSION_AND_CALL: Final = rf"([0-9a-f]{{16}}-[0-9a-f]+)/({_CALL})"
"""A regular expression for the names of a session and its call; sessions of removals do not match."""

_TOKEN: Final = (
    rf"([0-9a-f]{{16}}-({REMOVAL}?)[0-9a-f]+)/({_CALL})/"
    r"(\d{1,9})/([0-9a-f]{8})/((?:[0-9a-f]{8})?)/([0-9a-f]{1,12})"
)


class Session:
    """A numbered sequence of calls, one at a time.

    :ivar free: the list to which the session is appended once its call was answered.  A forked child has
        another list, so it never gets a session of its parent.
    """

    __slots__ = ("call", "calls", "free", "key", "name")

    def __init__(self, name: str, key: bytes, free: list[Session]) -> None:
        self.name = name
        self.key = key
        self.free = free
        self.calls = 0
        self.call = ""  # the name of the last call

    def next_call(self, check: int) -> str:
        """Return the name of a new call; it mixes the checksum with the time in nanoseconds."""
        self.calls = calls = self.calls + 1
        self.call = call = f"{calls}.{((check ^ time_ns()) & 0xFFFFFFFF).to_bytes(4).hex()}"
        return call


@dataclass(frozen=True, slots=True)
class Pending:
    """An item of a call whose reply was lost or not delivered.

    :ivar generation: the generation of the filter that the call was sent to.  A token has only its last four
        bytes: the shards of one record share the first ones.
    :ivar until: the monotonic time after which the receipt may be gone.
    :ivar answer: the answer, or None if it is unknown.
    """

    session: str
    call: str
    index: int
    generation: bytes = field(default=b"", compare=False)
    until: float = field(default=math.inf, compare=False)
    answer: bool | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """The name of the session in which a retry asks about the item."""
        return f"{self.session}/{self.call}/{self.index}"

    def token(self, item: str | bytes) -> str:
        """Return the token of the item."""
        sent = time.time() - RECEIPT_SECONDS + self.until - clock.now()
        return f"{self.name}/{crc32(as_bytes(item)):08x}/{self.generation[-4:].hex()}/{max(0, int(sent)):x}"


def only_call(check: int) -> str:
    """Return the name of a call that is alone in its session; equal checksums give equal names."""
    return f"1.{check:08x}"


def parse_token(token: str, item: bytes, mark: str = "") -> Pending:
    """Return the item of a call that a token names.

    :raises ValueError, TypeError: the token is malformed, belongs to another item or has another mark.
    """
    if not isinstance(token, str):
        raise TypeError(f"token must be a str, not {type(token).__name__} {shown(token)}")
    match = re.fullmatch(_TOKEN, token)
    if match is None or match[2] != mark:
        raise ValueError(f"token must be from an OutcomeUnknownError of this call, not {shown(token)}")
    if int(match[5], 16) != crc32(item):
        raise ValueError(f"token {shown(token)} belongs to another item; pass it together with that item")
    until = clock.now() + RECEIPT_SECONDS - (time.time() - int(match[7], 16))
    return Pending(match[1], match[3], int(match[4]), bytes.fromhex(match[6]), until)


class Sessions:
    """The sessions of one filter object.

    :param prefix: that of the filter's auxiliary keys.
    :param mark: a part of each session's name.
    """

    def __init__(self, prefix: bytes, mark: str = "") -> None:
        self._prefix = prefix + b"receipt:"
        self._mark = mark
        self.after_fork()

    def after_fork(self) -> None:
        """Begin with new sessions: a forked child must not number its calls in its parent's sessions."""
        self._names = f"{os.urandom(8).hex()}-{self._mark}"
        self._numbers = itertools.count()
        self.free: list[Session] = []
        register_after_fork(self)

    def __getstate__(self) -> dict[str, object]:
        return {"_prefix": self._prefix, "_mark": self._mark}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self.after_fork()

    def take(self) -> Session:
        """Return a session that no other call uses."""
        try:
            return self.free.pop()
        except IndexError:
            name = f"{self._names}{next(self._numbers):x}"
            return Session(name, self.key(name), self.free)

    def next_number(self) -> bytes:
        """Return 6 bytes: 3 that this object has in this process, then a number that grows by 1 or more."""
        number = next(self._numbers) % (1 << 24)
        return bytes.fromhex(self._names[:6]) + number.to_bytes(3)

    def key(self, name: str) -> bytes:
        """Return the key of the receipt of a session, or of an item that a retry asks about."""
        return self._prefix + name.encode()


def in_session(sessions: Sessions, run: Callable[[Session], Op[T]]) -> Op[T]:
    """Make a call in a session; if a clone of this machine or process has used it, repeat in a new one."""
    session = sessions.take()
    try:
        reply = yield from run(session)
    except Refusal as refusal:
        if not is_used_by_clone(refusal):
            raise
        sessions.after_fork()
        session = sessions.take()
        reply = yield from run(session)
    session.free.append(session)
    return reply
