"""Protocols of the clients, pools and connections of redis-py and valkey-py: the methods used here.

The packages' own types say `Any` for the arguments and replies of commands.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from bloomredis.protocol.steps import Reply

R = TypeVar("R")


class SyncClient(Protocol):
    """The methods of a client that the library uses."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send one command and return its reply."""

    def pipeline(self, *, transaction: bool) -> Any:
        """Return a pipeline, which sends several commands over one connection."""

    def __enter__(self) -> Any:
        """Enter the client; type checkers distinguish it from an asyncio client by this method."""


SyncClients = SyncClient | Sequence[SyncClient]
"""A client, or a client for each of several servers."""


class AsyncClient(Protocol):
    """The methods of a client that the library uses."""

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send one command and return its reply."""

    def pipeline(self, *, transaction: bool) -> Any:
        """Return a pipeline, which sends several commands over one connection."""

    async def __aenter__(self) -> Any:
        """Enter the client; type checkers distinguish it from a synchronous client by this method."""


AsyncClients = AsyncClient | Sequence[AsyncClient]
"""A client, or a client for each of several servers."""


class Parser(Protocol):
    """The reader of a synchronous connection."""

    def can_read(self, timeout: float) -> bool:
        """Return whether data can be read."""


class Retry(Protocol):
    """The retry policy of a synchronous connection."""

    def call_with_retry(self, do: Callable[[], R], fail: Callable[[Exception], object]) -> R:
        """Call `do`; after a transient error call `fail(error)`, and then `do` again."""


class Connection(Protocol):
    """A connection of a synchronous client."""

    retry: Retry
    _sock: object
    _parser: Parser

    def send_packed_command(self, packed: list[bytes]) -> None:
        """Send packed commands."""

    def read_response(self, *, disable_decoding: bool) -> Reply:
        """Return the next reply; raise an error reply."""

    def disconnect(self) -> None:
        """Close the connection."""


class Pool(Protocol):
    """The connections of a synchronous client."""

    connection_kwargs: Mapping[str, object]
    _lock: AbstractContextManager[object]
    _available_connections: list[Connection]
    _in_use_connections: set[Connection]

    def get_connection(self, *asked: str) -> Connection:
        """Take a connection."""

    def release(self, connection: Connection) -> None:
        """Give a connection back."""


class AsyncRetry(Protocol):
    """The retry policy of an asyncio connection."""

    async def call_with_retry(
        self, do: Callable[[], Awaitable[R]], fail: Callable[[Exception], Awaitable[object]]
    ) -> R:
        """Call `do`; after a transient error call `fail(error)`, and then `do` again."""


class Transport(Protocol):
    """The transport of an asyncio connection."""

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that are not handed to the operating system yet."""


class Stream(Protocol):
    """The writer of an asyncio connection."""

    transport: Transport

    def writelines(self, data: Iterable[bytes]) -> None:
        """Write bytes."""


class AsyncConnection(Protocol):
    """A connection of an asyncio client."""

    retry: AsyncRetry
    is_connected: bool
    health_check_interval: float
    _writer: Stream

    async def send_packed_command(self, packed: list[bytes]) -> None:
        """Send packed commands."""

    async def read_response(self, *, disable_decoding: bool) -> Reply:
        """Return the next reply; raise an error reply."""

    async def disconnect(self, *, nowait: bool = False) -> None:
        """Close the connection."""


class AsyncPool(Protocol):
    """The connections of an asyncio client."""

    connection_kwargs: Mapping[str, object]
    connection_class: type
    _available_connections: list[AsyncConnection]
    _in_use_connections: set[AsyncConnection]

    async def get_connection(self, *asked: str) -> AsyncConnection:
        """Take a connection."""

    async def release(self, connection: AsyncConnection) -> None:
        """Give a connection back."""
