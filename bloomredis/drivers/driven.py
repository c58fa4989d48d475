"""Filters that run operations with their client: the one place where a public call begins and ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from bloomredis.drivers import aio, sync
from bloomredis.drivers.binding import Bound
from bloomredis.operations.kinds.filter import FilterOperations
from bloomredis.operations.kinds.routed import RoutedOperations
from bloomredis.protocol.steps import Op

T = TypeVar("T")


class Driven(Bound[sync.SyncClient]):
    """A filter over a synchronous client."""

    _is_asyncio = False
    _operations: FilterOperations | RoutedOperations
    _shared: Callable[[Any, Any], Any] | None = None
    """Executes the calls about one claim, together with those of other threads."""

    def _run(self, operation: Op[T]) -> T:
        return sync.drive(self._link, operation)

    def _run_claim(self, operation: Op[T]) -> T:
        return sync.drive(self._link, operation, self._shared)


class AsyncDriven(Bound[aio.AsyncClient]):
    """A filter over an asyncio client."""

    _is_asyncio = True
    _operations: FilterOperations | RoutedOperations
    _shared: Callable[[Any, Any], Awaitable[Any]] | None = None
    """Executes the calls about one claim, together with those of other tasks."""

    async def _run(self, operation: Op[T]) -> T:
        return await aio.drive(self._link, operation)

    async def _run_claim(self, operation: Op[T]) -> T:
        return await aio.drive(self._link, operation, self._shared)
