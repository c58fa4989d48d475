"""Meters: the round trips of calls, counted only where somebody observes them."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import Any, Final

from bloomredis.protocol import cluster, steps
from bloomredis.protocol.replies import is_no_reply

Counts = tuple[int, int, int]
"""Round trips; those that followed one without a reply; answers of earlier calls that were asked for."""


class Meter:
    """Counts what the calls of a thread, or one of a task, take."""

    __slots__ = ("_failed", "receipts", "resends", "round_trips")

    def __init__(self) -> None:
        self.round_trips = self.resends = self.receipts = 0
        self._failed = False

    def counts(self) -> Counts:
        """Return what was counted until now."""
        return self.round_trips, self.resends, self.receipts

    def since(self, before: Counts) -> Counts:
        """Return what was counted since then."""
        trips, resends, receipts = before
        return self.round_trips - trips, self.resends - resends, self.receipts - receipts

    def send(self, client: Any, step: Any) -> None:
        """Count a step, or an act on a cluster, that is executed next."""
        if cluster.is_cluster(client.__class__):
            is_sent = isinstance(step, cluster.Send | cluster.SendAll)
        else:
            is_sent = not isinstance(step, steps.Here)
        if is_sent:
            self.round_trips += 1
            self.resends += self._failed
            self._failed = False

    def hear(self, answer: Any) -> None:
        """Note the answer to it, or the error in its place: one of several calls may have had no reply."""
        each = answer if isinstance(answer, list) else [answer]
        self._failed = any(isinstance(one, Exception) and is_no_reply(one) for one in each)


class _OfThread(threading.local):
    meter: Meter | None = None


of_thread: Final = _OfThread()
"""That of the synchronous calls of a thread, None until one of them is observed."""

of_task: Final[ContextVar[Meter | None]] = ContextVar("bloomredis-meter", default=None)
"""That of the asyncio call that is under way, None if nobody observes it."""


def count_receipt() -> None:
    """Count that the answer of an earlier call is asked for."""
    meter = of_task.get() or of_thread.meter
    if meter is not None:
        meter.receipts += 1
