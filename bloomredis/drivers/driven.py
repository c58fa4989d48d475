"""Filters that run operations with their client: every public call goes through here.

The two classes are written by hand: only calls of asyncio tasks share round trips.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from bloomredis.drivers import aio_running, running
from bloomredis.drivers.binding import Bound, OfClient
from bloomredis.drivers.connections.aio_direct import AsyncDirectClient
from bloomredis.drivers.connections.clients import AsyncClient, SyncClient
from bloomredis.drivers.connections.direct import DirectClient
from bloomredis.drivers.connections.plain import is_asyncio, is_plain
from bloomredis.drivers.connections.pooled import knows
from bloomredis.drivers.sharing.tasks import Tasks
from bloomredis.operations.claims.requests import ClaimRequest
from bloomredis.operations.claims.state import ClaimState
from bloomredis.protocol.metering import of_task
from bloomredis.protocol.steps import Ask, Op, Step

T = TypeVar("T")


def connect_direct(client: Any) -> Any:
    """Return the transport of calls: a direct client if possible, else the client."""
    if not (is_plain(client) and knows(client)):
        return client
    return AsyncDirectClient(client) if is_asyncio(client) else DirectClient(client)


def reads_at_once(transport: object) -> bool:
    """Return whether several commands over a transport cost hardly more than one."""
    return isinstance(transport, DirectClient | AsyncDirectClient)


class Driven(Bound[SyncClient]):
    """A filter over a synchronous client."""

    _is_asyncio = False

    def _bind(self) -> None:
        operations = self._operations
        self._transport = client = connect_direct(self._client)
        self._contains = partial(operations.contains, by_reading=reads_at_once(client))

    def _run(self, operation: Op[T]) -> T:
        return running.drive(self._transport, operation)

    _run_claims = _run

    def _answer(self, request: ClaimRequest) -> ClaimState:
        return running.drive(self._transport, self._operations.answer_one(request))


class AsyncDriven(Bound[AsyncClient]):
    """A filter over an asyncio client."""

    _is_asyncio = True
    _adds: Tasks
    _tests: Tasks
    _requests: Tasks
    """The sender of requests about claims."""

    if not TYPE_CHECKING:  # type checkers see attributes of an instance
        _adds, _tests, _requests = (OfClient() for _ in range(3))

    def _bind(self) -> None:
        operations = self._operations
        self._transport = client = connect_direct(self._client)
        self._contains = partial(operations.contains, by_reading=reads_at_once(client))
        self._adds = Tasks(self.name, client, operations.add_shared)
        self._tests = Tasks(self.name, client, operations.contains_shared)
        self._requests = Tasks(self.name, client, operations.attempt_shared)

    def _run(self, operation: Op[T]) -> Coroutine[Any, Any, T]:
        return aio_running.drive(self._transport, operation)

    async def _run_claims(self, operation: Op[T]) -> T:
        """Run an operation on many claims, after the shared requests of callers that are gone."""
        await self._requests.settle()
        return await self._run(operation)

    async def _answer(self, request: ClaimRequest) -> ClaimState:
        if request.outcome is None and of_task.get() is None:
            sender = self._requests
            call = sender.share(request, self._operations.attempt_one, request)
            try:  # the usual case, without an operation that the driver would execute step by step
                return await call
            except Exception as error:
                request.outcome = error
            except (asyncio.CancelledError, GeneratorExit):
                sender.abandon(call)
                raise
        answered = self._operations.answer_one(request, shares=True)
        return await aio_running.drive(self._transport, answered, self._execute)

    def _execute(self, client: Any, step: Step) -> Coroutine[Any, Any, object]:
        """Execute a step; a request shares its call with those of other tasks."""
        if isinstance(step, Ask):
            request: ClaimRequest = step.request
            return self._requests.wait(request, self._operations.attempt_one, request)
        return aio_running.execute_step(client, step)
