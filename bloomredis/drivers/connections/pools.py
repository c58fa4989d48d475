"""The inside of the clients and connection pools of redis-py and valkey-py.

The only module that knows it.  Where a client is not exactly as expected nothing of it is used (`why_not`),
and a test runs with every version that is supported, and with the newest before its release.  `_PRIVATE`
lists what it calls by a private name.  A version without these is used by the public methods of its pool
(`get_connection`, `release`) and of its connections (`send_packed_command`, `read_response`): that takes
longer, and is logged once.

A connection is taken from the pool's list of those that are free and put back there under the pool's own
lock, so that the pool knows of every connection at any time: its limit, `close()`, `disconnect()`,
re-authentication, forks and other users of the client see no difference.  A connection is used only if it is
open and nothing can be read from it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from functools import cache, partial
from types import FunctionType
from typing import Any, Final, Literal, NamedTuple, TypeVar
from weakref import WeakSet

from bloomredis.drivers.connections.clients import AsyncConnection, AsyncPool, Connection, Packing, Pool
from bloomredis.protocol.forks import renewed_after_fork
from bloomredis.protocol.steps import Command

R = TypeVar("R")
W = TypeVar("W")

SCRIPT: Final = "EVALSHA"
DIRECT: Final = frozenset((SCRIPT, "BF.MEXISTS"))
"""The commands that are sent without the client, which has nothing to do with their replies."""

_HOMES: Final = {
    "redis.client": ("Redis", "redis.connection", "redis.exceptions"),
    "redis.asyncio.client": ("Redis", "redis.asyncio.connection", "redis.exceptions"),
    "valkey.client": ("Valkey", "valkey.connection", "valkey.exceptions"),
    "valkey.asyncio.client": ("Valkey", "valkey.asyncio.connection", "valkey.exceptions"),
}
"""Modules of the clients: the name of the class, the modules of its connections and of its errors."""

_PATH: Final = (
    *("execute_command", "_execute_command", "_send_command_parse_response", "parse_response"),
    *("pipeline", "initialize"),
)
"""Methods of a client that a call passes through, of one version or another."""

_SENDING: Final = ("send_command", "send_packed_command", "read_response")
"""Methods of a connection that instrumentation replaces."""

_OF_POOL: Final = ("get_connection", "release")
"""Methods of a pool that every version has."""

_SINGLE: Final = ("connection", "single_connection_client", "_single_connection_client")
"""Attributes that say that a client has one connection and no use for its pool."""

_STATE: Final = frozenset(("connection_pool", "response_callbacks"))
"""Attributes that are looked at before each call."""


class _Private(NamedTuple):
    """Names of private parts without which the short way is not taken."""

    of_pool: Sequence[str]
    of_connection: Sequence[str]


_LISTS: Final = ("_available_connections", "_in_use_connections")
_PRIVATE: Final = {
    False: _Private(of_pool=(*_LISTS, "_lock"), of_connection=("_sock", "_parser")),
    True: _Private(of_pool=_LISTS, of_connection=("_writer",)),
}
"""Those of synchronous clients and of asyncio clients.

Others are looked at only where a version has them: `_lock` of an asyncio pool, `_checkpid`, the two names
that follow, and what redis-py's metrics are kept in.
"""

_RENEWED: Final = "_re_auth_token"
_TO_RECONNECT: Final = "_should_reconnect"
"""Attributes of a connection that the pool has to do something with before it is used again."""


class _Unsent(Enum):
    NO_CONNECTION = 0


NO_CONNECTION: Final = _Unsent.NO_CONNECTION
"""In place of a reply: no connection was free, and nothing has been sent."""
NoConnection = Literal[_Unsent.NO_CONNECTION]

_UNKNOWN: Final = "this version of the package is not known"

_log = logging.getLogger("bloomredis")


def why_not(client: object) -> str | None:
    """Return the reason why calls have to go through a client's own methods, None if they need not."""
    home, kind, state = _home(client), type(client), vars(client)
    if not home:
        return f"{kind.__name__} is no redis.Redis or valkey.Valkey"
    for name in _PATH:
        method = getattr(kind, name, None)
        if name in state or (method is not None and not _is_own(method, home)):
            return f"{name} of this {kind.__name__} is not the package's own"
    if any(state.get(each) for each in _SINGLE):
        return "the client has a single connection"
    if not state.keys() >= _STATE or not isinstance(state["response_callbacks"], dict):
        return _UNKNOWN
    return _why_not_from(state["connection_pool"], _HOMES[home][1])


