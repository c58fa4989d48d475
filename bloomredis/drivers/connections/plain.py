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


def is_plain(client: object) -> bool:
    """Return whether calls may bypass a client's own methods, since nothing could notice."""
    home = _home(client)
    if not home:
        return False
    kind, state = type(client), vars(client)
    methods = [getattr(kind, name) for name in _PATH if hasattr(kind, name)]
    is_own = state.keys().isdisjoint(_PATH) and all(_is_own(method, home) for method in methods)
    is_single = any(state.get(each) for each in _SINGLE)
    is_known = state.keys() >= _STATE and isinstance(state["response_callbacks"], dict)
    return is_own and not is_single and is_known and _is_plain_pool(state["connection_pool"], _HOMES[home][1])


def _is_plain_pool(pool: Any, home: str) -> bool:
    """Return whether a pool and its connections are the package's own, without a cache or another packer."""
    if type(pool) is not sys.modules[home].ConnectionPool:
        return False
    kind, packer = pool.connection_class, pool.connection_kwargs.get("command_packer")
    sends_itself = all(_is_own(getattr(kind, name, None), home) for name in _SENDING)
    has_cache = getattr(pool, "cache", None) is not None
    is_known = all(callable(getattr(pool, each, None)) for each in _OF_POOL)
    return kind.__module__ == home and sends_itself and not has_cache and packer is None and is_known


def errors_of(client: object) -> ModuleType:
    """Return the module of the errors of a client's package."""
    return sys.modules[_HOMES[_home(client)][2]]


def is_asyncio(client: object) -> bool:
    """Return whether a client that `is_plain` accepts is an asyncio client."""
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
