"""Lanes and tokens, which make a call safe to send again.

Every mutating call has a *lane*, which carries one call at a time and numbers them.  The script keeps the
last reply of each lane as its *receipt* (lua/include/receipts.lua), so a call that arrives twice, re-sent by
the client or by the caller, gets the answer of its first execution.  A lane is used again once its call was
answered; one whose call was not is left alone until the server forgets its receipt.  So receipts are bounded
by concurrent callers, not by calls.

A call's name is its number in the lane and a check of what it is about, the packed items and the generation,
and of when it began, so that a receipt never answers another call: one about another filter, or one of a
cloned machine or process, which has the same lanes and numbers.

A *token* names an item of a call: the lane, the call, the item's index in it; and it carries checks of the
item and of the generation, and when the call was first sent.  Lanes of removals have names of their own, so
that a token is never taken for one of the other kind.
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
from bloomredis.protocol.calls import parts
from bloomredis.protocol.forks import renewed_after_fork
from bloomredis.protocol.keys import as_bytes, auxiliary_prefix
from bloomredis.protocol.replies import Refusal, is_used_by_clone
from bloomredis.protocol.steps import Op

T = TypeVar("T")

REMOVAL: Final = "r"
"""Mark of the lanes of removals."""

RECEIPT_SECONDS: Final = 590.0
"""How long a receipt can be relied on: a little less than the server keeps it (lua/include/format.lua)."""

_CALL: Final = r"\d{1,15}\.[0-9a-f]{8}"
LANE_AND_CALL: Final = rf"([0-9a-f]{{16}}-[0-9a-f]+)/({_CALL})"
"""A regular expression for the names of a lane, which is none of removals, and of a call."""

_TOKEN: Final = re.compile(
    rf"([0-9a-f]{{16}}-({REMOVAL}?)[0-9a-f]+)/({_CALL})/"
    r"(\d{1,9})/([0-9a-f]{8})/((?:[0-9a-f]{8})?)/([0-9a-f]{1,12})"
)


class Lane:
    """A name under which one call at a time is made."""

    __slots__ = ("call", "calls", "free", "key", "name", "wire")

    def __init__(self, name: str, key: bytes, free: list[Lane]) -> None:
        self.name = name
        self.key = key
        self.wire = parts((key,))
        self.free = free
        self.calls = 0
        self.call = ""  # the name of the last one

    def next_call(self, check: int) -> str:
        """Return the name of a new call, with a check of what it is about and of the nanosecond."""
        self.calls = calls = self.calls + 1
        self.call = call = f"{calls}.{((check ^ time_ns()) & 0xFFFFFFFF).to_bytes(4).hex()}"
        return call


@dataclass(frozen=True, slots=True)
class Pending:
    """An item of a call whose reply was lost or not delivered; `answer` if known.

    `generation` is that of the filter that the call was sent to, of a token its first four bytes.  `until` is
    the monotonic time from which on the receipt may be gone.
    """

    lane: str
    call: str
    index: int
    generation: bytes = field(default=b"", compare=False)
    until: float = field(default=math.inf, compare=False)
    answer: bool | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """The lane of the call that asks about the item."""
        return f"{self.lane}/{self.call}/{self.index}"

    def token(self, item: str | bytes) -> str:
        """Return the token of the item."""
        sent = time.time() - RECEIPT_SECONDS + self.until - clock.now()
        return f"{self.name}/{crc32(as_bytes(item)):08x}/{self.generation[:4].hex()}/{max(0, int(sent)):x}"


def only_call(check: int) -> str:
    """Return the name of the only call of its lane: the same each time that it is about the same."""
    return f"1.{check:08x}"


def parse_token(token: str, item: bytes, mark: str = "") -> Pending:
    """Return the item of a call that a token names.

    :raises ValueError, TypeError: it is no token of calls with this mark, or that of another item.
    """
    if not isinstance(token, str):
        raise TypeError(f"token must be a str, not {type(token).__name__} {shown(token)}")
    match = _TOKEN.fullmatch(token)
    if match is None or match[2] != mark:
        raise ValueError(f"token must be that of an OutcomeUnknownError of this call, not {shown(token)}")
    if int(match[5], 16) != crc32(item):
        raise ValueError(f"the token {shown(token)} was given for another item; pass it with that one")
    until = clock.now() + RECEIPT_SECONDS - (time.time() - int(match[7], 16))
    return Pending(match[1], match[3], int(match[4]), bytes.fromhex(match[6]), until)


class Lanes:
    """The lanes of one filter object.

    :param mark: part of the names of all lanes.
    """

    def __init__(self, key: bytes, mark: str = "") -> None:
        self._prefix = auxiliary_prefix(key) + b"receipt:"
        self._mark = mark
        self.renew()

    def renew(self) -> None:
        """Begin with other lanes: a forked child must not number its calls in its parent's."""
        self._names = f"{os.urandom(8).hex()}-{self._mark}"
        self._numbers = itertools.count()
        self.free: list[Lane] = []
        renewed_after_fork(self)

    def __getstate__(self) -> dict[str, object]:
        return {"_prefix": self._prefix, "_mark": self._mark}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self.renew()

    def take(self) -> Lane:
        """Return a lane that no other call uses."""
        try:
            return self.free.pop()
        except IndexError:
            name = f"{self._names}{next(self._numbers):x}"
            return Lane(name, self.key(name), self.free)

    def key(self, name: str) -> bytes:
        """Return the key of the receipt of a lane, or of a token's item when it is asked about."""
        return self._prefix + name.encode()


def in_a_lane(lanes: Lanes, run: Callable[[Lane], Op[T]]) -> Op[T]:
    """Make a call in a lane, or in another one where a clone of this machine or process has used that."""
    lane = lanes.take()
    try:
        reply = yield from run(lane)
    except Refusal as refusal:
        if not is_used_by_clone(refusal):
            raise
        lanes.renew()
        lane = lanes.take()
        reply = yield from run(lane)
    give_back(lane)
    return reply


def give_back(lane: Lane) -> None:
    """Let a lane be used again, its last call being answered.  A parent's lane never reaches its children."""
    lane.free.append(lane)
