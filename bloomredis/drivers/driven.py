"""Filters that run operations with their client: every public call goes through here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from bloomredis.drivers import aio, sync
from bloomredis.drivers.binding import Bound
from bloomredis.drivers.connections.clients import AsyncClient, SyncClient
from bloomredis.protocol.steps import Op, Step

T = TypeVar("T")


class Driven(Bound[SyncClient]):
    """A filter over a synchronous client."""

    _is_asyncio = False
    _shared: Callable[[Any, Step], object] | None
    """Executes calls about single claims; those of several threads share round trips."""

    def _run(self, operation: Op[T]) -> T:
        return sync.drive(self._transport, operation)

    def _run_claim(self, operation: Op[T]) -> T:
        return sync.drive(self._transport, operation, self._shared)


class AsyncDriven(Bound[AsyncClient]):
    """A filter over an asyncio client."""

    _is_asyncio = True
    _shared: Callable[[Any, Step], Awaitable[object]] | None
    """Executes calls about single claims; those of several tasks share round trips."""

    def _run(self, operation: Op[T]) -> Coroutine[Any, Any, T]:
        return aio.drive(self._transport, operation)

    def _run_claim(self, operation: Op[T]) -> Coroutine[Any, Any, T]:
        return aio.drive(self._transport, operation, self._shared)
