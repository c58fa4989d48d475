"""The verbs of the public classes over asyncio clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar

from bloomredis.arguments import check_items, listed
from bloomredis.bits.encoding import rows_from
from bloomredis.drivers import filters
from bloomredis.drivers.aio import AsyncClient, drive
from bloomredis.drivers.aio_lifecycle import Portable
from bloomredis.drivers.batches import async_batches, is_alone
from bloomredis.drivers.binding import Bound, documented_as
from bloomredis.drivers.claims import AsyncClaim, Claiming
from bloomredis.drivers.coalescing import MOST_ITEMS
from bloomredis.drivers.filters import DEDUPE_ITEMS, UPDATE_ITEMS
from bloomredis.drivers.tasks import Awaited, Coalescer
from bloomredis.errors import BatchInterruptedError, BloomError
from bloomredis.operations.claims import Held
from bloomredis.operations.filter import FilterOperations
from bloomredis.operations.info import FilterInfo
from bloomredis.operations.loading import LOAD_ITEMS
from bloomredis.operations.options import I
from bloomredis.operations.outcomes import PASSING, raise_unread
from bloomredis.operations.pipelines import AnyPipeline
from bloomredis.operations.routed import RoutedOperations
from bloomredis.protocol.steps import Op

T = TypeVar("T")
J = TypeVar("J")


@documented_as(filters.Filter)
class Filter(Portable[I]):
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

    async def _run_batch(
        self, items: Iterable[I], verb: Callable[[list[I]], Op[list[bool]]], coalescer: Coalescer
    ) -> list[bool]:
        batch = listed(items)
        if not self._coalesce or not 0 < len(batch) < MOST_ITEMS:
            return await self._run(verb(batch))
        encoded = self._operations.codec.encode_each(batch)
        waiting = coalescer.submit(encoded, batch, verb, batch)
        answers: list[bool] = await (self._added(encoded, waiting) if coalescer is self._adds else waiting)
        return answers

    @classmethod
    async def open(cls, client: AsyncClient, name: str) -> Self:
        """Return a filter whose parameters are read from the server."""
        opened = cls._from_server(client, name)
        await opened.reserve()
        return opened

    async def add(self, item: I, *, token: str | None = None) -> bool:
        """Add an item; True if this call was the first to add it."""
        operations = self._operations
        if token is None and operations.in_local_cache(item) and not self._is_under_way(item):
            return False
        if token is not None or not self._coalesce:
            return await self._run(operations.add(item, token=token))
        encoded = (operations.codec.encode_for_batch(item),)
        answer: bool = await self._added(encoded, self._adds.submit(encoded, None, operations.add, item))
        return answer

    def _is_under_way(self, item: I) -> bool:
        """Return whether a shared call has an item, whose answer may come to nobody and be kept then."""
        return self._adds.is_under_way(self._operations.codec.encode_for_batch(item))

    async def _added(self, encoded: Sequence[str | bytes], waiting: Awaitable[Any]) -> Any:
        """Wait for an answer; if this task is ended meanwhile, keep it for who asks again."""
        try:
            return await waiting
        except (asyncio.CancelledError, GeneratorExit):
            if isinstance(waiting, Awaited):
                waiting.abandon(len(encoded))
            raise

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

    if not TYPE_CHECKING:  # which finds the mistake by itself

        def __contains__(self, item: object) -> NoReturn:
            raise TypeError("`in` cannot wait for the server's answer: use await f.contains(item)")

    async def add_many(self, items: Iterable[I]) -> list[bool]:
        """Add items; return for each, in order, whether it was new."""
        return await self._run_batch(items, self._operations.add_many, self._adds)

    async def contains_many(self, items: Iterable[I]) -> list[bool]:
        """Return for each item, in order, whether it is in the filter."""
        return await self._run_batch(items, self._operations.contains_many, self._tests)

    async def update(self, items: Iterable[I] | AsyncIterable[I]) -> int:
        """Add items; return how many were new."""
        new = rows = 0
        async for batch in async_batches(items, UPDATE_ITEMS):
            try:
                with rows_from(rows):
                    new += sum(await self.add_many(batch))
            except (BatchInterruptedError, *PASSING) as error:
                raise_unread(error, "update", batch, is_alone=is_alone(items, rows))
            rows += len(batch)
        return new

    async def dedupe(
        self, items: Iterable[J] | AsyncIterable[J], *, key: Callable[[J], Any] | None = None
    ) -> AsyncIterator[J]:
        """Yield those of the items that were new, in order, as they are read."""
        add_many: Callable[[list[Any]], Awaitable[list[bool]]] = self.add_many
        rows = 0
        async for batch in async_batches(items, DEDUPE_ITEMS):
            keys: list[Any] = batch if key is None else list(map(key, batch))
            failed: BloomError | None = None
            try:
                with rows_from(rows):
                    answers: Sequence[bool] = await add_many(keys)
            except (BatchInterruptedError, *PASSING) as error:
                failed, answers = error, getattr(error, "results", ())
            with closing(self._operations.new_items(batch, keys, answers)) as new:
                for item in new:
                    yield item
            if failed is not None:
                raise_unread(failed, "dedupe", batch, is_alone=is_alone(items, rows))
            rows += len(batch)

    async def load(
        self, items: Iterable[I] | AsyncIterable[I], progress: Callable[[int], object] | None = None
    ) -> int:
        """Add items as fast as possible, without an answer for each; return how many were read."""
        if hasattr(items, "__array__"):
            check_items(items)  # before the filter is opened
        return await self._run(self._operations.load(async_batches(items, LOAD_ITEMS), progress))

    def claim(self, item: I, lease: float | timedelta = 30.0) -> Claiming:
        """Hold an item while working on it: await the claim, or enter it with `async with`."""
        return Claiming(self._run(self._operations.claim(item, lease, self._claim)))

    async def claim_many(self, items: Iterable[I], lease: float | timedelta = 30.0) -> list[AsyncClaim]:
        """Claim items; return a `Claim` of each, in order."""
        return await self._run(self._operations.claim_many(items, lease, self._claim))

    def _claim(self, held: Held) -> AsyncClaim:
        return AsyncClaim(self._client, self._operations, held)

    async def reserve(self) -> None:
        """Create the filter now, or check the stored one."""
        await self._run(self._operations.reserve())

    async def info(self) -> FilterInfo:
        """Return the filter's parameters and how full it is."""
        return await self._run(self._operations.info())

    async def approximate_count(self) -> int:
        """Estimate the number of items from the share of bits set."""
        return await self._run(self._operations.approximate_count())

    async def clear(self) -> None:
        """Empty the filter: a new generation with the same parameters and the same expiry."""
        await self._run(self._operations.clear())

    async def delete(self) -> bool:
        """Delete the filter; True if it existed."""
        return await self._run(self._operations.delete())

    async def close(self) -> None:
        """Close the connections of a client that `from_url` made."""
        for client in self._own_clients():
            await (getattr(client, "aclose", None) or client.close)()


@documented_as(filters.Expiring)
class Expiring(Bound[AsyncClient]):
    """Filters that can be given a time to live."""

    async def expire(self, seconds: float | timedelta) -> None:
        """Let everything that the filter stores expire that many seconds (or a timedelta) from now."""
        await drive(self._client, self._operations.expire(seconds))


@documented_as(filters.Queueing)
class Queueing(Bound[AsyncClient], Generic[I]):
    """Filters whose calls can be queued on a caller's pipeline."""

    async def queue_add(self, pipe: AnyPipeline, item: I) -> None:
        """Queue an add on a pipeline of the caller's."""
        await drive(self._client, self._operations.queue_add(pipe, item))

    async def queue_contains(self, pipe: AnyPipeline, item: I) -> None:
        """Queue a test on a pipeline of the caller's."""
        await drive(self._client, self._operations.queue_contains(pipe, item))
