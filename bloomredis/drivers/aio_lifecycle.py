"""Filters as a whole, over asyncio clients: saved, restored, copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Self

from bloomredis import arguments
from bloomredis.drivers import lifecycle
from bloomredis.drivers.aio import AsyncClient, drive
from bloomredis.drivers.binding import Bound, documented_as
from bloomredis.operations import files, transfer
from bloomredis.operations.files import File
from bloomredis.operations.options import I
from bloomredis.operations.transfer import Progress


@documented_as(lifecycle.Portable)
class Portable(Bound[AsyncClient], Generic[I]):
    """Filters that can be saved and copied."""

    async def save(self, file: File, *, progress: Progress | None = None) -> None:
        """Write the filter to a file, with a checksum, in constant memory."""
        stored = transfer.stored_of(self._operations)
        with files.written(file) as opened:
            await drive(self._client, transfer.save(stored, opened, progress))

    @classmethod
    async def restore(
        cls,
        client: AsyncClient | Sequence[AsyncClient],
        name: str,
        file: File,
        *,
        encode: Callable[[I], bytes] | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Put a saved filter under a name that is free; return it."""
        made: Self = cls._from_server(client, arguments.name(name), encode=encode)
        own = made._operations
        with files.read(file) as opened:
            steps = transfer.restore(own.name, cls.__name__, own.servers, opened, progress)
            await drive(made._client, steps)
        await drive(made._client, own.reserve())
        return made

    async def copy(
        self, client: AsyncClient | Sequence[AsyncClient], name: str, *, progress: Progress | None = None
    ) -> Self:
        """Copy the filter to a name that is free, on any server; return the copy."""
        stored = transfer.stored_of(self._operations)
        encode = self._operations.options.encode
        made: Self = self._from_server(client, arguments.name(name), encode=encode)
        both: Any = [self._client, made._client]
        await drive(both, transfer.copy(stored, name, made._operations.servers, progress))
        await drive(made._client, made._operations.reserve())
        return made
