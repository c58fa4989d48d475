"""Clients of a sharded filter for which the server of some shards is away, like a node of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import redis

from bloomredis.protocol.steps import key_of
from bloomredis.stored.shards import record as shard_record
from tests.support.sharding import OPTIONS

Command = tuple[Any, ...]

_RECORD = shard_record.plan_record(**OPTIONS)


def shard_of(item: str) -> int:
    """Return the number of an item's shard, in a filter with `OPTIONS`."""
    return _RECORD.number(item.encode())


class ShardsAway:
    """A client that executes no command about the shards that are away.

    :ivar away: the numbers of these shards.
    """

    def __init__(self, client: Any, away: set[int] | None = None) -> None:
        self.client = client
        self.away = set[int]() if away is None else away

    def execute_command(self, *command: Any, **options: Any) -> Any:
        error = self.error_of(command)
        if error is not None:
            raise error
        return self.client.execute_command(*command, **options)

    def pipeline(self, *, transaction: bool) -> Any:
        return _Pipeline(self, self.client.pipeline(transaction=transaction))

    def error_of(self, command: Command) -> Exception | None:
        """Return the error of a command; None if it is executed."""
        key = key_of(command)
        _, colon, rest = (key if isinstance(key, bytes) else str(key).encode()).partition(b":")
        if colon and int(rest.partition(b":")[0]) in self.away:
            return redis.ConnectionError("Connection refused.")
        return None


class AsyncShardsAway(ShardsAway):
    """The same over an asyncio client."""

    async def execute_command(self, *command: Any, **options: Any) -> Any:
        return await super().execute_command(*command, **options)

    def pipeline(self, *, transaction: bool) -> Any:
        return _AsyncPipeline(self, self.client.pipeline(transaction=transaction))


class _Pipeline:
    """A pipeline in which each command has its own server."""

    def __init__(self, of: ShardsAway, pipe: Any) -> None:
        self._of, self._pipe = of, pipe
        self._errors: list[Exception | None] = []

    def execute_command(self, *command: Any, **options: Any) -> None:
        error = self._of.error_of(command)
        self._errors.append(error)
        if error is None:
            self._pipe.execute_command(*command, **options)

    def execute(self, *, raise_on_error: bool) -> Any:
        return [*self._replies(self._pipe.execute(raise_on_error=raise_on_error))]

    def _replies(self, replies: Iterable[Any]) -> Iterator[Any]:
        rest = iter(replies)
        return (next(rest) if error is None else error for error in self._errors)


class _AsyncPipeline(_Pipeline):
    """The same over a pipeline of an asyncio client."""

    async def execute(self, *, raise_on_error: bool) -> Any:
        return [*self._replies(await self._pipe.execute(raise_on_error=raise_on_error))]
