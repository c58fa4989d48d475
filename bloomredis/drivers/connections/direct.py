"""Calls sent over pooled connections directly, bypassing the client's per-call overhead.

That overhead is larger than the call itself: metrics, events and wrappers whenever a connection is taken from
the pool and given back.  Here a connection is taken from the pool's list of free connections and put back
there under the pool's own lock (`take`, `give`).  So the pool knows every connection at any time: its limit,
`close()`, `disconnect()`, re-authentication, forks and other users of the client see no difference.  If no
connection is free, or the server has closed the free one, the client itself makes the call.

The connection still reconnects, checks its health, and handles push messages and TLS by itself.  After a
failure the client's retry policy decides, and the failed attempt counts.  A connection over which a reply may
still come is closed before anything else happens.

Only this module and `plain.py` know the internals of redis-py and valkey-py.  If a client is not exactly as
expected, they are not used (`is_plain`).  A test runs with every supported version, and with the newest one
before its release.  `_PRIVATE` lists the private names.  With a version that lacks one of them, the client
itself makes all calls, which is logged once.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from enum import Enum
from functools import partial
from time import monotonic
from typing import Any, Final, Literal, NamedTuple, final
from weakref import WeakSet

from bloomredis.drivers.connections.clients import AsyncClient, SyncClient
from bloomredis.drivers.connections.plain import errors_of, is_asyncio, is_plain
from bloomredis.drivers.connections.sending import send_call, send_calls
from bloomredis.protocol.forks import register_after_fork
from bloomredis.protocol.judging import judge
from bloomredis.protocol.steps import Call, Reply, Wire, parted

_SCRIPT: Final = "EVALSHA"


class _Private(NamedTuple):
    """Private names of a pool and a connection; without them the client makes the calls."""

    of_pool: Sequence[str]
    of_connection: Sequence[str]


_LISTS: Final = ("_available_connections", "_in_use_connections")
_PRIVATE: Final = {
    False: _Private(of_pool=(*_LISTS, "_lock"), of_connection=("_sock", "_parser")),
    True: _Private(of_pool=_LISTS, of_connection=("_writer",)),
}
"""The private names for synchronous clients (False) and asyncio clients (True).

Other private names are read only if a version has them: `_lock` of an asyncio pool, `_checkpid`, the next two
names, and the holder of redis-py's metrics.
"""

_RENEWED: Final = "_re_auth_token"
_TO_RECONNECT: Final = "_should_reconnect"
"""Attributes of a connection that the pool must handle before the next use of the connection."""


class _Unsent(Enum):
    NO_CONNECTION = 0


NO_CONNECTION: Final = _Unsent.NO_CONNECTION
"""Sentinel in the place of a reply: no connection was free, and nothing was sent."""
NoConnection = Literal[_Unsent.NO_CONNECTION]

_unknown: set[str] = set()
"""The packages whose versions are unknown."""

_log = logging.getLogger("bloomredis")


def connect_direct(client: Any) -> Any:
    """Return the transport of calls: a direct client if possible, else the client."""
    if not is_plain(client):
        return client
    if not _is_known(client.connection_pool, _PRIVATE[is_asyncio(client)]):
        _tell_unknown(client.connection_pool)
        return client
    return AsyncDirectClient(client) if is_asyncio(client) else DirectClient(client)


def reads_at_once(transport: object) -> bool:
    """Return whether several commands over a transport cost hardly more than one."""
    return isinstance(transport, DirectClient | AsyncDirectClient)


def _is_known(pool: object, private: _Private) -> bool:
    free, used = (getattr(pool, name, None) for name in _LISTS)
    is_known = isinstance(free, list) and isinstance(used, set | WeakSet)
    return is_known and all(hasattr(pool, name) for name in private.of_pool)


def _tell_unknown(pool: object) -> None:
    """Log once that a version's private names are unknown, and what that costs."""
    if (package := type(pool).__module__.partition(".")[0]) not in _unknown:
        _unknown.add(package)
        _log.warning(
            "this version of %s keeps its connections in another way than earlier ones: calls use the "
            "client's own methods, which take longer; a newer bloomredis may know this version",
            package,
        )


