"""Resending on a cluster: after which errors, how often and for how long a call is sent again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from bloomredis.protocol.replies import is_no_reply, word_of
from bloomredis.protocol.steps import Call

PATIENCE: Final = 30.0
"""Seconds for which a call is sent again while its slot migrates.

A migration takes milliseconds, or seconds for a large filter.  The limit must stay below the two minutes for
which the server keeps the receipt of a call.
"""

RESENDS: Final = 3
"""Limit of resends after lost replies; a resend counts twice if the client did not find the owner.

The client's own retries happen in between.
"""

_NOT_HERE: Final = frozenset(("MOVED", "CLUSTERDOWN", "READONLY"))
_NOT_NOW: Final = frozenset(("ASK", "TRYAGAIN"))  # ASK if the client does not know the node that it names


def owner_in_doubt(error: Exception) -> bool:
    """Return True if the client's slot map may be out of date."""
    word = word_of(error)
    return word in _NOT_HERE or (not word and is_no_reply(error))


def may_repeat(call: Call, error: Exception) -> bool:
    """Return True if a call that failed was certainly not executed, or is safe to execute twice."""
    word = word_of(error)
    return word in _NOT_HERE or word in _NOT_NOW or (is_no_reply(error) and call.again)


class Attempts:
    """The attempts to deliver one call; an attempt that must be the last raises its error.

    Once a reply was lost, the call stays in doubt: that error is raised even if later attempts are refused.

    :param again: the call may be sent again after a lost reply.
    """

    def __init__(self, *, again: bool) -> None:
        self._again = again
        self._deadline = time.monotonic() + PATIENCE
        self._pauses = pauses()
        self._lost: Exception | None = None
        self._losses = 0

    def pause_after(self, error: Exception, *, owner_found: bool) -> float:
        """Return the seconds to wait before the next attempt, or raise the call's final error."""
        word = word_of(error)
        if word in _NOT_HERE:
            if word == "CLUSTERDOWN" and not owner_found:
                raise self._lost or error
        elif word not in _NOT_NOW:
            if word or not is_no_reply(error):
                raise error  # a definite answer
            self._lose(error, owner_found=owner_found)
        if time.monotonic() > self._deadline:
            raise self._lost or error
        return next(self._pauses)

    def _lose(self, error: Exception, *, owner_found: bool) -> None:
        self._lost = error
        self._losses += 1 if owner_found else 2
        if not self._again or self._losses > RESENDS:
            raise error


def pauses(most: float = 0.25) -> Iterator[float]:
    """Yield 0, then pauses in seconds that double from 5 ms."""
    yield 0.0
    pause = 0.005
    while True:
        yield pause
        pause = min(most, pause * 2)
