"""Meters: the round trips of calls, counted only where somebody observes them."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import Any, Final

from bloomredis.protocol import cluster, steps
from bloomredis.protocol.replies import is_no_reply


class Meter:
    """A number of round trips, and of those that followed one without a reply."""

    __slots__ = ("_failed", "resends", "round_trips")

    def __init__(self) -> None:
        self.round_trips = self.resends = 0
        self._failed = False

    def send(self, client: Any, step: Any) -> None:
        """Count a step, or an act on a cluster, that is executed next."""
        if cluster.is_cluster(client.__class__):
            is_sent = isinstance(step, cluster.Send | cluster.SendAll)
        else:
            is_sent = not isinstance(step, steps.NextBatch | steps.Compute)
        if is_sent:
            self.round_trips += 1
            self.resends += self._failed
            self._failed = False

    def send_prepared(self) -> None:
        """Count a prepared call that was answered without an operation."""
        self.round_trips += 1

    def fail(self, error: Exception) -> None:
        """Note that it had no reply."""
        self._failed = is_no_reply(error)


class _OfThread(threading.local):
    meter: Meter | None = None


of_thread: Final = _OfThread()
"""That of the synchronous calls of a thread, None until one of them is observed."""

of_task: Final[ContextVar[Meter | None]] = ContextVar("bloomredis-meter", default=None)
"""That of the asyncio call that is under way, None if nobody observes it."""
