"""Meters: the round trips of calls, counted only while a call is observed."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar, Token
from time import perf_counter
from typing import Any, Final, ParamSpec, TypeVar

from bloomredis.protocol import cluster, steps
from bloomredis.protocol.replies import is_no_reply

P = ParamSpec("P")
T = TypeVar("T")


class Meter:
    """Counts what one call takes.

    :ivar started: the time when it was made.
    :ivar round_trips: to the server.
    :ivar resends: round trips that followed one without a reply.
    :ivar receipts: answers of earlier calls that were asked for.
    """

    round_trips = resends = receipts = 0
    _failed = False

    def __init__(self) -> None:
        self.started = perf_counter()

    def count_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function, and count what it does in this thread, but for other calls that are observed."""
        before = of_thread.meter
        try:
            of_thread.meter = self
            return function(*args, **kwargs)
        finally:
            of_thread.meter = before

    async def count_task(self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function and wait for it, and count what it does in this task, likewise."""
        token = of_task.set(self)
        try:
            return await function(*args, **kwargs)
        finally:
            forget(token)

    def counting(self, execute: Callable[[Any, Any], object]) -> Callable[[Any, Any], object]:
        """Return what executes a step with a client, or an act on a cluster, and counts it."""

        def counted(client: object, step: object) -> object:
            self.send(client, step)
            try:
                answer = execute(client, step)
            except Exception as error:
                self.hear(error)
                raise
            self.hear(answer)
            return answer

        return counted

    def counting_task(
        self, execute: Callable[[Any, Any], Awaitable[object]]
    ) -> Callable[[Any, Any], Awaitable[object]]:
        """Return the same for asyncio."""

        async def counted(client: object, step: object) -> object:
            self.send(client, step)
            try:
                answer = await execute(client, step)
            except Exception as error:
                self.hear(error)
                raise
            self.hear(answer)
            return answer

        return counted

    def send(self, client: object, step: object) -> None:
        """Count a step, or an act on a cluster, that is executed next."""
        kind: type = client.__class__
        if cluster.is_cluster(kind):
            is_sent = isinstance(step, cluster.Send | cluster.SendAll)
        else:
            is_sent = not isinstance(step, steps.Here)
        if is_sent:
            self.round_trips += 1
            self.resends += self._failed
            self._failed = False

    def hear(self, answer: object) -> None:
        """Note the answer to it, or the error in its place: one of several calls may have had no reply."""
        each = answer if isinstance(answer, list) else [answer]
        self._failed = any(isinstance(one, Exception) and is_no_reply(one) for one in each)


class _OfThread(threading.local):
    meter: Meter | None = None


of_thread: Final = _OfThread()
"""That of the synchronous call that this thread makes, None if nobody observes it."""

of_task: Final[ContextVar[Meter | None]] = ContextVar("bloomredis-meter", default=None)
"""That of the asyncio call that is under way, None if nobody observes it."""


def forget(token: Token[Meter | None]) -> None:
    """Let the meter before count again in this task."""
    try:  # suppress() would take as long as all the rest
        of_task.reset(token)
    except ValueError:  # the coroutine is closed in another context than its task's
        return


def count_receipt() -> None:
    """Count that the answer of an earlier call is asked for."""
    meter = of_thread.meter or of_task.get()
    if meter is not None:
        meter.receipts += 1