def _why_not_from(pool: Any, home: str) -> str | None:
    if type(pool) is not sys.modules[home].ConnectionPool:
        return f"{type(pool).__name__} is no plain ConnectionPool"
    kind = pool.connection_class
    if kind.__module__ != home or not all(_is_own(getattr(kind, name, None), home) for name in _SENDING):
        return f"{kind.__name__} is no connection class of the package, or was changed"
    if getattr(pool, "cache", None) is not None:
        return "the client has a cache of its own"
    return None if all(callable(getattr(pool, each, None)) for each in _OF_POOL) else _UNKNOWN


def is_asyncio(client: object) -> bool:
    """Return whether a client that `why_not` accepts is an asyncio client."""
    return "asyncio" in _home(client)


def _home(client: object) -> str:
    """Return the module of the class that a client is an instance of, "" for that of no single server."""
    for base in type(client).__mro__:
        if base.__module__ in _HOMES and base.__name__ == _HOMES[base.__module__][0]:
            return base.__module__
    return ""


def _is_own(method: object, home: str) -> bool:
    """Return whether a method is that of the package: of no subclass and no wrapper."""
    # isinstance() would believe a wrapper, whose class may be that of what it wraps.
    return type(method) is FunctionType and method.__globals__ is vars(sys.modules[home])


def _is_known(pool: object, private: _Private) -> bool:
    free, used = (getattr(pool, name, None) for name in _LISTS)
    is_known = isinstance(free, list) and isinstance(used, set | WeakSet)
    return is_known and all(hasattr(pool, name) for name in private.of_pool)


@cache
def _tell_unknown(package: str) -> None:
    """Log once what it costs that a version's private parts have other names."""
    _log.warning(
        "this version of %s keeps its connections in another way than those before: calls take its pool's "
        "own methods, which is slower by some microseconds each; a newer bloomredis may know it",
        package,
    )


def _may_be_called(method: Callable[..., object]) -> bool:
    """Return whether a method can be called without arguments."""
    try:
        inspect.signature(method).bind()
    except TypeError:
        return False
    return True


class _PoolAccess:
    """The parts that both kinds of clients have in common."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.pool = client.connection_pool
        errors = sys.modules[_HOMES[_home(client)][2]]
        self.refusal: type[Exception] = errors.ResponseError
        self._closed = (errors.ConnectionError, AttributeError, TypeError, ValueError)
        self._kind = type(client)
        self._execute = type(client).execute_command
        self._state = vars(client)
        self._private = _PRIVATE[is_asyncio(client)]
        self._is_known = _is_known(self.pool, self._private)
        wants_command = not _may_be_called(self.pool.get_connection)
        self._asked = (SCRIPT,) if wants_command else ()
        self._is_new = self._is_known  # in this process
        if not self._is_known:
            _tell_unknown(type(self.pool).__module__.partition(".")[0])
        renewed_after_fork(self)
        self._metrics = sys.modules.get("redis.observability.providers")
        self.has_packer = self.pool.connection_kwargs.get("command_packer") is not None
        # Where hiredis is, the package has loaded it.
        hiredis = None if self.has_packer else sys.modules.get("hiredis")
        self._pack: Callable[[Command], bytes] | None = getattr(hiredis, "pack_command", None)

    def packed(self, connection: Packing, command: Command) -> list[bytes]:
        """Return the bytes of a command."""
        if self._pack is None:
            return connection.pack_command(*command)
        return [self._pack(command)]

    def all_packed(self, connection: Packing, commands: Sequence[Command]) -> list[bytes]:
        """Return the bytes of several commands."""
        if self._pack is None:
            return connection.pack_commands(commands)
        return [b"".join(map(self._pack, commands))]

    def is_changed(self) -> bool:
        """Return whether the client has got a wrapper, a callback, metrics or another pool since."""
        state = self._state
        if self._kind.execute_command is not self._execute or "execute_command" in state:
            return True
        # The client's dict folds case first, which takes five times as long.
        if dict.__contains__(state["response_callbacks"], SCRIPT):
            return True
        if state["connection_pool"] is not self.pool:
            return True
        observed = getattr(self._metrics, "_observability_instance", None)
        return observed is not None and getattr(observed, "_provider_manager", None) is not None

    def _says_closed(self, error: BaseException) -> bool:
        """Return whether an error comes from a connection that is closed, and not from a signal handler."""
        return isinstance(error, self._closed) or getattr(error, "errno", None) is not None

    def renew(self) -> None:
        """Be new in a forked child."""
        self._is_new = self._is_known

    def _enter_process(self) -> None:
        """Let the pool of a forked child drop its parent's connections; look at the first that is free."""
        check = getattr(self.pool, "_checkpid", None)  # not in newer pools for asyncio, which are not forked
        if check is not None:
            check()
        for connection in self.pool._available_connections[:1]:
            self._is_new = False
            self._is_known = all(hasattr(connection, name) for name in self._private.of_connection)
            if not self._is_known:
                _tell_unknown(type(self.pool).__module__.partition(".")[0])


