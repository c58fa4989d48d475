"""Calls sent over pooled connections directly, bypassing the client's per-call overhead.

That overhead is larger than the call itself: metrics, events and wrappers whenever a connection is taken from
the pool and given back.  Here a connection is taken from the pool's list of free connections and put back
there under the pool's own lock (`take`, `give`).  So the pool knows every connection at any time: its limit,
`close()`, `disconnect()`, re-authentication, forks and other users of the client see no difference.  If no
connection is free, or the server has closed the free one, the client itself makes the call.

The connection still reconnects, checks its health, and handles push messages and TLS by itself.  After a
failure the client's retry policy decides, and the failed attempt counts.  A connection over which a reply may
still come is closed before anything else happens.

Only this folder knows the internals of redis-py and valkey-py.  If a client is not exactly as expected, they
are not used (`is_plain`).  A test runs with every supported version, and with the newest one before its
release.  `_PRIVATE` lists the private names.  With a version that lacks one of them, the client itself makes
all calls, which is logged once.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, Literal, NamedTuple
from weakref import WeakSet

from bloomredis.drivers.connections.plain import errors_of, is_asyncio
from bloomredis.protocol.forks import register_after_fork
from bloomredis.protocol.judging import judge
from bloomredis.protocol.steps import Call, Wire

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


def knows(client: Any) -> bool:
    """Return whether the private names of a client's pool are known; tell once that they are not."""
    pool, names = client.connection_pool, _PRIVATE[is_asyncio(client)].of_pool
    free, used = (getattr(pool, name, None) for name in _LISTS)
    if isinstance(free, list) and isinstance(used, set | WeakSet) and all(hasattr(pool, n) for n in names):
        return True
    _tell_unknown(pool)
    return False


def _tell_unknown(pool: object) -> None:
    """Log once that a version's private names are unknown, and what that costs."""
    if (package := type(pool).__module__.partition(".")[0]) not in _unknown:
        _unknown.add(package)
        _log.warning(
            "this version of %s keeps its connections in another way than earlier ones: calls use the "
            "client's own methods, which take longer; a newer bloomredis may know this version",
            package,
        )


class _Base:
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


class Pooled(_Base):
    """A pool of synchronous connections."""

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


class AsyncPooled(_Base):
    """A pool of asyncio connections, which one thread uses."""

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        later = hasattr(self.pool.connection_class, "can_read")
        self._can_read = "can_read" if later else "can_read_destructive"
        self._lock = getattr(self.pool, "_lock", None) or asyncio.Lock()  # valkey-py has none

    async def take(self) -> list[Any]:
        """Take a connection that is free, open and has nothing to read; an empty list if there is none."""
        pool = self.pool
        if self._is_new:
            self._enter_process()
        if self.is_changed():
            return []
        if not self._is_known or self._lock.locked() or not pool._available_connections:
            return []
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
        return [connection] if is_ready else []

    def give(self, connection: Any) -> bool:
        """Give a connection back to the pool; return False if only the pool itself can take it."""
        pool = self.pool
        is_renewed = getattr(connection, _RENEWED, None) or getattr(connection, _TO_RECONNECT, False)
        if is_renewed or self._lock.locked() or connection not in pool._in_use_connections:
            return False
        pool._in_use_connections.remove(connection)
        pool._available_connections.append(connection)
        return True


def record(calls: Sequence[Call], error: BaseException) -> None:
    """Record a failed attempt; it may have executed the first of several calls, whatever the error says."""
    for call in calls:
        if len(calls) == 1:
            judge(call, error)
        else:
            call.lose(error)


def joined(calls: Sequence[Call]) -> Wire | None:
    """Return the bytes of all calls and the number of replies; None if the client must make one of them."""
    wires = [call.wire() for call in calls]
    sent = [each for each in wires if each is not None]
    if len(sent) < len(wires):
        return None
    return [b"".join([piece for packed, _ in sent for piece in packed])], sum([count for _, count in sent])
