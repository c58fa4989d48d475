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
    """The round trips of one call.

    :ivar started: the time at which the meter was made.
    :ivar round_trips: the number of round trips to servers.
    :ivar resends: the number of round trips right after a lost reply.
    :ivar receipts: the number of requests for the answers of earlier calls.
    """

    round_trips = resends = receipts = 0
    _failed = False

    def __init__(self) -> None:
        self.started = perf_counter()

    def count_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function and count its round trips in this thread, except those of other observed calls."""
        before = of_thread.meter
        try:
            of_thread.meter = self
            return function(*args, **kwargs)
        finally:
            of_thread.meter = before

    async def count_task(self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Await a function and count its round trips in this task, except those of other observed calls."""
        token = of_task.set(self)
        try:
            return await function(*args, **kwargs)
        finally:
            forget(token)

    def counting(self, execute: Callable[[Any, Any], object]) -> Callable[[Any, Any], object]:
        """Wrap a function that executes a step, or an act on a cluster, so that the meter counts it."""

        def counted(client: object, step: object) -> object:
            self.count_sent(client, step)
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
        """Wrap a coroutine function in the same way."""

        async def counted(client: object, step: object) -> object:
            self.count_sent(client, step)
            try:
                answer = await execute(client, step)
            except Exception as error:
                self.hear(error)
                raise
            self.hear(answer)
            return answer

        return counted

    def count_sent(self, client: object, step: object) -> None:
        """Count a step, or an act on a cluster, that is about to be executed."""
        kind: type = client.__class__
        if cluster.is_cluster(kind):
            is_sent = isinstance(step, cluster.Send | cluster.SendAll)
        else:
            is_sent = not isinstance(step, steps.LocalStep | steps.Ask)  # its calls are counted
        if is_sent:
            self.round_trips += 1
            self.resends += self._failed
            self._failed = False

    def hear(self, answer: object) -> None:
        """Note whether a reply was lost: the answer is an error, or a list with an error for some calls."""
        each = answer if isinstance(answer, list) else [answer]
        self._failed = any(isinstance(one, Exception) and is_no_reply(one) for one in each)


class _ThreadMeter(threading.local):
    meter: Meter | None = None


of_thread: Final = _ThreadMeter()
"""Holds the meter of the synchronous call in this thread; None if the call is not observed."""

of_task: Final[ContextVar[Meter | None]] = ContextVar("bloomredis-meter", default=None)
"""The meter of the asyncio call in this task; None if the call is not observed."""


def forget(token: Token[Meter | None]) -> None:
    """Restore the previous meter of this task."""
    try:  # suppress() would double the time of this function
        of_task.reset(token)
    except ValueError:  # the coroutine is closed outside its task's context
        return


def count_receipt() -> None:
    """Count a request for the answer of an earlier call."""
    meter = of_thread.meter or of_task.get()
    if meter is not None:
        meter.receipts += 1
