"""The public classes over asyncio clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, Unpack, cast

from bloomredis.drivers import kinds
from bloomredis.drivers.aio_filters import Filter
from bloomredis.drivers.aio_lifecycle import Adopting, Expiring
from bloomredis.drivers.binding import documented_as
from bloomredis.drivers.connections.clients import AsyncClient, AsyncClients
from bloomredis.drivers.connections.urls import addresses
from bloomredis.drivers.constructors import (
    CountingConstructor,
    PlainConstructor,
    RotatingConstructor,
    ScalingConstructor,
    ShardedConstructor,
)
from bloomredis.drivers.observing import observed
from bloomredis.drivers.queueing import AsyncQueueing
from bloomredis.errors import FilterMismatchError
from bloomredis.operations.kinds.counting import CountingOperations
from bloomredis.operations.kinds.partitioned import PartitionedOperations
from bloomredis.operations.kinds.plain import PlainOperations
from bloomredis.operations.kinds.rotating import RotatingOperations
from bloomredis.operations.kinds.scaling import ScalingOperations
from bloomredis.operations.options import (
    CountingParameters,
    I,
    PlainOptions,
    PlainParameters,
    RotatingParameters,
    ScalingParameters,
    Seconds,
    ShardedParameters,
)
from bloomredis.operations.whole.snapshot import LocalFilter
from bloomredis.stored.module.filter import other_layout


@documented_as(kinds.BloomFilter)
class BloomFilter(PlainConstructor[AsyncClient, I], Filter[I], AsyncQueueing[I], Expiring):
    """A Bloom filter in one key of a Redis or Valkey server."""

    _operations: PlainOperations | PartitionedOperations
    _stored_operations = PlainOperations
    _OPTIONS = frozenset(PlainOptions.__annotations__)

    def at(self, name: str, *, ttl: Seconds | None = None) -> Self:
        """Return the filter with another name in the same layout; nothing is sent."""
        return self._at(name, ttl)

    @classmethod
    def from_url(cls, url: str | Sequence[str], name: str, **parameters: Unpack[PlainParameters[I]]) -> Self:
        """Return a filter with its own client for the server at `url`; its first call connects."""
        return cls(addresses(url), name, **parameters)

    @classmethod
    async def open(cls, client: AsyncClients, name: str, **options: Unpack[PlainOptions[I]]) -> Self:
        """Open a stored filter; its parameters are read from the server."""
        try:
            return await super().open(client, name, **cast("Any", options))
        except FilterMismatchError as error:
            with other_layout(error) as layout:
                found = cls(client, name, layout=layout, **options)
                await found.reserve()
                return found

    @observed
    async def snapshot(self) -> LocalFilter[I]:
        """Return a copy of the filter in this process, which answers without the server."""
        return await self._run(self._operations.snapshot())


@documented_as(kinds.ScalingBloomFilter)
class ScalingBloomFilter(ScalingConstructor[AsyncClient, I], Filter[I], Expiring, Adopting[I]):
    """A Bloom filter that grows by itself, so that the number of items need not be known."""

    _stored_operations = ScalingOperations.from_server

    @classmethod
    def from_url(cls, url: str, name: str, **parameters: Unpack[ScalingParameters[I]]) -> Self:
        """Return a filter with its own client for the server at `url`: see `BloomFilter.from_url`."""
        return cls(addresses(url), name, **parameters)


@documented_as(kinds.RotatingBloomFilter)
class RotatingBloomFilter(RotatingConstructor[AsyncClient, I], Filter[I]):
    """A Bloom filter that forgets: an item is in it if it was seen within the last `window`."""

    _stored_operations = RotatingOperations.from_server

    @classmethod
    def from_url(cls, url: str, name: str, **parameters: Unpack[RotatingParameters[I]]) -> Self:
        """Return a filter with its own client for the server at `url`: see `BloomFilter.from_url`."""
        return cls(addresses(url), name, **parameters)


@documented_as(kinds.ShardedBloomFilter)
class ShardedBloomFilter(ShardedConstructor[AsyncClient, I], Filter[I], AsyncQueueing[I], Expiring):
    """A Bloom filter of any capacity, in shards that a cluster spreads over its nodes."""

    @classmethod
    def from_url(cls, url: str, name: str, **parameters: Unpack[ShardedParameters[I]]) -> Self:
        """Return a filter with its own client for the server at `url`: see `BloomFilter.from_url`."""
        return cls(addresses(url), name, **parameters)


@documented_as(kinds.CountingBloomFilter)
class CountingBloomFilter(CountingConstructor[AsyncClient, I], Filter[I], AsyncQueueing[I], Expiring):
    """A Bloom filter that items can be removed from: it counts how often each was added."""

    _operations: CountingOperations
    _stored_operations = CountingOperations

    @classmethod
    def from_url(cls, url: str, name: str, **parameters: Unpack[CountingParameters[I]]) -> Self:
        """Return a filter with its own client for the server at `url`: see `BloomFilter.from_url`."""
        return cls(addresses(url), name, **parameters)

    @observed
    async def remove(self, item: I, *, token: str | None = None) -> bool:
        """Remove an item once; True if it was in the filter."""
        return await self._run(self._operations.remove(item, token=token))
