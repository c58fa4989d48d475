"""The verbs of the public classes over asyncio clients, and `BloomFilter`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import closing
from datetime import timedelta
from typing import Any, ClassVar, Generic, Self, TypeVar, Unpack

from bloomredis.arguments import listed
from bloomredis.drivers import filters
from bloomredis.drivers.aio import AsyncClient, AsyncClients, drive
from bloomredis.drivers.batches import async_batches
from bloomredis.drivers.binding import Bound, constructor, documented_as
from bloomredis.drivers.claims import AsyncClaim, Claiming
from bloomredis.drivers.coalescing import MOST_ITEMS
from bloomredis.drivers.filters import DEDUPE_ITEMS
from bloomredis.drivers.tasks import Coalescer
from bloomredis.errors import BatchInterruptedError
from bloomredis.operations.claims import Held
from bloomredis.operations.filter import FilterOperations
from bloomredis.operations.info import FilterInfo
from bloomredis.operations.loading import LOAD_ITEMS
from bloomredis.operations.options import I, PlainParameters
from bloomredis.operations.partitioned import PartitionedOperations, operations
from bloomredis.operations.pipelines import AnyPipeline
from bloomredis.operations.plain import PlainOperations
from bloomredis.operations.routed import RoutedOperations
from bloomredis.operations.snapshot import LocalFilter
from bloomredis.protocol.steps import Op

T = TypeVar("T")
J = TypeVar("J")


class Filter(Bound[AsyncClient], Generic[I]):
    """The verbs that every class has."""

    _is_asyncio = True
    _operations: FilterOperations | RoutedOperations

    def _bind(self) -> None:
        operations, client = self._operations, self._client
        self._coalesce = operations.options.coalesce is not False
        self._adds = Coalescer(client, self.name, lambda items: operations.add_encoded(items, items))
        self._tests = Coalescer(client, self.name, operations.contains_encoded)

    async def _run(self, operation: Op[T]) -> T:
        return await drive(self._client, operation)

    @classmethod
    @documented_as(filters.Filter.open)
    async def open(cls, client: AsyncClient, name: str) -> Self:
        """Return a filter whose parameters are read from the server."""
        opened = cls._from_server(client, name)
        await opened.reserve()
        return opened

    @documented_as(filters.Filter.add)
    async def add(self, item: I, *, token: str | None = None) -> bool:
        """Add an item; True if this call was the first to add it."""
        operations = self._operations
        if token is None and operations.in_local_cache(item):
            return False
        if token is not None or not self._coalesce:
            return await self._run(operations.add(item, token=token))
        encoded = (operations.codec.encode_for_batch(item),)
        answer: bool = await self._added(encoded, self._adds.submit(encoded, None, operations.add, item))
        return answer

    async def _added(self, encoded: Sequence[str | bytes], waiting: Awaitable[Any]) -> Any:
        """Wait for an answer, and keep it if this task is cancelled when it has come."""
        try:
            return await waiting
        except asyncio.CancelledError:
            if isinstance(waiting, asyncio.Future) and waiting.done() and not waiting.cancelled():
                told = (
                    getattr(waiting.exception(), "results", ()) if waiting.exception() else waiting.result()
                )
                self._operations.keep(encoded, [told] if isinstance(told, bool) else told)
            raise

    @documented_as(filters.Filter.contains)
    async def contains(self, item: I) -> bool:
        """Return whether an item is in the filter."""
        operations = self._operations
        if operations.in_local_cache(item):
            return True
        if not self._coalesce:
            return await self._run(operations.contains(item))
        encoded = operations.codec.encode_for_batch(item)
        answer: bool = await self._tests.submit((encoded,), None, operations.contains, item)
        return answer

    @documented_as(filters.Filter.add_many)
    async def add_many(self, items: Iterable[I]) -> list[bool]:
        """Add items; say of each, in order, whether it was new."""
        operations, batch = self._operations, listed(items)
        if not self._coalesce or not 0 < len(batch) < MOST_ITEMS:
            return await self._run(operations.add_many(batch))
        encoded = [operations.codec.encode_for_batch(item) for item in batch]
        waiting = self._adds.submit(encoded, batch, operations.add_many, batch)
        answers: list[bool] = await self._added(encoded, waiting)
        return answers

    @documented_as(filters.Filter.contains_many)
    async def contains_many(self, items: Iterable[I]) -> list[bool]:
        """Return for each item, in order, whether it is in the filter."""
        operations, batch = self._operations, listed(items)
        if not self._coalesce or not 0 < len(batch) < MOST_ITEMS:
            return await self._run(operations.contains_many(batch))
        encoded = [operations.codec.encode_for_batch(item) for item in batch]
        answers: list[bool] = await self._tests.submit(encoded, batch, operations.contains_many, batch)
        return answers

    @documented_as(filters.Filter.dedupe)
    async def dedupe(self, items: Iterable[J] | AsyncIterable[J]) -> AsyncIterator[J]:
        """Yield those of the items that were new, in order, as they are read."""
        add_many: Callable[[list[Any]], Awaitable[list[bool]]] = self.add_many
        async for batch in async_batches(items, DEDUPE_ITEMS):
            try:
                answers = await add_many(batch)
            except BatchInterruptedError as error:
                with closing(self._operations.new_items(batch, error.results)) as new:
                    for item in new:
                        yield item
                raise
            with closing(self._operations.new_items(batch, answers)) as new:
                for item in new:
                    yield item

    @documented_as(filters.Filter.load)
    async def load(
        self, items: Iterable[I] | AsyncIterable[I], progress: Callable[[int], object] | None = None
    ) -> int:
        """Add items as fast as possible, without an answer for each; return how many were read."""
        done: int = await self._run(self._operations.load(async_batches(items, LOAD_ITEMS), progress))
        return done

    @documented_as(filters.Filter.claim)
    def claim(self, item: I, lease: float | timedelta = 30.0) -> Claiming:
        """Hold an item while working on it: await the claim, or enter it with `async with`."""
        return Claiming(self._run(self._operations.claim(item, lease, self._claim)))

    @documented_as(filters.Filter.claim_many)
    async def claim_many(self, items: Iterable[I], lease: float | timedelta = 30.0) -> list[AsyncClaim]:
        """Claim items; return a `Claim` of each, in order."""
        return await self._run(self._operations.claim_many(items, lease, self._claim))

    def _claim(self, held: Held) -> AsyncClaim:
        return AsyncClaim(self._client, self._operations, held)

    @documented_as(filters.Filter.reserve)
    async def reserve(self) -> None:
        """Create the filter now, or check the stored one."""
        await self._run(self._operations.reserve())

    @documented_as(filters.Filter.info)
    async def info(self) -> FilterInfo:
        """Return the filter's parameters and how full it is."""
        return await self._run(self._operations.info())

    @documented_as(filters.Filter.approximate_count)
    async def approximate_count(self) -> int:
        """Estimate the number of items from the share of bits set."""
        return await self._run(self._operations.approximate_count())

    @documented_as(filters.Filter.clear)
    async def clear(self) -> None:
        """Empty the filter: a new generation with the same parameters and the same expiry."""
        await self._run(self._operations.clear())

    @documented_as(filters.Filter.delete)
    async def delete(self) -> bool:
        """Delete the filter; True if it existed."""
        return await self._run(self._operations.delete())


