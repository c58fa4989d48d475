"""Transient errors, as of a server that restarts or fails over, and calls that wait for their end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from bloomredis import (
    BatchInterruptedError,
    BloomError,
    ConnectionFailedError,
    OutcomeUnknownError,
    ServerRefusedError,
)

T = TypeVar("T")

PAUSE: Final = 0.25
"""Seconds until a retry."""
PATIENCE: Final = 30.0
"""Seconds to wait for a server, enough for a restart or a failover."""
LASTING: Final = frozenset(("NOPERM", "NOAUTH", "CROSSSLOT", "proto-max-bulk-len"))
"""Refusals that no waiting ends."""

_log = logging.getLogger("bloomredis")


def may_pass(error: BaseException | None) -> bool:
    """Return whether a retry may succeed."""
    if isinstance(error, BatchInterruptedError):
        error = error.__cause__
    if isinstance(error, ServerRefusedError):
        return error.word not in LASTING
    if isinstance(error, OutcomeUnknownError):
        return not error.final
    return isinstance(error, ConnectionFailedError)


def patiently(call: Callable[[], T]) -> T:
    """Return the result of a call; after a transient error, retry it for up to 30 seconds."""
    until: float | None = None
    while True:
        try:
            return call()
        except BloomError as error:
            now = time.monotonic()
            if not may_pass(error) or (until is not None and now >= until):
                raise
            if until is None:
                until = now + PATIENCE
                _log.warning("waiting up to %g s for the filter's server: %s", PATIENCE, error)
        time.sleep(PAUSE)
