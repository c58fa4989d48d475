"""Outages of a filter's server: calls that wait for their end, and warnings at most once a minute."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from bloomredis import BloomError

T = TypeVar("T")

PAUSE: Final = 0.25
"""Seconds until a retry."""
PATIENCE: Final = 30.0
"""Seconds to wait for a server, enough for a restart or a failover."""
EVERY: Final = 60.0
"""The least number of seconds between two warnings."""

_log = logging.getLogger("bloomredis")


def patiently(call: Callable[[], T]) -> T:
    """Return the result of a call; after a transient error, retry it for up to 30 seconds."""
    until: float | None = None
    while True:
        try:
            return call()
        except BloomError as error:
            now = time.monotonic()
            if not error.transient or (until is not None and now >= until):
                raise
            if until is None:
                until = now + PATIENCE
                _log.warning("waiting up to %g s for the filter's server: %s", PATIENCE, error)
        time.sleep(PAUSE)


class Warnings:
    """A logger of one warning a minute; the next warning says how many there were."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._not_before = 0.0
        self._count = 0

    def warn(self, text: str, *arguments: object) -> None:
        """Log a text, unless one was logged less than a minute ago."""
        with self._lock:
            self._count += 1
            now = time.monotonic()
            if now < self._not_before:
                return
            self._not_before = now + EVERY
            count, self._count = self._count, 0
        _log.warning(f"{text}%s", *arguments, f" ({count} times since the last warning)" if count > 1 else "")
