"""Addresses: URLs in the place of clients, for filters that connect at their first call."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4
from weakref import WeakValueDictionary

from bloomredis.errors import ConnectionFailedError
from bloomredis.later import later
from bloomredis.protocol.forks import register_after_fork
from bloomredis.protocol.replies import failed

if TYPE_CHECKING:
    from bloomredis.embedded import connecting as embedded
else:
    embedded = later("bloomredis.embedded", "connecting")  # this imports redis-py

_private: Final[WeakValueDictionary[str, Any]] = WeakValueDictionary()
"""Clients of private servers, which have no URL, by the key of the address."""


@dataclass(frozen=True, slots=True)
class ServerUrl:
    """The URL of a server; it pickles with its user name and password."""

    url: str = field(repr=False)
    key: str = field(default_factory=lambda: uuid4().hex)
    process: int = field(default_factory=os.getpid)

    def client(self, *, is_asyncio: bool) -> Any:
        """Return a client; the filters of a private server share one.

        :raises ConnectionFailedError: the server cannot be reached, or is private to another process.
        """
        if not embedded.is_private(self.url):
            return _connected(self.url, is_asyncio=is_asyncio)
        client = _private.get(self.key)
        if client is not None and is_asyncio:
            return _sibling(client)
        if client is None:
            if self.process != os.getpid():
                raise ConnectionFailedError(
                    f"the server of {self.url} is private to the process that made the filter",
                    advice="use the filter in that process before it forks, or give "
                    "embedded:///some/directory, which processes share",
                    transient=False,
                )
            client = _private[self.key] = _connected(self.url, is_asyncio=is_asyncio)
        return client


def _sibling(client: Any) -> Any:
    """Return another asyncio client of the same private server, for another event loop."""
    pool = client.connection_pool
    own = type(pool)(connection_class=pool.connection_class, **pool.connection_kwargs)
    own.first = client  # keeps the client, with which the server ends
    return type(client)(connection_pool=own)


def address(url: str) -> Any:
    """Return the address of a URL.  Raises `ValueError` or `TypeError` for a bad URL.

    The return type is `Any`, since an address is passed where a client is expected.
    """
    embedded.check_url(url)
    return ServerUrl(url)


def is_address(client: object) -> bool:
    """Return True for an address."""
    return isinstance(client, ServerUrl)


def _connected(url: str, *, is_asyncio: bool) -> Any:
    try:
        return embedded.make_client(url, {}, is_asyncio=is_asyncio)
    except (ImportError, TypeError, ValueError):
        raise
    except Exception as error:  # redis-py reads the slot map of a cluster at once, which may fail
        raise failed(str(error)) from error


class Connecting:
    """The lock that filters hold while they connect."""

    def __init__(self) -> None:
        self.after_fork()

    def after_fork(self) -> None:
        """Begin with a free lock: a forked child may lack the thread that held it."""
        self.lock = threading.RLock()
        register_after_fork(self)


connecting: Final = Connecting()
