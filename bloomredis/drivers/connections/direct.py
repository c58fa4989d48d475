"""Calls over the connections of a client's pool, without the client's own way around a call.

That takes longer than the call: metrics, events and wrappers each time a connection is taken from the pool
and put back.  `pools` has a short way.  Where no connection is free, or the one that is has been closed by
the server, the client itself makes the call.

Whatever a connection does stays its own doing: reconnects, health checks, push messages, TLS.  After a
failure the client's retry policy decides, and the attempt that failed counts.  A connection over which a
reply may still come is closed before anything else happens.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, NoReturn, TypeVar, overload

from bloomredis.drivers.connections.clients import (
    AsyncClient,
    AsyncConnection,
    Connection,
    Packing,
    SyncClient,
)
from bloomredis.drivers.connections.pools import (
    DIRECT,
    NO_CONNECTION,
    AsyncPoolAccess,
    NoConnection,
    PoolAccess,
    is_asyncio,
    why_not,
)
from bloomredis.protocol.steps import Call, Command, Reply, Wire, joined, parted

R = TypeVar("R")


def connect_direct(client: Any, keep: bool | None) -> Any:  # noqa: FBT001 - the option `keep_connection`
    """Return what calls go through: a client's kept connections, or the client itself; of several a list.

    :raises ValueError: `keep` is True, and it cannot be done.
    """
    if isinstance(client, list | tuple):
        return [connect_direct(each, keep) for each in client]
    if keep is False:
        return client
    reason = why_not(client)
    if reason is None:
        return AsyncDirectClient(client) if is_asyncio(client) else DirectClient(client)
    if keep:
        raise ValueError(f"keep_connection=True is not possible: {reason}; give None or False")
    return client


def reads_at_once(link: object) -> bool:
    """Return whether several commands over a link cost hardly more than one."""
    return isinstance(link, DirectClient | AsyncDirectClient)


@overload
def send(link: SyncClient, step: Command) -> Reply: ...
@overload
def send(link: SyncClient, step: list[Command]) -> list[Reply]: ...
@overload
def send(link: AsyncClient, step: Command) -> Awaitable[Reply]: ...
@overload
def send(link: AsyncClient, step: list[Command]) -> Awaitable[list[Reply]]: ...
def send(link: Any, step: Any) -> Any:
    """Send a command, or several together; return or await the reply, or the reply or error of each."""
    if not isinstance(step, list):
        if getattr(getattr(link, "connection_pool", None), "cache", None) is not None:
            return _uncached(link, step)
        return link.execute_command(*step, NEVER_DECODE=True)  # bits are no text
    return (
        link.execute_commands(step)
        if isinstance(link, DirectClient | AsyncDirectClient)
        else pipelined(link, step)
    )


def _uncached(client: Any, command: Command) -> Any:
    """Send a command to a client with a cache of its own, which is behind: it keeps none of a pipeline's."""
    (reply,) = pipelined(client, [command])
    if isinstance(reply, Exception):
        raise reply
    return reply


@overload
def pipelined(client: SyncClient, commands: Sequence[Command]) -> list[Reply]: ...
@overload
def pipelined(client: AsyncClient, commands: Sequence[Command]) -> Awaitable[list[Reply]]: ...
def pipelined(client: Any, commands: Sequence[Command]) -> Any:
    """Send commands in a pipeline of a client, which returns or awaits the reply or the error of each."""
    pipe = client.pipeline(transaction=False)
    for command in commands:
        pipe.execute_command(*command, NEVER_DECODE=True)
    return pipe.execute(raise_on_error=False)


