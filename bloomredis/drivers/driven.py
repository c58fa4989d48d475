"""Filters that run operations with their client: every public call goes through here.

The two classes are written by hand: threads and tasks share round trips in different ways.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from bloomredis.drivers import aio, sync
from bloomredis.drivers.binding import Bound
from bloomredis.drivers.connections.clients import AsyncClient, SyncClient
from bloomredis.drivers.connections.direct import reads_at_once
from bloomredis.drivers.sharing import tasks, threads
from bloomredis.protocol.cluster import is_cluster
from bloomredis.protocol.steps import Op, Step

T = TypeVar("T")


class Driven(Bound[SyncClient]):
    """A filter over a synchronous client."""

    _is_asyncio = False
    _adds: threads.Threads
    _tests: threads.Threads
    _shared: Callable[[Any, Step], object] | None
    """Executes requests about claims; those of several threads share calls."""

    def _bind(self) -> None:
        operations = self._operations
        self._transport = client = self._connect_transport()
        self._coalesce = operations.options.coalesce is True
        operations.read_at_once(reads_at_once(client) and not is_cluster(type(self._client)))
        self._adds = threads.Threads(client, operations.add_shared)
        self._tests = threads.Threads(client, lambda items, _: operations.contains_encoded(items))
        operations.shares = self._coalesce
        sharing = threads.sharing_requests(client, operations)
        self._shared = sharing.execute if self._coalesce else None

    def _run(self, operation: Op[T]) -> T:
        return sync.drive(self._transport, operation)

    def _run_claim(self, operation: Op[T]) -> T:
        return sync.drive(self._transport, operation, self._shared)


class AsyncDriven(Bound[AsyncClient]):
    """A filter over an asyncio client."""

    _is_asyncio = True
    _adds: tasks.Tasks
    _tests: tasks.Tasks
    _shared: Callable[[Any, Step], Awaitable[object]] | None
    """Executes requests about claims; those of several tasks share calls."""

    def _bind(self) -> None:
        operations = self._operations
        self._transport = client = self._connect_transport()
        self._coalesce = operations.options.coalesce is not False
        operations.read_at_once(reads_at_once(client) and not is_cluster(type(self._client)))
        self._adds = tasks.Tasks(self.name, client, operations.add_shared)
        self._tests = tasks.Tasks(self.name, client, lambda items, _: operations.contains_encoded(items))
        operations.shares = self._coalesce
        sharing = tasks.sharing_requests(self.name, client, operations)
        self._shared = sharing.execute if self._coalesce else None

    def _run(self, operation: Op[T]) -> Coroutine[Any, Any, T]:
        return aio.drive(self._transport, operation)

    def _run_claim(self, operation: Op[T]) -> Coroutine[Any, Any, T]:
        return aio.drive(self._transport, operation, self._shared)
