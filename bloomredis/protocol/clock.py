"""The clock that receipts, leases and temporary copies expire by, and the pauses between attempts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

now: Final[Callable[[], float]] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)
"""Return the seconds since an arbitrary moment, including the time that the machine slept.

On Linux `time.monotonic()` stops while the machine sleeps.
"""


def pauses(most: float = 0.25) -> Iterator[float]:
    """Yield 0, then pauses in seconds that double from 5 ms up to `most`."""
    yield 0.0
    pause = 0.005
    while True:
        yield pause
        pause = min(most, pause * 2)
