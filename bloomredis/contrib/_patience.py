"""Transient errors, as of a server that restarts or fails over, and calls that wait for their end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from bloomredis import BloomError

T = TypeVar("T")

PAUSE: Final = 0.25
"""Seconds until a retry."""
PATIENCE: Final = 30.0
"""Seconds to wait for a server, enough for a restart or a failover."""

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
