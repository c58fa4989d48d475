"""Clients of redis-py and valkey-py, their pools and connections, as far as they are used.

The packages' own types say `Any` of what a command takes and replies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from bloomredis.protocol.steps import Command, Part, Reply

R = TypeVar("R")


class SyncClient(Protocol):
    """The methods of a client that are used."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send one command and return its reply."""

    def pipeline(self, *, transaction: bool) -> Any:
        """Return a pipeline, which sends several commands over one connection."""

    def __enter__(self) -> Any:
        """Enter the client; here for type checkers, which tell it from one of asyncio by this."""


SyncClients = SyncClient | Sequence[SyncClient]
"""A client, or one of each of several servers."""


class AsyncClient(Protocol):
    """The methods of a client that are used."""

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send one command and return its reply."""

    def pipeline(self, *, transaction: bool) -> Any:
        """Return a pipeline, which sends several commands over one connection."""

    async def __aenter__(self) -> Any:
        """Enter the client; here for type checkers, which tell it from a synchronous one by this."""


AsyncClients = AsyncClient | Sequence[AsyncClient]
"""A client, or one of each of several servers."""


class Packing(Protocol):
    """A connection that packs commands."""

    def pack_command(self, *command: Part) -> list[bytes]:
        """Return the bytes of a command."""

    def pack_commands(self, commands: Iterable[Command]) -> list[bytes]:
        """Return the bytes of several commands."""


class Parser(Protocol):
    """The reader of a synchronous connection."""

    def can_read(self, timeout: float) -> bool:
        """Return whether there is something to read."""


class Retry(Protocol):
    """The retry policy of a synchronous connection."""

    def call_with_retry(self, do: Callable[[], R], fail: Callable[[Exception], object]) -> R:
        """Call `do`, again after an error that may pass and `fail(error)`."""


class Connection(Packing, Protocol):
    """A connection of a synchronous client."""

    retry: Retry
    _sock: object
    _parser: Parser

    def send_packed_command(self, packed: list[bytes]) -> None:
        """Send what is packed."""

    def read_response(self, *, disable_decoding: bool) -> Reply:
        """Return the next reply; raise an error that the server replies."""

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
        """Call `do`, again after an error that may pass and `fail(error)`."""


class Transport(Protocol):
    """The transport of an asyncio connection."""

    def get_write_buffer_size(self) -> int:
        """Return how many bytes the system has not taken yet."""


class Stream(Protocol):
    """The writer of an asyncio connection."""

    transport: Transport

    def writelines(self, data: Iterable[bytes]) -> None:
        """Write bytes."""


class AsyncConnection(Packing, Protocol):
    """A connection of an asyncio client."""

    retry: AsyncRetry
    is_connected: bool
    health_check_interval: float
    _writer: Stream

    async def send_packed_command(self, packed: list[bytes]) -> None:
        """Send what is packed."""

    async def read_response(self, *, disable_decoding: bool) -> Reply:
        """Return the next reply; raise an error that the server replies."""

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
