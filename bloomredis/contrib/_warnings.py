"""Warnings of a long outage, logged at most once a minute."""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

EVERY: Final = 60.0
"""The least number of seconds between two warnings."""

_log = logging.getLogger("bloomredis")


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
