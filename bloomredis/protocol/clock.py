"""The clock by which receipts, leases and copies run out: it counts the time that a machine slept."""

from __future__ import annotations

import time
from typing import Final

_BOOT: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)
"""Linux has it, where `time.monotonic()` stands still while the machine is suspended."""


def now() -> float:
    """Return the seconds since some moment, as the servers' clocks count them."""
    return time.monotonic() if _BOOT is None else time.clock_gettime(_BOOT)
