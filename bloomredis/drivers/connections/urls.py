"""URLs in the place of clients: a filter made with one connects when it is first used."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4
from weakref import WeakValueDictionary

from bloomredis.errors import ConnectionFailedError
from bloomredis.protocol.forks import renewed_after_fork

_private: Final[WeakValueDictionary[str, Any]] = WeakValueDictionary()
"""Clients of servers that no URL leads to, by the key of the address."""


@dataclass(frozen=True, slots=True)
class Address:
    """The URL of a server; it pickles with its user name and password."""

    url: str = field(repr=False)
    key: str = field(default_factory=lambda: uuid4().hex)
    process: int = field(default_factory=os.getpid)

    def client(self, *, is_asyncio: bool) -> Any:
        """Return a client; of a private server the one that its filters share.

        :raises ConnectionFailedError: the server is not there, or is that of another process.
        """
        from bloomredis.embedded import connecting  # noqa: PLC0415 - it loads redis-py

        connect = connecting.connect_asyncio if is_asyncio else connecting.connect
        if not connecting.is_private(self.url):
            return _connected(connect, self.url)
        client = _private.get(self.key)
        if client is None:
            if self.process != os.getpid():
                raise ConnectionFailedError(
                    f"the server of {self.url} is that of the process that made the filter: use it there "
                    "before a fork, or give embedded:///some/directory, which processes share"
                )
            client = _private[self.key] = _connected(connect, self.url)
        return client


def addresses(urls: str | Sequence[str]) -> Any:
    """Return an address in the place of a client, or of several.  Raises for a URL that no server has.

    It has the type of anything, as it is given to what takes a client.
    """
    from bloomredis.embedded import connecting  # noqa: PLC0415 - it loads redis-py

    if isinstance(urls, list | tuple):
        return [addresses(url) for url in urls]
    connecting.check(urls)  # type: ignore[arg-type]  # it refuses anything else
    return Address(urls)  # type: ignore[arg-type]  # a str by now


def is_address(client: object) -> bool:
    """Return True for an address, or a list of them."""
    return isinstance(client[0] if isinstance(client, list | tuple) and client else client, Address)


def connected(client: Any, *, is_asyncio: bool) -> Any:
    """Return the client of an address, or those of several."""
    if isinstance(client, Address):
        return client.client(is_asyncio=is_asyncio)
    return [each.client(is_asyncio=is_asyncio) for each in client]


def _connected(connect: Any, url: str) -> Any:
    try:
        return connect(url)
    except (ImportError, TypeError, ValueError):
        raise
    except Exception as error:  # that of redis-py, of a cluster whose map it reads
        raise ConnectionFailedError(str(error)) from error


class Connecting:
    """The lock under which filters connect."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin with a lock that nobody has: in a forked child its holder may be missing."""
        self.lock = threading.RLock()
        renewed_after_fork(self)


connecting: Final = Connecting()
