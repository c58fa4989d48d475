"""Operations on a whole filter: save, restore, copy, merge, adopt, expire."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from bloomredis import arguments
from bloomredis.bits.encoding import number_of
from bloomredis.drivers.aio_running import drive
from bloomredis.drivers.binding import Bound
from bloomredis.drivers.connections.clients import AsyncClient
from bloomredis.drivers.driven import AsyncDriven
from bloomredis.drivers.merging import check_same_class, share_node
from bloomredis.drivers.observing import observed
from bloomredis.later import later
from bloomredis.operations.options import File, I, Progress

if TYPE_CHECKING:
    from bloomredis.operations.kinds import scaling
    from bloomredis.operations.whole import files, transfer, union
    from bloomredis.operations.whole import snapshot as snapshots
    from bloomredis.stored.saved import reading
    from bloomredis.stored.saved.format import Part
else:
    scaling = later("bloomredis.operations.kinds", "scaling")
    files, snapshots, transfer, union = later(
        "bloomredis.operations.whole", "files", "snapshot", "transfer", "union"
    )
    reading = later("bloomredis.stored.saved", "reading")

# asyncio:
T = TypeVar("T")
# both.


class Portable(AsyncDriven, Generic[I]):
    """Filters that can be saved, restored, copied and merged."""

    @observed
    async def save(self, file: File, *, progress: Progress | None = None) -> None:
        """Write the filter to a file, with a checksum, in constant memory.

        The file has all items that were added before this call.  Items that are added meanwhile may or may
        not be in it.  Reading the filter costs the server about 1 ms a megabyte, in pieces of 0.1 ms.
        `lua/FORMAT.md` describes the file.

        :param file: a path, or an open binary file, which need not be seekable.  The file at a path is
            replaced only when the save is complete.
        :param progress: called with the number of bytes done so far, and the total.
        :raises FilterNotFoundError: there is no filter.
        :raises FilterLostError: the filter was cleared or lost meanwhile; discard what was written.
        :raises TypeError: the filter is a bitmap of another system, or a key of the server's module.
        """
        stored = transfer.stored_of(self._operations)
        with files.written(file) as opened:
            await self._run(transfer.save(stored, opened, progress))

    @classmethod
    @observed
    async def restore(
        cls,
        client: AsyncClient,
        name: str,
        file: File,
        *,
        encode: Callable[[I], bytes] | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Restore a saved filter under a free name; return it.

        The restored filter gives the same answers.  It has another generation, and the parameters and the
        count of the saved filter.  From now on it lives for the time that the filter had left when it was
        saved.  What a rotating filter has forgotten by now is left out.  The filter is written under
        temporary keys, and appears under its name in one step.  If the restore fails, the temporary keys are
        gone after ten minutes.

        Objects that had a lost filter of this name raise `FilterLostError` once, and then go on with the
        restored one.

        :param client: of any server or cluster, whatever the filter was saved from.
        :param file: a path, or an open binary file, which need not be seekable.  Of a file that is not
            seekable, such as a connection, nothing after the filter is read.
        :param encode: as in the constructor; it must be the `encode` of the saved filter.
        :param progress: called with the number of bytes done so far, and the total.
        :raises ValueError: the file was cut or changed, or has a filter of another class.
        :raises FilterExistsError: the name is taken; its key is left unchanged.
        """
        made: Self = cls._from_server(client, arguments.name(name), encode=encode)
        own = made._operations
        with files.read(file) as opened:
            steps = transfer.restore(
                *(own.name, transfer.class_of(own), opened),
                encoded=number_of(encode),
                progress=progress,
            )
            await made._run(steps)
        await made._run(transfer.opened(own.acknowledge()))
        return made

    @observed
    async def copy(self, client: AsyncClient, name: str, *, progress: Progress | None = None) -> Self:
        """Copy the filter to a free name, on any server; return the copy.

        This is `save` and `restore` without a file: the bits pass through this process, in constant memory.

        :raises FilterExistsError: the name is taken; its key is left unchanged.
        :raises FilterLostError: the filter was cleared or lost meanwhile; no copy was made.
        """
        stored = transfer.stored_of(self._operations)
        encode = self._operations.options.encode
        made: Self = self._from_server(client, arguments.name(name), encode=encode)
        source = await self._run(reading.read_parts(stored))
        pieces = self._pieces(source, *source.saved.parts)
        await made._run(transfer.copy(name, source.saved, pieces, progress))
        await made._run(transfer.opened(made._operations.create()))
        return made

    @observed
    async def merge(
        self, other: Portable[I] | snapshots.LocalFilter[I], *, progress: Progress | None = None
    ) -> None:
        """Add all items of another filter, which stays as it is: the union of both.

        Both filters are a `BloomFilter`, or both a `ShardedBloomFilter`, on one server or on two; or the
        other is a `LocalFilter`.  They have the same parameters and the same `encode`.  The bits are OR-ed in
        pieces of 128 KB; if both filters are in one slot, the server does it by itself.  Other clients may
        add meanwhile, and nothing that they add to this filter is lost.  From then on the count is an
        estimate; a warning is logged if it exceeds the capacity.  After an error, merge again.

        :param progress: called with the number of bytes done so far, and the total.
        :raises FilterMismatchError: the parameters of the filters differ.
        :raises TypeError: filters of such a class cannot be merged; the message says what to do instead.
        """
        own: Any = self._operations  # `_source` raises if these cannot be merged
        await self._run(union.merge(own, await self._source(other), progress))

    async def _source(self, other: Portable[I] | snapshots.LocalFilter[I]) -> union.MergeSource:
        transfer.stored_of(self._operations)
        if isinstance(other, snapshots.LocalFilter):
            pieces = union.local_pieces(other)
            # asyncio:
            return union.local_source(other, lambda part: _each(pieces(part)))
            # sync: return union.local_source(other, pieces)
            # both.
        check_same_class(self, other)
        return await other._as_source(self._client)

    async def _as_source(self, for_client: object) -> union.MergeSource:
        source = await self._run(reading.read_parts(transfer.stored_of(self._operations)))
        pieces = partial(self._pieces, source)
        return union.stored_source(source, pieces, share_node(self._client, for_client))

    async def _pieces(self, source: reading.StoredParts, *parts: Part) -> AsyncIterator[list[bytes]]:
        """Read the pieces of these parts, those of one of their `byte_ranges` at a time."""
        for part in parts:
            for run in reading.byte_ranges(part):
                yield await self._run(source.read(part, run))


