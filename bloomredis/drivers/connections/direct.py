"""Calls sent over pooled connections directly, bypassing the client's per-call overhead.

That overhead is larger than the call itself: metrics, events and wrappers whenever a connection is taken from
the pool and given back.  `pools` takes a connection without them.  If no connection is free, or the server
has closed the free one, the client itself makes the call.

The connection still reconnects, checks its health, and handles push messages and TLS by itself.  After a
failure the client's retry policy decides, and the failed attempt counts.  A connection over which a reply may
still come is closed before anything else happens.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, final

from bloomredis.drivers.connections.clients import AsyncClient, AsyncConnection, Connection, SyncClient
from bloomredis.drivers.connections.pools import (
    NO_CONNECTION,
    AsyncPoolAccess,
    NoConnection,
    PoolAccess,
    is_asyncio,
    why_not,
)
from bloomredis.drivers.connections.sending import send_call, send_calls
from bloomredis.protocol.judging import judge
from bloomredis.protocol.steps import Call, Reply, Wire, parted


def connect_direct(client: Any, keep_connection: bool | None) -> Any:  # noqa: FBT001 - the option `keep_connection`
    """Return the transport of calls: a direct client if possible, else the client; for a list a list.

    :raises ValueError: `keep_connection` is True, and a direct client is not possible.
    """
    if isinstance(client, list | tuple):
        return [connect_direct(each, keep_connection) for each in client]
    if keep_connection is False:
        return client
    reason = why_not(client)
    if reason is None:
        return AsyncDirectClient(client) if is_asyncio(client) else DirectClient(client)
    if keep_connection:
        raise ValueError(f"keep_connection=True is not possible: {reason}; give None or False")
    return client


def reads_at_once(transport: object) -> bool:
    """Return whether several commands over a transport cost hardly more than one."""
    return isinstance(transport, DirectClient | AsyncDirectClient)


@final
class DirectClient(PoolAccess):
    """A synchronous client that sends calls over pooled connections directly."""

    def call(self, call: Call) -> Reply:
        """Make a call; return its answer."""
        wire = call.wire()
        reply: Reply | NoConnection = NO_CONNECTION if wire is None else self.exchange(wire, (call,))
        if reply is not NO_CONNECTION:
            return reply
        if wire is not None and not call.is_single:
            return []  # after an interrupted pipeline, the client would give its last reply to the next call
        answer: Reply = send_call(self.client, call)
        return answer

    def together(self, calls: Sequence[Call]) -> list[Reply]:
        """Make calls in one round trip; return the answer or the error of each."""
        wire = _joined(calls)
        replies = NO_CONNECTION if wire is None else self.exchange(wire, calls)
        if not isinstance(replies, list):
            replies = send_calls(self.client, calls)
        return parted(calls, replies)

    def go_on(self, error: BaseException, connection: Connection, wire: Wire, calls: Sequence[Call]) -> Reply:
        """Retry after a failed attempt by the client's retry policy; return the reply of a later attempt."""
        errors = [error]  # of the first attempt
        fail = getattr(self.client, "_disconnect_raise", None)  # redis-py before 6, and valkey-py

        def attempt() -> Reply:
            try:
                if errors:
                    raise errors.pop()  # noqa: TRY301 - the retry policy counts the first attempt
                return self.reply(connection, wire)
            except self.refusal:
                raise
            except BaseException as lost:
                _record(calls, lost)
                connection.disconnect()  # its reply may still come, and no other call may read it
                raise

        try:
            reply = connection.retry.call_with_retry(
                attempt, partial(fail, connection) if fail else lambda _: connection.disconnect()
            )
        except BaseException as last:  # includes an interruption of the wait before a retry
            self._give_up(connection, last)
            raise
        finally:
            del error
        self.pool.release(connection)
        return reply

    def _give_up(self, connection: Connection, error: BaseException) -> None:
        """Give a connection back after an error; close it first if a reply may still come.

        If closing is interrupted, the connection is not given back.
        """
        if not isinstance(error, self.refusal):
            connection.disconnect()
        self.pool.release(connection)


@final
class AsyncDirectClient(AsyncPoolAccess):
    """An asyncio client that sends calls over pooled connections directly."""

    async def call(self, call: Call) -> Reply:
        """Make a call; return its answer."""
        wire = call.wire()
        reply: Reply | NoConnection = NO_CONNECTION if wire is None else await self.exchange(wire, (call,))
        if reply is not NO_CONNECTION:
            return reply
        if wire is not None and not call.is_single:
            return []  # after an interrupted pipeline, the client would give its last reply to the next call
        answer: Reply = await send_call(self.client, call)
        return answer

    async def together(self, calls: Sequence[Call]) -> list[Reply]:
        """Make calls in one round trip; return the answer or the error of each."""
        wire = _joined(calls)
        replies = NO_CONNECTION if wire is None else await self.exchange(wire, calls)
        if not isinstance(replies, list):
            replies = await send_calls(self.client, calls)
        return parted(calls, replies)

    async def go_on(
        self, error: BaseException, connection: AsyncConnection, wire: Wire, calls: Sequence[Call]
    ) -> Reply:
        """Retry after a failed attempt by the client's retry policy; return the reply of a later attempt."""
        errors = [error]  # of the first attempt
        fail = getattr(self.client, "_disconnect_raise", None)

        async def attempt() -> Reply:
            try:
                if errors:
                    raise errors.pop()  # noqa: TRY301 - the retry policy counts the first attempt
                return await self.reply(connection, wire)
            except self.refusal:
                raise
            except BaseException as lost:
                _record(calls, lost)
                await connection.disconnect(nowait=True)
                raise

        async def disconnect(_: Exception) -> None:
            await connection.disconnect()

        try:
            reply = await connection.retry.call_with_retry(
                attempt, partial(fail, connection) if fail else disconnect
            )
        except BaseException as last:
            await self._give_up(connection, last)
            raise
        finally:
            del error
        await self.pool.release(connection)
        return reply

    async def _give_up(self, connection: AsyncConnection, error: BaseException) -> None:
        """Give a connection back after an error, as `DirectClient._give_up` does."""
        if not isinstance(error, self.refusal):
            await connection.disconnect(nowait=True)
        await self.pool.release(connection)


def _record(calls: Sequence[Call], error: BaseException) -> None:
    """Record a failed attempt; it may have executed the first of several calls, whatever the error says."""
    for call in calls:
        if len(calls) == 1:
            judge(call, error)
        else:
            call.lose(error)


SyncTransport = SyncClient | DirectClient
AsyncTransport = AsyncClient | AsyncDirectClient
"""The transport of the calls to one server or cluster."""


def _joined(calls: Sequence[Call]) -> Wire | None:
    """Return the bytes of all calls and the number of replies; None if the client must make one of them."""
    wires = [call.wire() for call in calls]
    sent = [each for each in wires if each is not None]
    if len(sent) < len(wires):
        return None
    return [b"".join([piece for packed, _ in sent for piece in packed])], sum([count for _, count in sent])