class PoolAccess(_PoolAccess):
    """A synchronous client and the inside of its pool."""

    pool: Pool

    def use(
        self,
        exchange: Callable[[Connection, W], R],
        what: W,
        after: Callable[[BaseException, Connection, Callable[[], R]], R],
    ) -> R | NoConnection:
        """Return `exchange(connection, what)` over a free connection; `NO_CONNECTION` if there is none.

        After an error `after(error, connection, again)` returns the reply or raises, and gives it back.
        """
        connection = None
        try:
            connection = self.take()
            if connection is None:
                return NO_CONNECTION
            reply = exchange(connection, what)
            pool = self.pool
            is_renewed = getattr(connection, _RENEWED, None) or getattr(connection, _TO_RECONNECT, False)
            if not is_renewed and self._is_known:
                with pool._lock:
                    free, used = pool._available_connections, pool._in_use_connections
                    if connection in used:  # in no child that was forked meanwhile
                        back = connection
                        free[len(free) :], connection = (back,), None  # in one step for a signal handler
                        used.remove(back)
            if connection is not None:
                back, connection = connection, None
                pool.release(back)
        except BaseException as error:
            if connection is None:
                raise
            return after(error, connection, partial(exchange, connection, what))
        return reply

    def take(self) -> Connection | None:
        """Take a connection that is free, open and silent; None if the client has to find one."""
        if self.is_changed():
            return None
        pool, taken = self.pool, None
        if self._is_new:
            self._enter_process()
        if not self._is_known:
            return pool.get_connection(*self._asked)
        try:
            with pool._lock:
                free = pool._available_connections
                if free:
                    pool._in_use_connections.add(free[-1])
                    taken, free[-1:] = free[-1], ()  # in one step for a signal handler
            if taken is None or (taken._sock is not None and not taken._parser.can_read(0)):
                return taken
            refused, taken = taken, None
            pool.release(refused)
        except BaseException as error:
            if taken is not None:
                pool.release(taken)
            if not self._says_closed(error):
                raise
        return None


class AsyncPoolAccess(_PoolAccess):
    """An asyncio client and the inside of its pool, which is used by one thread."""

    pool: AsyncPool

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        later = hasattr(self.pool.connection_class, "can_read")
        self._can_read = "can_read" if later else "can_read_destructive"

    def _is_locked(self) -> bool:
        """Return whether a task is changing the pool; valkey-py needs no lock for that."""
        lock = getattr(self.pool, "_lock", None)
        return lock is not None and lock.locked()

    async def use(
        self,
        exchange: Callable[[AsyncConnection, W], Awaitable[R]],
        what: W,
        after: Callable[[BaseException, AsyncConnection, Callable[[], Awaitable[R]]], Awaitable[R]],
    ) -> R | NoConnection:
        """Return the reply as `PoolAccess.use` does."""
        connection = None
        try:
            connection = await self.take()
            if connection is None:
                return NO_CONNECTION
            reply = await exchange(connection, what)
            is_renewed = getattr(connection, _RENEWED, None) or getattr(connection, _TO_RECONNECT, False)
            pool = self.pool
            back, connection = connection, None  # an error of the pool's is not one of the call's
            known = self._is_known and not is_renewed and not self._is_locked()
            if known and back in pool._in_use_connections:
                pool._in_use_connections.remove(back)
                pool._available_connections.append(back)
            else:
                await asyncio.shield(pool.release(back))
        except BaseException as error:
            if connection is None:
                raise
            return await after(error, connection, partial(exchange, connection, what))
        return reply

    async def take(self) -> AsyncConnection | None:
        """Take a connection that is free, open and silent; None if the client has to find one."""
        pool = self.pool
        if self._is_new:
            self._enter_process()
        if self.is_changed():
            return None
        if not self._is_known:
            return await pool.get_connection(*self._asked)
        if self._is_locked() or not pool._available_connections:
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

    async def send(self, connection: AsyncConnection, packed: list[bytes]) -> None:
        """Send what is packed."""
        if self._is_known and connection.is_connected and not connection.health_check_interval:
            try:
                connection._writer.writelines(packed)
                if not connection._writer.transport.get_write_buffer_size():
                    return  # the system has it all: there is nothing to wait for, or to limit the time of
            except RuntimeError as error:  # uvloop's, of a connection that has just been closed
                raise self._closed[0](str(error)) from error
            packed = []
        await connection.send_packed_command(packed)