class Adopting(AsyncDriven, Generic[I]):
    """Filters that can take over a `BloomFilter` as their first layer."""

    @classmethod
    @observed
    async def adopt(
        cls,
        client: AsyncClient,
        name: str,
        *,
        expansion: int = 2,
        tightening_ratio: float = 0.5,
        encode: Callable[[I], bytes] | None = None,
    ) -> Self:
        """Turn a `BloomFilter` that is full or nearly full into a filter that grows; return it.

        The filter becomes the oldest layer in one step: nothing that others add meanwhile is lost.  It keeps
        its name, its items, its count and its time to live.  Its own error rate stays as it is, so the error
        rate of all layers together is 1 / (1 - `tightening_ratio`) times as high, by default twice.  Its
        items cannot be hashed again, so an overfull filter keeps its higher error rate.  The filter gets
        another generation: objects that used the `BloomFilter` raise `FilterLostError`; use objects of
        `ScalingBloomFilter` from then on.

        :param expansion: room of a layer divided by that of the layer before.
        :param tightening_ratio: error rate of a layer divided by that of the layer before.
        :param encode: as in the constructor; it must be the `encode` of the `BloomFilter`.
        :raises FilterNotFoundError: no filter has this name.
        :raises FilterMismatchError: the key holds something else than a `BloomFilter`; it is left unchanged.
        :raises ValueError: the filter's error rate is so high that another layer can have none.
        """
        made: Self = cls._from_server(client, arguments.name(name), encode=encode)
        await made._run(scaling.adoption(name, expansion, tightening_ratio, number_of(encode)))
        await made._run(transfer.opened(made._operations.create()))
        return made


class Expiring(Bound[AsyncClient]):
    """Filters that can get another time to live."""

    @observed
    async def expire(self, ttl: float | timedelta) -> None:
        """Let all keys of the filter expire `ttl` seconds (or a timedelta) from now.

        :raises OutcomeUnknownError: no reply came; make the call again.
        :raises FilterLostError: the filter was lost since this object first used it.
        """
        await drive(self._transport, self._operations.expire(ttl))


# asyncio:
async def _each(items: Iterator[T]) -> AsyncIterator[T]:
    for item in items:
        yield item


# both.
