"""Filters that run operations with their client: the one place where a public call begins and ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from bloomredis.drivers import aio, sync
from bloomredis.drivers.binding import Bound
from bloomredis.drivers.connections.clients import AsyncClient, SyncClient
from bloomredis.protocol.steps import Op, Step

T = TypeVar("T")


class Driven(Bound[SyncClient]):
    """A filter over a synchronous client."""

    _is_asyncio = False
    _shared: Callable[[Any, Step], object] | None = None
    """Executes the calls about one claim, together with those of other threads."""

    def _run(self, operation: Op[T]) -> T:
        return sync.drive(self._link, operation)

    def _run_claim(self, operation: Op[T]) -> T:
        return sync.drive(self._link, operation, self._shared)


class AsyncDriven(Bound[AsyncClient]):
    """A filter over an asyncio client."""

    _is_asyncio = True
    _shared: Callable[[Any, Step], Awaitable[object]] | None = None
    """Executes the calls about one claim, together with those of other tasks."""

    async def _run(self, operation: Op[T]) -> T:
        return await aio.drive(self._link, operation)

    async def _run_claim(self, operation: Op[T]) -> T:
        return await aio.drive(self._link, operation, self._shared)
