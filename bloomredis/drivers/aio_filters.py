"""The methods that all public classes share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn, Self, Unpack

from bloomredis.arguments import check_items, listed
from bloomredis.bits.arrays import NDArray, np
from bloomredis.drivers.aio_claiming import Claimer
from bloomredis.drivers.aio_deduping import Deduping
from bloomredis.drivers.aio_lifecycle import Portable
from bloomredis.drivers.aio_running import drive
from bloomredis.drivers.batches import async_batches
from bloomredis.drivers.columns import Mask
from bloomredis.drivers.connections.clients import AsyncClient
from bloomredis.drivers.observing import observed
from bloomredis.drivers.sharing.batch import MOST_ITEMS, ItemBatch
from bloomredis.drivers.sharing.tasks import Tasks
from bloomredis.later import later
from bloomredis.operations.codec import WorkItem
from bloomredis.operations.options import CommonParameters, I
from bloomredis.protocol.steps import Op

if TYPE_CHECKING:
    from bloomredis.operations.whole import info as whole_info
    from bloomredis.operations.whole import loading
else:
    whole_info, loading = later("bloomredis.operations.whole", "info", "loading")


class Filter(Claimer[I], Portable[I], Deduping):
    """The methods that every filter class has."""

    # asyncio:
    async def _run_batch(
        self, items: Iterable[I], verb: Callable[[list[I]], Op[list[bool]]], shared: Tasks
    ) -> list[bool]:
        """Run a verb on a batch; a small one shares its calls with those of other tasks."""
        batch = listed(items)
        if not 0 < len(batch) < MOST_ITEMS:
            await shared.settle()
            return list(await self._run(verb(batch)))
        several = ItemBatch(self._operations.codec.encode_each(batch), batch)
        return list(await shared.wait(several, verb, batch))

    # both.
    @classmethod
    async def open(cls, client: AsyncClient, name: str, **options: Unpack[CommonParameters[I]]) -> Self:
        """Open a stored filter; its parameters are read from the server.

        :param options: the options of the class that are not stored, such as `on_lost`; and the `encode` that
            the filter was created with.
        :raises FilterNotFoundError: no filter has this name.
        :raises FilterMismatchError: the filter is of another class, or was created with another `encode`.
        :raises FilterLostError: a shard or a layer of the filter is missing.  To go on without a shard, use
            the constructor and call `acknowledge()`.
        """
        opened = cls._from_server(client, name, **options)
        await opened.create()
        return opened

    @observed
    async def add(self, item: I | WorkItem, *, token: str | None = None) -> bool:
        """Add an item; True if this call was the first to add it.

        Of any number of concurrent callers, exactly one gets True.  Costs one round trip.

        An int is encoded as its decimal text: 42, "42" and b"42" are the same item.

        :param token: the `token` of an `OutcomeUnknownError`, to get the answer of the call that raised it.
        :raises OutcomeUnknownError: no answer came, and the item may have been added; a retry with the
            error's `token` is safe.
        :raises ConnectionFailedError: no answer came, and nothing was added.
        """
        operations = self._operations
        if (
            token is None
            and operations.cache is not None
            and operations.in_local_cache(item)
            # asyncio: a call in flight may hold the answer of a caller that has gone
            and not self._adds.is_under_way(operations.codec.encode_for_batch(item))
            # both.
        ):
            return False
        # asyncio:
        if token is None:
            encoded = operations.codec.encode_for_batch(item)
            call = self._adds.share(encoded, operations.add, item)
            try:  # `wait` is 5% slower
                answer: bool = await call
            except (asyncio.CancelledError, GeneratorExit):
                self._adds.abandon(call)
                raise
            return answer
        # both.
        return await drive(self._transport, operations.add(item, token=token))

    @observed
    async def contains(self, item: I | WorkItem) -> bool:
        """Return whether an item is in the filter: False is certain, True may be a false positive.

        Costs one round trip.  A test never creates the filter: until somebody does, the answer is False.

        :raises ConnectionFailedError: no reply came.  All calls that only read raise it then.
        :raises FilterNotFoundError: there is no filter, and this object has no parameters to create it.
        """
        operations = self._operations
        if operations.cache is not None and operations.in_local_cache(item):
            return True
        # asyncio:
        encoded = operations.codec.encode_for_batch(item)
        return await self._tests.share(encoded, self._contains, item)
        # sync: return drive(self._transport, self._contains(item))
        # both.

    # asyncio:
    if not TYPE_CHECKING:  # type checkers find the mistake by themselves

        def __contains__(self, item: object) -> NoReturn:
            raise TypeError("`in` cannot wait for the server's answer: use await f.contains(item)")

    # sync: def __contains__(self, item: I | WorkItem) -> bool:
    # sync:     return self.contains(item)
    # both.

    @observed
    async def add_many(self, items: Iterable[I]) -> list[bool]:
        """Add items; return for each, in order, whether it was new.

        Of two equal items the first is new and the second is not.  A batch is sent in several scripts, none
        of which runs longer than about 2 ms.  Each script is atomic; the batch as a whole is not.  All items
        are checked before the first is sent, so an iterator is read to its end first.

        :raises BatchInterruptedError: an error stopped the batch; `results` has the answers so far.
        """
        # asyncio:
        return await self._run_batch(items, self._operations.add_many, self._adds)
        # sync: return [*self._run(self._operations.add_many(listed(items)))]  # no call, no signal
        # both.

    @observed
    async def contains_many(self, items: Iterable[I]) -> list[bool]:
        """Return for each item, in order, whether it is in the filter.

        :raises ConnectionFailedError: no reply came; nothing was changed.
        :raises FilterLostError: the filter was lost since this object first used it.
        """
        # asyncio:
        return await self._run_batch(items, self._operations.contains_many, self._tests)
        # sync: return [*self._run(self._operations.contains_many(listed(items)))]
        # both.

    async def add_mask(self, column: Any) -> NDArray[np.bool_]:
        """Add the items of a column; return a bool array that is True where a row was new.

        The column is an array of numpy, or a column of pandas, Arrow or polars.  The mask selects the new
        rows: ``frame[seen.add_mask(frame["url"])]``.  Of equal rows the first is new.

        :raises BatchInterruptedError: an error stopped the call; `rest` is the column from the first row
            without an answer.
        """
        mask = Mask("add_mask", column)
        for batch in mask.batches():
            with mask.asking():
                mask.take(await self.add_many(batch))
        return mask.answers

    async def contains_mask(self, column: Any) -> NDArray[np.bool_]:
        """Return a bool array that is True where the item of a row is in the filter."""
        mask = Mask("contains_mask", column)
        for batch in mask.batches():
            with mask.asking():
                mask.take(await self.contains_many(batch))
        return mask.answers

    @observed
    async def update(
        self, items: Iterable[I] | AsyncIterable[I], progress: Callable[[int], object] | None = None
    ) -> int:
        """Add items as fast as possible, without an answer for each; return how many were read.

        The items are collected in batches; a larger filter gets larger ones.  A dense batch is OR-ed into the
        filter in segments of bits, each segment atomically.  A sparse batch is added probe by probe.  Either
        way the server is never busy for longer than about 2 ms at a time, and other clients may add
        meanwhile.

        The memory for this depends on the filter's size, not on the number of items: about 10 MB
        plus twice the filter's size, up to 250 MB.  A filter of more than 128 MB is loaded probe by probe.

        After an error, call `update` again with all items.  The filter's `count` then lacks at most the new
        items of the batch that was interrupted.

        :param items: any iterable, an array of numpy, or a column of pandas or Arrow.
        :param progress: called with the number of items done so far.
        :raises BatchInterruptedError: an error stopped the call; `done` is the number of items that are in.
        :raises ConnectionFailedError, OutcomeUnknownError, ServerRefusedError: the same, before any item of a
            list was in.
        :raises FilterLostError: the filter was lost since this object first used it.
        """
        # asyncio:
        if not isinstance(items, AsyncIterable):
            check_items(items)  # before the filter is opened
        # sync: check_items(items)  # before the filter is opened
        # both.
        return await self._run(self._operations.update(async_batches(items, loading.LOAD_ITEMS), progress))

    @observed
    async def create(self) -> None:
        """Create the filter now, or check the stored one with each of its parts.

        It is right at the start of a program, since it never acknowledges a loss.

        :raises FilterLostError: the filter that this object knew is lost, or a part of it is missing.
        :raises FilterMismatchError: the key holds something else, which is left unchanged.
        :raises FilterNotFoundError: there is no filter, and this object has no parameters to create it.
        """
        await self._run(self._operations.create())

    @observed
    async def acknowledge(self) -> bool:
        """Accept a loss for all processes, which go on with what is stored; True if there was one.

        Each object raises `FilterLostError` once if it has not yet.  A missing shard is made again, empty,
        and the others are kept.  If nothing is stored, the filter is made again if this object knew it.
        Otherwise nothing is made, and the answer is False.  The answer is True if this object knew another
        filter than the one that is stored now.

        Do not call it at the start of a program: it would accept a loss that nobody has looked at.

        :raises FilterLostError: a layer of the filter is missing, and only `clear()` helps.
        :raises FilterMismatchError: the key holds something else, which is left unchanged.
        :raises FilterNotFoundError: there is no filter, and this object has no parameters to create it.
        :raises OutcomeUnknownError: no reply came; make the call again.
        """
        return await self._run(self._operations.acknowledge())

    @observed
    async def info(self) -> whole_info.FilterInfo:
        """Return the filter's parameters and how full it is.

        Costs a BITCOUNT over the whole filter, in pieces of under 2 ms.

        :raises ConnectionFailedError: no reply came.
        :raises FilterNotFoundError: there is no filter.
        :raises FilterLostError: the filter was lost since this object first used it.
        """
        return await self._run(self._operations.info())

    @observed
    async def clear(self) -> None:
        """Empty the filter; its parameters and its expiry stay as they are.

        Each other object that used the filter raises `FilterLostError` once, and then goes on with the
        empty one.  A missing filter is created.

        :raises OutcomeUnknownError: no reply came, and the filter may not be empty; clear it again.
        :raises FilterMismatchError: the key holds something else, which is left unchanged.
        :raises ServerRefusedError: the server refuses writes; nothing was changed.
        """
        await self._run(self._operations.clear())

    @observed
    async def delete(self) -> bool:
        """Delete the filter; True if it existed.  This object's next call may create it again.

        :raises FilterMismatchError: the key holds something else, which is left unchanged.
        """
        return await self._run(self._operations.delete())

    async def close(self) -> None:
        """Close the connections of the client that `from_url` made; a client that was passed in stays open.

        A filter is a context manager, which calls `close` at the end of the block.
        """
        client = self._own_client()
        if client is not None:
            # asyncio:
            await (getattr(client, "aclose", None) or client.close)()
            # sync: client.close()
            # both.

    # asyncio:
    async def aclose(self) -> None:
        """Close the filter: the name of `close` that redis-py and `contextlib.aclosing` use."""
        await self.close()

    # both.
    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
