"""Clients that are exactly as redis-py or valkey-py made them: only their pools are used directly."""

from __future__ import annotations

import sys
from types import FunctionType, ModuleType
from typing import Any, Final

_HOMES: Final = {
    "redis.client": ("Redis", "redis.connection", "redis.exceptions"),
    "redis.asyncio.client": ("Redis", "redis.asyncio.connection", "redis.exceptions"),
    "valkey.client": ("Valkey", "valkey.connection", "valkey.exceptions"),
    "valkey.asyncio.client": ("Valkey", "valkey.asyncio.connection", "valkey.exceptions"),
}
"""For each module of clients: the name of the class, the modules of its connections and of its errors."""

_PATH: Final = (
    *("execute_command", "_execute_command", "_send_command_parse_response", "parse_response"),
    *("pipeline", "initialize"),
)
"""Methods of a client that a call passes through, in any version."""

_SENDING: Final = ("send_command", "send_packed_command", "read_response")
"""Methods of a connection that instrumentation may replace."""

_OF_POOL: Final = ("get_connection", "release")
"""Methods of a pool that every version has."""

_SINGLE: Final = ("connection", "single_connection_client", "_single_connection_client")
"""Attributes of a client that has a single connection and does not use its pool."""

_STATE: Final = frozenset(("connection_pool", "response_callbacks"))
"""Attributes of a client that are read before each call."""

_UNKNOWN: Final = "this version of the package is not known"


def why_not(client: object) -> str | None:
    """Return why calls must go through the client's own methods; None if they need not."""
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
    if pool.connection_kwargs.get("command_packer") is not None:
        return "the client packs commands in a way of its own"
    return None if all(callable(getattr(pool, each, None)) for each in _OF_POOL) else _UNKNOWN


def errors_of(client: object) -> ModuleType:
    """Return the module of the errors of a client's package."""
    return sys.modules[_HOMES[_home(client)][2]]


def is_asyncio(client: object) -> bool:
    """Return whether a client that `why_not` accepts is an asyncio client."""
    return "asyncio" in _home(client)


def _home(client: object) -> str:
    """Return the module of the package's class that a client is an instance of; "" if there is none."""
    for base in type(client).__mro__:
        if base.__module__ in _HOMES and base.__name__ == _HOMES[base.__module__][0]:
            return base.__module__
    return ""


def _is_own(method: object, home: str) -> bool:
    """Return whether a method is the package's own, not of a subclass or a wrapper."""
    # isinstance() would accept a wrapper that claims the class of the function.
    return type(method) is FunctionType and method.__globals__ is vars(sys.modules[home])
