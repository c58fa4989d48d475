"""Calls that are queued on a caller's pipeline, over synchronous and over asyncio clients."""

from __future__ import annotations

from typing import Generic

from bloomredis.drivers.binding import documented_as
from bloomredis.drivers.driven import AsyncDriven, Driven
from bloomredis.drivers.observing import observed
from bloomredis.operations.kinds import pipelines
from bloomredis.operations.kinds.pipelines import AnyPipeline
from bloomredis.operations.kinds.routed import RoutedOperations
from bloomredis.operations.options import I


class Queueing(Driven, Generic[I]):
    """Filters whose calls can be queued on a caller's pipeline."""

    _operations: pipelines.Queueing | RoutedOperations

    @observed
    def queue_add(self, pipe: AnyPipeline, item: I) -> None:
        """Queue an add on a pipeline of the caller's; that place in `pipe.execute()` holds 1 or 0.

        In a MULTI it takes part in the transaction.  The filter is opened first if it is not yet, with
        its own client.  That it was lost since is an error of `pipe.execute()`, which says BLOOMMISSING or
        BLOOMCHANGED; `reserve` goes on with what is there then.

        :raises ConnectionFailedError: the filter had to be opened, and no reply came.
        """
        self._run(self._operations.queue_add(pipe, item))

    @observed
    def queue_contains(self, pipe: AnyPipeline, item: I) -> None:
        """Queue a test on a pipeline of the caller's; that place in `pipe.execute()` holds 1 or 0.

        :raises ConnectionFailedError: the filter had to be opened, and no reply came.
        """
        self._run(self._operations.queue_contains(pipe, item))


@documented_as(Queueing)
class AsyncQueueing(AsyncDriven, Generic[I]):
    """Filters whose calls can be queued on a caller's pipeline."""

    _operations: pipelines.Queueing | RoutedOperations

    @observed
    async def queue_add(self, pipe: AnyPipeline, item: I) -> None:
        """Queue an add on a pipeline of the caller's."""
        await self._run(self._operations.queue_add(pipe, item))

    @observed
    async def queue_contains(self, pipe: AnyPipeline, item: I) -> None:
        """Queue a test on a pipeline of the caller's."""
        await self._run(self._operations.queue_contains(pipe, item))