class DirectClient(PoolAccess):
    """A synchronous client whose scripts are called over connections that are kept ready."""

    def execute_command(self, *command: Any, **options: Any) -> Reply:
        """Send one command and return its reply, that of a script as bytes."""
        reply: Reply | NoConnection = NO_CONNECTION
        if command[0] in DIRECT:
            reply = self.use(self._exchange, command, self._after)
        if reply is NO_CONNECTION:
            answer: Reply = self.client.execute_command(*command, **options)
            return answer
        return reply

    def call(self, call: Call) -> Reply:
        """Make a call; return its answer."""
        wire = None if self.has_packer else call.wire()
        if wire is not None:
            reply = self.use(self._exchange_wire, wire, self._after)
            if reply is not NO_CONNECTION:
                return reply
            # The client's pipeline, interrupted between two replies, would give the other to the next call.
            return send(self.client, call.commands[0]) if call.is_single else []
        if call.is_single:
            return self.execute_command(*call.commands[0], NEVER_DECODE=True)
        return self.execute_commands(call.commands)

    def together(self, calls: Sequence[Call]) -> list[Reply]:
        """Make calls in one round trip; return the answer to each, or its error."""
        found: list[Reply] | NoConnection = NO_CONNECTION
        if (wires := _wires(self, calls)) is not None:
            found = self.use(self._exchange_calls, wires, self._after)
        replies = pipelined(self.client, joined(calls)) if found is NO_CONNECTION else found
        return parted(calls, replies)

    def execute_commands(self, commands: Sequence[Command]) -> list[Reply]:
        """Send commands together and return the reply or the error of each."""
        found: list[Reply] | NoConnection = NO_CONNECTION
        if DIRECT.issuperset([each[0] for each in commands]):
            found = self.use(self._exchange_all, commands, self._after)
        replies: list[Reply] = pipelined(self.client, commands) if found is NO_CONNECTION else found
        return replies

    def pipeline(self, *, transaction: bool) -> Any:
        """Return a pipeline of the client."""
        return self.client.pipeline(transaction=transaction)

    def __enter__(self) -> Any:
        """Enter the client."""
        return self.client.__enter__()

    def _exchange(self, connection: Connection, command: Command) -> Reply:
        connection.send_packed_command(self.packed(connection, command))
        return connection.read_response(disable_decoding=True)

    def _exchange_wire(self, connection: Connection, wire: Wire) -> Reply:
        packed, replies = wire
        connection.send_packed_command(packed)
        if replies > 1:
            return self._replies(connection, replies)
        return connection.read_response(disable_decoding=True)

    def _exchange_calls(self, connection: Connection, wires: Sequence[Wire | Call]) -> list[Reply]:
        packed, count = _packed(self, connection, wires)
        connection.send_packed_command(packed)
        return self._replies(connection, count)

    def _exchange_all(self, connection: Connection, commands: Sequence[Command]) -> list[Reply]:
        connection.send_packed_command(self.all_packed(connection, commands))
        return self._replies(connection, len(commands))

    def _replies(self, connection: Connection, count: int) -> list[Reply]:
        replies: list[Reply] = []
        for _ in range(count):
            try:
                replies.append(connection.read_response(disable_decoding=True))
            except self.refusal as error:
                replies.append(error)
        return replies

    def _after(self, error: BaseException, connection: Connection, call: Callable[[], R]) -> R:
        """Go on after an attempt that failed, as the client would have; return the reply of another one."""
        first: list[Callable[[], R]] = [partial(_raise, error)]
        fail = getattr(self.client, "_disconnect_raise", None)  # of redis-py before 6, and valkey-py

        def attempt() -> R:
            try:
                return (first.pop() if first else call)()
            except self.refusal:
                raise
            except BaseException:
                connection.disconnect()  # a reply may be on its way, which is nobody else's
                raise

        try:
            reply = connection.retry.call_with_retry(
                attempt, partial(fail, connection) if fail else lambda _: connection.disconnect()
            )
        except BaseException as last:  # also where the wait before another attempt was interrupted
            self._give_up(connection, last)
            raise
        finally:
            del error
        self.pool.release(connection)
        return reply

    def _give_up(self, connection: Connection, error: BaseException) -> None:
        """Give a connection back after an error; it is closed before if a reply may still come.

        If that is interrupted it does not go back.
        """
        if not isinstance(error, self.refusal):
            connection.disconnect()
        self.pool.release(connection)