class Expiring(Bound[AsyncClient]):
    """Filters that can be given a time to live."""

    @documented_as(filters.Expiring.expire)
    async def expire(self, seconds: float | timedelta) -> None:
        """Let everything that the filter stores expire that many seconds (or a timedelta) from now."""
        await drive(self._client, self._operations.expire(seconds))


class Queueing(Bound[AsyncClient], Generic[I]):
    """Filters whose calls can be queued on a caller's pipeline."""

    @documented_as(filters.Queueing.queue_add)
    async def queue_add(self, pipe: AnyPipeline, item: I) -> None:
        """Queue an add on a pipeline of the caller's."""
        await drive(self._client, self._operations.queue_add(pipe, item))

    @documented_as(filters.Queueing.queue_contains)
    async def queue_contains(self, pipe: AnyPipeline, item: I) -> None:
        """Queue a test on a pipeline of the caller's."""
        await drive(self._client, self._operations.queue_contains(pipe, item))


@documented_as(filters.BloomFilter)
class BloomFilter(Filter[I], Queueing[I], Expiring):
    """A Bloom filter in one key of a Redis or Valkey server."""

    _operations: PlainOperations | PartitionedOperations
    _operations_class: ClassVar[Any] = PlainOperations

    @constructor(PlainOperations.__init__)
    def __init__(self, client: AsyncClients, name: str, **parameters: Unpack[PlainParameters[I]]) -> None:
        super().__init__(client, operations(name, **parameters))

    @documented_as(filters.BloomFilter.snapshot)
    async def snapshot(self) -> LocalFilter[I]:
        """Return a copy of the filter in this process, which answers without the server."""
        return await self._run(self._operations.snapshot())