class _Direct:
    """The parts that synchronous and asyncio clients have in common."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.pool = client.connection_pool
        errors = errors_of(client)
        self.refusal: type[Exception] = errors.ResponseError
        self._closed = (errors.ConnectionError, AttributeError, TypeError, ValueError)
        self._kind = type(client)
        self._execute = type(client).execute_command
        self._state = vars(client)
        self._private = _PRIVATE[is_asyncio(client)].of_connection
        self._is_known = True
        self._is_new = True  # until `_enter_process` has checked a connection in this process
        register_after_fork(self)
        self._metrics = sys.modules.get("redis.observability.providers")

    def is_changed(self) -> bool:
        """Return whether the client has got a wrapper, a callback, metrics or another pool meanwhile."""
        state = self._state
        if self._kind.execute_command is not self._execute or "execute_command" in state:
            return True
        # The client's own dict class folds case, which takes five times as long.
        if dict.__contains__(state["response_callbacks"], _SCRIPT):
            return True
        if state["connection_pool"] is not self.pool:
            return True
        observed = getattr(self._metrics, "_observability_instance", None)
        return observed is not None and getattr(observed, "_provider_manager", None) is not None

    def _says_closed(self, error: BaseException) -> bool:
        """Return whether an error comes from a closed connection, not from a signal handler."""
        return isinstance(error, self._closed) or getattr(error, "errno", None) is not None

    def after_fork(self) -> None:
        """Let the next call in a forked child begin with `_enter_process`."""
        self._is_new = True

    def _enter_process(self) -> None:
        """Let the pool of a forked child drop its parent's connections; check a connection's private names.

        Without a free connection the check is left to the next call.
        """
        check = getattr(self.pool, "_checkpid", None)  # newer asyncio pools lack it
        if check is not None:
            check()
        for connection in self.pool._available_connections[:1]:
            self._is_new = False
            self._is_known = all(hasattr(connection, name) for name in self._private)
            if not self._is_known:
                _tell_unknown(self.pool)


@final
class DirectClient(_Direct):
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

    def exchange(self, wire: Wire, calls: Sequence[Call]) -> Reply | NoConnection:
        """Send calls over a free connection; return the reply to one command, or the replies to several.

        Return `NO_CONNECTION` if there is no free connection.
        """
        taken: list[Any] = []
        begun = monotonic()
        try:
            taken = self.take()
            if not taken:
                return NO_CONNECTION
            reply = self.reply(taken[0], wire)
            self.give(taken)
        except BaseException as error:
            if not taken:
                raise
            return self.retry_through_client(error, taken[0], wire, calls, begun)
        return reply

    def take(self) -> list[Any]:
        """Take a connection that is free, open and has nothing to read; an empty list if there is none."""
        if self.is_changed():
            return []
        pool = self.pool
        taken: list[Any] = []
        if self._is_new:
            self._enter_process()
        if not self._is_known:
            return []
        try:
            with pool._lock:
                free = pool._available_connections
                if free:
                    pool._in_use_connections.add(free[-1])
                    taken[:], free[-1:] = free[-1:], ()  # a signal handler sees both changes, or none
            if taken and (taken[0]._sock is None or taken[0]._parser.can_read(0)):
                pool.release(taken.pop())
            return taken  # noqa: TRY300 - an interruption of this line gives the connection back too
        except BaseException as error:
            if taken:
                pool.release(taken.pop())
            if not self._says_closed(error):
                raise
        return []

    def give(self, taken: list[Any]) -> None:
        """Give a connection back to the pool; the list is empty from then on."""
        pool, (back,) = self.pool, taken
        is_renewed = getattr(back, _RENEWED, None) or getattr(back, _TO_RECONNECT, False)
        if not is_renewed:
            with pool._lock:
                if back in pool._in_use_connections:  # else the process was forked meanwhile
                    free = pool._available_connections
                    free[len(free) :], taken[:] = (back,), ()  # one step, as in `take`
                    pool._in_use_connections.remove(back)
                    return
        taken.clear()
        pool.release(back)

    def reply(self, connection: Any, wire: Wire) -> Reply:
        """Send commands over a connection; return the reply to one, or the reply or error of each."""
        packed, count = wire
        connection.send_packed_command(packed)
        if count == 1:
            reply: Reply = connection.read_response(disable_decoding=True)
            return reply
        replies: list[Reply] = []
        for _ in range(count):
            try:
                replies.append(connection.read_response(disable_decoding=True))
            except self.refusal as error:
                replies.append(error)
        return replies

    def retry_through_client(
        self, error: BaseException, connection: Any, wire: Wire, calls: Sequence[Call], begun: float
    ) -> Reply:
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
            reply: Reply = connection.retry.call_with_retry(
                attempt, partial(fail, connection) if fail else lambda _: connection.disconnect()
            )
        except BaseException as last:  # includes an interruption of the wait before a retry
            last.begun = begun  # type: ignore[attr-defined]  # for its text
            self._give_up(connection, last)
            raise
        finally:
            del error
        self.pool.release(connection)
        return reply

    def _give_up(self, connection: Any, error: BaseException) -> None:
        """Give a connection back after an error; close it first if a reply may still come.

        If closing is interrupted, the connection is not given back.
        """
        if not isinstance(error, self.refusal):
            connection.disconnect()
        self.pool.release(connection)


@final
class AsyncDirectClient(_Direct):
    """An asyncio client, which one thread uses, that sends calls over pooled connections directly."""

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        later = hasattr(self.pool.connection_class, "can_read")
        self._can_read = "can_read" if later else "can_read_destructive"

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

    async def exchange(self, wire: Wire, calls: Sequence[Call]) -> Reply | NoConnection:
        """Send calls and return what `DirectClient.exchange` does."""
        connection = None
        begun = monotonic()
        try:
            connection = await self.take()
            if connection is None:
                return NO_CONNECTION
            reply = await self.reply(connection, wire)
            back, connection = connection, None  # if the pool fails, the call is not retried
            if not self.give(back):
                await asyncio.shield(self.pool.release(back))
        except BaseException as error:
            if connection is None:
                raise
            return await self.retry_through_client(error, connection, wire, calls, begun)
        return reply

    async def take(self) -> Any:
        """Take a connection that is free, open and has nothing to read; None if there is none."""
        pool = self.pool
        if self._is_new:
            self._enter_process()
        if self.is_changed():
            return None
        if not self._is_known or self._is_locked() or not pool._available_connections:
            return None
        connection = pool._available_connections.pop()
        pool._in_use_connections.add(connection)
        is_ready = False
        try:
            is_ready = connection.is_connected and not await getattr(connection, self._can_read)()
        except Exception as error:
            if not self._says_closed(error):
                raise
        finally:
            if not is_ready:
                await pool.release(connection)
        return connection if is_ready else None

    def give(self, connection: Any) -> bool:
        """Give a connection back to the pool; return False if only the pool itself can take it."""
        pool = self.pool
        is_renewed = getattr(connection, _RENEWED, None) or getattr(connection, _TO_RECONNECT, False)
        if is_renewed or self._is_locked() or connection not in pool._in_use_connections:
            return False
        pool._in_use_connections.remove(connection)
        pool._available_connections.append(connection)
        return True

    def _is_locked(self) -> bool:
        """Return whether a task is changing the pool; valkey-py has no lock for that."""
        lock = getattr(self.pool, "_lock", None)
        return lock is not None and lock.locked()

    async def reply(self, connection: Any, wire: Wire) -> Reply:
        """Send commands over a connection; return what `DirectClient.reply` does."""
        (packed, count), is_sent = wire, False
        if connection.is_connected and not connection.health_check_interval:
            try:
                connection._writer.writelines(packed)
                is_sent = not connection._writer.transport.get_write_buffer_size()
            except RuntimeError as error:  # uvloop raises it for a connection just closed
                raise self._closed[0](str(error)) from error
            packed = []
        if not is_sent:  # else the system has all bytes, and there is nothing to wait for
            await connection.send_packed_command(packed)
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
            reply: Reply = await connection.retry.call_with_retry(
                attempt, partial(fail, connection) if fail else disconnect
            )
        except BaseException as last:
            last.begun = begun  # type: ignore[attr-defined]
            await self._give_up(connection, last)
            raise
        finally:
            del error
        await self.pool.release(connection)
        return reply

    async def _give_up(self, connection: Any, error: BaseException) -> None:
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