class AsyncDirectClient(AsyncPoolAccess):
    """An asyncio client whose scripts are called over connections that are kept ready."""

    async def execute_command(self, *command: Any, **options: Any) -> Reply:
        """Send one command and return its reply, that of a script as bytes."""
        reply = (
            await self.use(self._exchange, command, self._after) if command[0] in DIRECT else NO_CONNECTION
        )
        if reply is NO_CONNECTION:
            answer: Reply = await self.client.execute_command(*command, **options)
            return answer
        return reply

    async def call(self, call: Call) -> Reply:
        """Make a call; return its answer."""
        wire = None if self.has_packer else call.wire()
        if wire is not None:
            reply = await self.use(self._exchange_wire, wire, self._after)
            if reply is not NO_CONNECTION:
                return reply
            # The client's pipeline, interrupted between two replies, would give the other to the next call.
            return await send(self.client, call.commands[0]) if call.is_single else []
        if call.is_single:
            return await self.execute_command(*call.commands[0], NEVER_DECODE=True)
        return await self.execute_commands(call.commands)

    async def together(self, calls: Sequence[Call]) -> list[Reply]:
        """Make calls in one round trip; return the answer to each, or its error."""
        found: list[Reply] | NoConnection = NO_CONNECTION
        if (wires := _wires(self, calls)) is not None:
            found = await self.use(self._exchange_calls, wires, self._after)
        replies = await pipelined(self.client, joined(calls)) if found is NO_CONNECTION else found
        return parted(calls, replies)

    async def execute_commands(self, commands: Sequence[Command]) -> list[Reply]:
        """Send commands together and return the reply or the error of each."""
        found: list[Reply] | NoConnection = NO_CONNECTION
        if DIRECT.issuperset([each[0] for each in commands]):
            found = await self.use(self._exchange_all, commands, self._after)
        replies: list[Reply] = await pipelined(self.client, commands) if found is NO_CONNECTION else found
        return replies

    def pipeline(self, *, transaction: bool) -> Any:
        """Return a pipeline of the client."""
        return self.client.pipeline(transaction=transaction)

    async def __aenter__(self) -> Any:
        """Enter the client."""
        return await self.client.__aenter__()

    async def _exchange(self, connection: AsyncConnection, command: Command) -> Reply:
        await self.send(connection, self.packed(connection, command))
        return await connection.read_response(disable_decoding=True)

    async def _exchange_wire(self, connection: AsyncConnection, wire: Wire) -> Reply:
        packed, replies = wire
        await self.send(connection, packed)
        if replies > 1:
            return await self._replies(connection, replies)
        return await connection.read_response(disable_decoding=True)

    async def _exchange_calls(self, connection: AsyncConnection, wires: Sequence[Wire | Call]) -> list[Reply]:
        packed, count = _packed(self, connection, wires)
        await self.send(connection, packed)
        return await self._replies(connection, count)

    async def _exchange_all(self, connection: AsyncConnection, commands: Sequence[Command]) -> list[Reply]:
        await self.send(connection, self.all_packed(connection, commands))
        return await self._replies(connection, len(commands))

    async def _replies(self, connection: AsyncConnection, count: int) -> list[Reply]:
        replies: list[Reply] = []
        for _ in range(count):
            try:
                replies.append(await connection.read_response(disable_decoding=True))
            except self.refusal as error:
                replies.append(error)
        return replies

    async def _after(
        self, error: BaseException, connection: AsyncConnection, call: Callable[[], Awaitable[R]]
    ) -> R:
        """Go on after an attempt that failed, as the client would have; return the reply of another one."""
        first: list[Callable[[], Awaitable[R]]] = [partial(_fail, error)]
        fail = getattr(self.client, "_disconnect_raise", None)

        async def attempt() -> R:
            try:
                return await (first.pop() if first else call)()
            except self.refusal:
                raise
            except BaseException:
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
        """Give a connection back after an error, as `DirectClient` does."""
        if not isinstance(error, self.refusal):
            await connection.disconnect(nowait=True)
        await self.pool.release(connection)


def _wires(inside: DirectClient | AsyncDirectClient, calls: Sequence[Call]) -> list[Wire | Call] | None:
    """Return the bytes of each call, or the call where the connection packs it; None if the client does."""
    wires = [(None if inside.has_packer else call.wire()) or call for call in calls]
    rest = [each for each in wires if isinstance(each, Call)]
    return wires if DIRECT.issuperset([command[0] for command in joined(rest)]) else None


def _packed(
    inside: DirectClient | AsyncDirectClient, connection: Packing, wires: Iterable[Wire | Call]
) -> Wire:
    """Return the bytes of calls in one piece, and the number of replies."""
    pieces: list[bytes] = []
    count = 0
    for each in wires:
        packed, replies = (
            (inside.all_packed(connection, each.commands), len(each.commands))
            if isinstance(each, Call)
            else each
        )
        pieces += packed
        count += replies
    return [b"".join(pieces)], count


def _raise(error: BaseException) -> NoReturn:
    raise error


async def _fail(error: BaseException) -> NoReturn:
    raise error
