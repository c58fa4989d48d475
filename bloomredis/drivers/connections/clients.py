"""Protocols of the clients of redis-py and valkey-py: the methods that the library uses."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

R = TypeVar("R")


class SyncClient(Protocol):
    """The methods of a client that the library uses."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send one command and return its reply."""

    def pipeline(self, *, transaction: bool) -> Any:
        """Return a pipeline, which sends several commands over one connection."""

    def __enter__(self) -> Any:
        """Enter the client; type checkers distinguish it from an asyncio client by this method."""


class AsyncClient(Protocol):
    """The methods of a client that the library uses."""

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send one command and return its reply."""

    def pipeline(self, *, transaction: bool) -> Any:
        """Return a pipeline, which sends several commands over one connection."""

    async def __aenter__(self) -> Any:
        """Enter the client; type checkers distinguish it from a synchronous client by this method."""
