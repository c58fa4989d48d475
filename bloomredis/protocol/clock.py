"""The clock by which receipts, leases and copies run out: it counts the time that a machine slept."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

now: Final[Callable[[], float]] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)
"""Return seconds since some moment.  On Linux `time.monotonic()` stands still while the machine sleeps."""
