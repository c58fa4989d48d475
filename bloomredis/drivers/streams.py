"""Items of a source that may wait, in batches that do not wait with it.

`dedupe` reads a live source, such as a queue or the lines of a log, as well as one that has all its items.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Generic, Self, TypeVar

from bloomredis.drivers.batches import batches

T = TypeVar("T")


class Paced(Generic[T]):
    """Batches of up to `most` items; none collects items for longer than the one before it took to be sent.

    So after an item that took longer than a round trip to come, the batch is sent before the next item is
    asked for.  A collection, which has a length, cannot wait and is sent in full batches.
    """

    def __init__(self, source: Iterable[T], most: int) -> None:
        self._batches = batches(source, most, iter if hasattr(source, "__len__") else self._burst)
        self._longest = 0.0

    def _burst(self, source: Iterator[T]) -> Iterator[T]:
        """Yield the next items of the source, until the time of a batch is over."""
        until = perf_counter() + self._longest
        for item in source:
            yield item
            if perf_counter() >= until:
                return

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Send a batch within this context, which takes the time."""
        began = perf_counter()
        yield
        self._longest = perf_counter() - began

    def unsent(self) -> list[T]:
        """Return the items that were read and are in no batch: none."""
        return []

    def close(self) -> None:
        """Do nothing: the source stays where it is."""

    async def aclose(self) -> None:
        """Do the same."""

    def __iter__(self) -> Iterator[list[T]]:
        return self._batches

    async def __aiter__(self) -> AsyncIterator[list[T]]:
        for batch in self._batches:
            yield batch


class Reader(Generic[T]):
    """An async source that a task of its own reads ahead, so that its items are there as soon as it waits.

    The task reads only while `batch` waits or a batch is sent: not while the caller works on items that it
    got.  A wait that has begun by then goes on.
    """

    def __init__(self, source: AsyncIterable[T], most: int) -> None:
        self._most = most
        self._held: list[T] = []
        self._came, self._may_read = asyncio.Event(), asyncio.Event()
        self._task = asyncio.create_task(self._read(source))
        self._task.add_done_callback(lambda _: self._came.set())

    async def _read(self, source: AsyncIterable[T]) -> None:
        async for item in source:
            self._held.append(item)
            self._came.set()
            if len(self._held) >= self._most:
                self._may_read.clear()
            await self._may_read.wait()

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Send a batch within this context; the source is not read after it, until the next batch."""
        try:
            yield
        finally:
            self._may_read.clear()

    def unsent(self) -> list[T]:
        """Return the items that were read and are in no batch."""
        return self._held

    async def aclose(self) -> None:
        """End the reading: a source that waits is cancelled."""
        self._task.cancel()
        await asyncio.wait([self._task])

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[T]:
        self._may_read.set()
        if not self._held and not self._task.done():
            self._came.clear()
            await self._came.wait()
        batch, self._held = self._held, []
        if not batch:
            self._task.result()  # raises the source's error
            raise StopAsyncIteration
        return batch


class UntilLeft(AsyncIterator[T]):
    """The items of an async generator, which ends its open batch as soon as nobody wants more of them.

    Python closes such a generator some turns of the loop later, when the next call may be on its way.

    :param generate: returns the generator, given the list that gets the generator of each batch.
    """

    def __init__(self, generate: Callable[[list[Generator[T, None, None]]], Any]) -> None:
        self._opened: list[Generator[T, None, None]] = []
        self._items = generate(self._opened)

    def __anext__(self) -> Awaitable[T]:
        item: Awaitable[T] = self._items.__anext__()
        return item

    async def aclose(self) -> None:
        """Close the generator."""
        await self._items.aclose()

    def __del__(self) -> None:
        for batch in self._opened:
            batch.close()
