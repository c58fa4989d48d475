"""Conditions that are polled, each with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 120.0
"""Seconds for a condition to become true."""


def wait_until(what: str, condition: Callable[[], object], *, every: float = 0.005) -> None:
    """Poll a condition until it is true; after the deadline fail with the condition's name."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"it did not come to pass in {PATIENCE} s that {what}"
        time.sleep(every)  # polling a condition, with a deadline
