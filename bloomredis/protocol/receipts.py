"""Lanes and tokens, which make a call safe to send again.

Every mutating call has a *lane*, which carries one call at a time and numbers them.  The script keeps the
last reply of each lane as its *receipt* (lua/include/receipts.lua), so a call that arrives twice, re-sent by
the client or by the caller, gets the answer of its first execution.  A lane is used again once its call was
answered; one whose call was not is left alone until the server forgets its receipt.  So receipts are bounded
by concurrent callers, not by calls.

A *token* names an item of a call: the lane, the call, the item's index in it.  Lanes of removals have names
of their own, so that a token is never taken for one of the other kind.
"""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass, field
from typing import Any, Final

from bloomredis.protocol.forks import renewed_after_fork
from bloomredis.protocol.keys import auxiliary_prefix

REMOVAL: Final = "r"
"""Mark of the lanes of removals."""

_TOKEN: Final = re.compile(r"([0-9a-f]{16}-(r?)[0-9a-f]+)/(\d{1,15})/(\d{1,9})")


class Lane:
    """A name under which one call at a time is made."""

    __slots__ = ("calls", "free", "key", "name")

    def __init__(self, name: str, key: bytes, free: list[Lane]) -> None:
        self.name = name
        self.key = key
        self.free = free
        self.calls = 0

    def next_call(self) -> int:
        """Return the number of a new call."""
        self.calls += 1
        return self.calls


@dataclass(frozen=True, slots=True)
class Pending:
    """An item of a call whose reply was lost or not delivered; `answer` if known.

    `generation` is that of the filter that the call was sent to, None if it is not known (of a token), and
    `until` the monotonic time from which on the receipt may be gone.
    """

    lane: str
    call: int
    index: int
    generation: bytes | None = field(default=None, compare=False)
    until: float = field(default=0.0, compare=False)
    answer: bool | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.lane}/{self.call}/{self.index}"


def parse_token(token: str, mark: str = "") -> Pending:
    """Return the item of a call that a token names; `ValueError` unless it is one of calls with this mark."""
    match = _TOKEN.fullmatch(token)
    if match is None or match[2] != mark:
        raise ValueError(f"token must be that of an OutcomeUnknownError of this call, not {token!r}")
    return Pending(match[1], int(match[3]), int(match[4]))


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

    def __getstate__(self) -> dict[str, Any]:
        return {"_prefix": self._prefix, "_mark": self._mark}

    def __setstate__(self, state: dict[str, Any]) -> None:
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


def give_back(lane: Lane) -> None:
    """Let a lane be used again, its last call being answered.  A parent's lane never reaches its children."""
    lane.free.append(lane)
