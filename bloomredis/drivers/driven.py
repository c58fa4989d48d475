"""Filters that run operations with their client: the one place where a public call begins and ends."""

from __future__ import annotations

from typing import TypeVar

from bloomredis.drivers import aio, sync
from bloomredis.drivers.binding import Bound
from bloomredis.operations.filter import FilterOperations
from bloomredis.operations.routed import RoutedOperations
from bloomredis.protocol.steps import Op

T = TypeVar("T")


class Driven(Bound[sync.SyncClient]):
    """A filter over a synchronous client."""

    _is_asyncio = False
    _operations: FilterOperations | RoutedOperations

    def _run(self, operation: Op[T]) -> T:
        return sync.drive(self._link, operation)


class AsyncDriven(Bound[aio.AsyncClient]):
    """A filter over an asyncio client."""

    _is_asyncio = True
    _operations: FilterOperations | RoutedOperations

    async def _run(self, operation: Op[T]) -> T:
        return await aio.drive(self._link, operation)
