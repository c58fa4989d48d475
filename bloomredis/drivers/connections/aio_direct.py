"""Clients that send calls over pooled connections directly."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from time import monotonic
from typing import Any, final

from bloomredis.drivers.connections.clients import AsyncClient
from bloomredis.drivers.connections.pooled import NO_CONNECTION, AsyncPooled, NoConnection, joined, record
from bloomredis.drivers.connections.sending import send_call, send_calls
from bloomredis.protocol.steps import Call, Reply, Wire, parted


@final
class AsyncDirectClient(AsyncPooled):
    """A client that sends calls over pooled connections directly."""

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

    async def send_batch(self, calls: Sequence[Call]) -> list[Reply]:
        """Make calls in one round trip; return the answer or the error of each."""
        wire = joined(calls)
        replies = NO_CONNECTION if wire is None else await self.exchange(wire, calls)
        if not isinstance(replies, list):
            replies = await send_calls(self.client, calls)
        return parted(calls, replies)

    async def exchange(self, wire: Wire, calls: Sequence[Call]) -> Reply | NoConnection:
        """Send calls over a free connection; return the reply to one command, or the replies to several.

        Return `NO_CONNECTION` if there is no free connection.
        """
        taken: list[Any] = []
        begun = monotonic()
        try:
            taken = await self.take()
            if not taken:
                return NO_CONNECTION
            reply = await self.reply(taken[0], wire)
            # asyncio:
            back = taken.pop()  # if the pool fails, the call is not retried
            if not self.give(back):
                await asyncio.shield(self.pool.release(back))
            # sync: self.give(taken)
            # both.
        except BaseException as error:
            if not taken:
                raise
            return await self.retry_through_client(error, taken[0], wire, calls, begun)
        return reply

    async def reply(self, connection: Any, wire: Wire) -> Reply:
        """Send commands over a connection; return the reply to one, or the reply or error of each."""
        packed, count = wire
        # asyncio:
        is_sent = False
        if connection.is_connected and not connection.health_check_interval:
            try:
                connection._writer.writelines(packed)
                is_sent = not connection._writer.transport.get_write_buffer_size()
            except (RuntimeError, AttributeError) as error:  # uvloop and CPython 3.12, if it was just closed
                raise self._closed[0](str(error)) from error
            packed = []
        if not is_sent:  # else the system has all bytes, and there is nothing to wait for
            await connection.send_packed_command(packed)
        # sync: connection.send_packed_command(packed)
        # both.
        if count == 1:
            reply: Reply = await connection.read_response(disable_decoding=True)
            return reply
        replies: list[Reply] = []
        for _ in range(count):
            try:
                replies.append(await connection.read_response(disable_decoding=True))
            except self.refusal as error:
                replies.append(error)
        return replies

    async def retry_through_client(
        self, error: BaseException, connection: Any, wire: Wire, calls: Sequence[Call], begun: float
    ) -> Reply:
        """Retry after a failed attempt by the client's retry policy; return the reply of a later attempt."""
        errors = [error]  # of the first attempt
        fail = getattr(self.client, "_disconnect_raise", None)  # redis-py before 6, and valkey-py

        async def attempt() -> Reply:
            try:
                if errors:
                    raise errors.pop()  # noqa: TRY301 - the retry policy counts the first attempt
                return await self.reply(connection, wire)
            except self.refusal:
                raise
            except BaseException as lost:
                record(calls, lost)
                # asyncio:
                await connection.disconnect(nowait=True)  # its reply may still come: no other call reads it
                # sync: connection.disconnect()  # its reply may still come, and no other call may read it
                # both.
                raise

        async def disconnect(_: Exception) -> None:
            await connection.disconnect()

        try:
            reply: Reply = await connection.retry.call_with_retry(
                attempt, partial(fail, connection) if fail else disconnect
            )
        except BaseException as last:  # includes an interruption of the wait before a retry
            last.begun = begun  # type: ignore[attr-defined]  # for its text
            await self._give_up(connection, last)
            raise
        finally:
            del error
        await self.pool.release(connection)
        return reply

    async def _give_up(self, connection: Any, error: BaseException) -> None:
        """Give a connection back after an error; close it first if a reply may still come.

        If closing is interrupted, the connection is not given back.
        """
        if not isinstance(error, self.refusal):
            # asyncio:
            await connection.disconnect(nowait=True)
            # sync: connection.disconnect()
            # both.
        await self.pool.release(connection)


AsyncTransport = AsyncClient | AsyncDirectClient
"""The transport of the calls to one server or cluster."""
