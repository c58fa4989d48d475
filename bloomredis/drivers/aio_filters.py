"""The verbs of the public classes over asyncio clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray

from bloomredis.arguments import check_items, listed
from bloomredis.bits.encoding import rows_from
from bloomredis.drivers import filters
from bloomredis.drivers.aio import drive
from bloomredis.drivers.aio_lifecycle import Portable
from bloomredis.drivers.batches import async_batches, is_alone
from bloomredis.drivers.binding import documented_as
from bloomredis.drivers.claiming import AsyncClaimer
from bloomredis.drivers.columns import Mask
from bloomredis.drivers.connections.clients import AsyncClients
from bloomredis.drivers.connections.direct import reads_at_once
from bloomredis.drivers.filters import DEDUPE_ITEMS, UPDATE_ITEMS
from bloomredis.drivers.observing import observed
from bloomredis.drivers.sharing.batch import MOST_ITEMS, Several
from bloomredis.drivers.sharing.tasks import Tasks, sharing_calls
from bloomredis.errors import BatchInterruptedError, BloomError
from bloomredis.operations.items.outcomes import PASSING, raise_unread
from bloomredis.operations.options import CommonParameters, I
from bloomredis.operations.whole.info import FilterInfo
from bloomredis.operations.whole.loading import LOAD_ITEMS
from bloomredis.protocol.cluster import is_cluster
from bloomredis.protocol.steps import Op

T = TypeVar("T")
J = TypeVar("J")


@documented_as(filters.Filter)
class Filter(AsyncClaimer[I], Portable[I]):
    """The verbs that every class has."""

    def _bind(self) -> None:
        operations = self._operations
        self._link = client = self._linked()
        self._coalesce = operations.options.coalesce is not False
        operations.read_at_once(reads_at_once(client) and not is_cluster(type(self._client)))
        self._shared = sharing_calls(self.name, client).execute if self._coalesce else None
        self._adds = Tasks(self.name, client, operations.add_encoded)
        self._tests = Tasks(self.name, client, lambda items, _: operations.contains_encoded(items))

    async def _run_batch(
        self, items: Iterable[I], verb: Callable[[list[I]], Op[list[bool]]], shared: Tasks
    ) -> list[bool]:
        batch = listed(items)
        if not self._coalesce or not 0 < len(batch) < MOST_ITEMS:
            return list(await self._run(verb(batch)))
        several = Several(self._operations.codec.encode_each(batch), batch)
        return list(await shared.wait(several, verb, batch))

    @classmethod
    async def open(cls, client: AsyncClients, name: str, **options: Unpack[CommonParameters[I]]) -> Self:
        """Return a filter whose parameters are read from the server."""
        opened = cls._from_server(client, name, **options)
        await opened.reserve()
        return opened

    @observed
    async def add(self, item: I, *, token: str | None = None) -> bool:
        """Add an item; True if this call was the first to add it."""
        operations = self._operations
        if (
            token is None
            and operations.cache is not None
            and operations.in_local_cache(item)
            # A shared call that has it may have its answer for nobody.
            and not self._adds.is_under_way(operations.codec.encode_for_batch(item))
        ):
            return False
        if token is not None:
            return await self._run(operations.add(item, token=token))
        if not self._coalesce:
            return await drive(self._link, operations.add(item))
        encoded = operations.codec.encode_for_batch(item)
        call = self._adds.share(encoded, operations.add, item)
        try:  # `wait` would take 5% longer
            answer: bool = await call
        except (asyncio.CancelledError, GeneratorExit):
            self._adds.abandon(call)
            raise
        return answer

    @observed
    async def contains(self, item: I) -> bool:
        """Return whether an item is in the filter."""
        operations = self._operations
        if operations.cache is not None and operations.in_local_cache(item):
            return True
        if not self._coalesce:
            return await drive(self._link, operations.contains(item))
        encoded = operations.codec.encode_for_batch(item)
        answer: bool = await self._tests.share(encoded, operations.contains, item)
        return answer

    if not TYPE_CHECKING:  # which finds the mistake by itself

        def __contains__(self, item: object) -> NoReturn:
            raise TypeError("`in` cannot wait for the server's answer: use await f.contains(item)")

    @observed
    async def add_many(self, items: Iterable[I]) -> list[bool]:
        """Add items; return for each, in order, whether it was new."""
        return await self._run_batch(items, self._operations.add_many, self._adds)

    @observed
    async def contains_many(self, items: Iterable[I]) -> list[bool]:
        """Return for each item, in order, whether it is in the filter."""
        return await self._run_batch(items, self._operations.contains_many, self._tests)

    async def new_mask(self, column: Any) -> NDArray[np.bool_]:
        """Add the items of a column; return an array that says of each row whether it was new."""
        mask = Mask("new_mask", column)
        for batch in mask.batches():
            with mask.asking():
                mask.take(await self.add_many(batch))
        return mask.answers

    async def contains_mask(self, column: Any) -> NDArray[np.bool_]:
        """Return an array that says of each row of a column whether its item is in the filter."""
        mask = Mask("contains_mask", column)
        for batch in mask.batches():
            with mask.asking():
                mask.take(await self.contains_many(batch))
        return mask.answers

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

    @observed
    async def load(
        self, items: Iterable[I] | AsyncIterable[I], progress: Callable[[int], object] | None = None
    ) -> int:
        """Add items as fast as possible, without an answer for each; return how many were read."""
        if hasattr(items, "__array__"):
            check_items(items)  # before the filter is opened
        return await self._run(self._operations.load(async_batches(items, LOAD_ITEMS), progress))

    @observed
    async def reserve(self) -> None:
        """Create the filter now, or check the stored one."""
        await self._run(self._operations.reserve())

    @observed
    async def info(self) -> FilterInfo:
        """Return the filter's parameters and how full it is."""
        return await self._run(self._operations.info())

    @observed
    async def approximate_count(self) -> int:
        """Estimate the number of items from the share of bits set."""
        return await self._run(self._operations.approximate_count())

    @observed
    async def clear(self) -> None:
        """Empty the filter: a new generation with the same parameters and the same expiry."""
        await self._run(self._operations.clear())

    @observed
    async def delete(self) -> bool:
        """Delete the filter; True if it existed."""
        return await self._run(self._operations.delete())

    async def close(self) -> None:
        """Close the connections of a client that `from_url` made."""
        for client in self._own_clients():
            await (getattr(client, "aclose", None) or client.close)()
