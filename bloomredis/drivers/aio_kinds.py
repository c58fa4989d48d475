"""The other public classes over asyncio clients."""

from __future__ import annotations

from typing import Any, ClassVar, Self, Unpack

from bloomredis.drivers import kinds
from bloomredis.drivers.aio import AsyncClient, AsyncClients
from bloomredis.drivers.aio_filters import Expiring, Filter, Queueing
from bloomredis.drivers.binding import constructor, documented_as
from bloomredis.operations.counting import CountingOperations
from bloomredis.operations.options import (
    CountingParameters,
    I,
    RotatingParameters,
    ScalingParameters,
    ShardedParameters,
)
from bloomredis.operations.rotating import RotatingOperations
from bloomredis.operations.scaling import ScalingOperations
from bloomredis.operations.sharded import ShardedOperations


@documented_as(kinds.ScalingBloomFilter)
class ScalingBloomFilter(Filter[I], Expiring):
    """A Bloom filter that grows by itself, so that the number of items need not be known."""

    _operations_class: ClassVar[Any] = ScalingOperations

    @constructor(ScalingOperations.__init__)
    def __init__(self, client: AsyncClient, name: str, **parameters: Unpack[ScalingParameters[I]]) -> None:
        super().__init__(client, ScalingOperations(name, **parameters))


@documented_as(kinds.RotatingBloomFilter)
class RotatingBloomFilter(Filter[I]):
    """A Bloom filter that forgets: it says whether an item was seen within the last `window`."""

    _operations_class: ClassVar[Any] = RotatingOperations

    @constructor(RotatingOperations.__init__)
    def __init__(self, client: AsyncClient, name: str, **parameters: Unpack[RotatingParameters[I]]) -> None:
        super().__init__(client, RotatingOperations(name, **parameters))


@documented_as(kinds.ShardedBloomFilter)
class ShardedBloomFilter(Filter[I], Queueing[I], Expiring):
    """A Bloom filter of any capacity, in shards that are spread over a cluster or a list of servers."""

    _operations_class: ClassVar[Any] = ShardedOperations

    @constructor(ShardedOperations.__init__)
    def __init__(self, client: AsyncClients, name: str, **parameters: Unpack[ShardedParameters[I]]) -> None:
        operations = ShardedOperations(name, **parameters)
        operations.over(len(client) if isinstance(client, list | tuple) else 1)
        super().__init__(client, operations)

    @classmethod
    @documented_as(kinds.ShardedBloomFilter.open)
    async def open(cls, client: AsyncClients, name: str) -> Self:
        """Return a filter whose parameters are read from the server."""
        opened = cls(client, name)
        await opened.reserve()
        return opened


@documented_as(kinds.CountingBloomFilter)
class CountingBloomFilter(Filter[I], Queueing[I], Expiring):
    """A Bloom filter that items can be removed from: it counts how often each was added."""

    _operations: CountingOperations
    _operations_class: ClassVar[Any] = CountingOperations

    @constructor(CountingOperations.__init__)
    def __init__(self, client: AsyncClient, name: str, **parameters: Unpack[CountingParameters[I]]) -> None:
        super().__init__(client, CountingOperations(name, **parameters))

    @documented_as(kinds.CountingBloomFilter.remove)
    async def remove(self, item: I, *, token: str | None = None) -> bool:
        """Take an item out once; True if it was in."""
        return await self._run(self._operations.remove(item, token=token))
