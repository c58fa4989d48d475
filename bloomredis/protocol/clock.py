"""The clock that receipts, leases and temporary copies expire by; pauses between attempts and rounds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from bloomredis.errors import FilterLostError
from bloomredis.protocol.steps import Op, Sleep

now: Final[Callable[[], float]] = (
    partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
    if hasattr(time, "clock_gettime")
    else time.monotonic
)
"""Return the seconds since an arbitrary moment, including the time that the machine slept.

`time.monotonic()` stops while a machine with Linux or macOS sleeps.  On macOS CLOCK_MONOTONIC goes on.
"""


def pauses(most: float = 0.25) -> Iterator[float]:
    """Yield 0, then pauses in seconds that double from 5 ms up to `most`."""
    yield 0.0
    pause = 0.005
    while True:
        yield pause
        pause = min(most, pause * 2)


_LONGEST: Final = 0.1
MOST_ROUNDS: Final = 16
"""The limit of rounds in a row without progress; their pauses last about a second."""


class Rounds(NamedTuple):
    """The rounds of a call without progress; each ends when the stored filter is not the expected one."""

    pauses: Iterator[float]
    progress: int


def next_round(rounds: Rounds | None, name: str, progress: int = 0) -> Op[Rounds]:
    """Begin another round of a call, after a pause; raise `FilterLostError` after `MOST_ROUNDS`.

    :param rounds: the answer for the last round; None for the first.
    :param progress: a number that rises when the call gets further and when the filter grows (another
        client's new layer is no loss); then the rounds count from the start.
    """
    if rounds is None or progress > rounds.progress:
        return Rounds(islice(pauses(_LONGEST), MOST_ROUNDS), progress)
    for pause in rounds.pauses:
        if pause:
            yield Sleep(pause * (256 + os.urandom(1)[0]) / 512)  # clients that collide draw apart
        return rounds
    raise FilterLostError(
        f"{name!r} was lost or replaced {MOST_ROUNDS} times in a row during one call",
        advice="raise maxmemory if the server evicts it at once, raise its ttl if it expires at once, or "
        "find the client that clears it all the time",
    )
