"""Filters as a whole, over synchronous clients: saved, restored, copied."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Generic, Self

from bloomredis import arguments
from bloomredis.bits.encoding import number_of
from bloomredis.drivers.binding import Bound
from bloomredis.drivers.connections.clients import SyncClient
from bloomredis.drivers.driven import Driven
from bloomredis.drivers.observing import observed
from bloomredis.drivers.sync import drive
from bloomredis.operations.kinds.scaling import adoption
from bloomredis.operations.options import I
from bloomredis.operations.whole import files, transfer, union
from bloomredis.operations.whole.files import File
from bloomredis.operations.whole.snapshot import LocalFilter
from bloomredis.operations.whole.transfer import Progress
from bloomredis.protocol.cluster import is_cluster
from bloomredis.stored.saved import reading
from bloomredis.stored.saved.format import Part


class Portable(Driven, Generic[I]):
    """Filters that can be saved and copied."""

    @observed
    def save(self, file: File, *, progress: Progress | None = None) -> None:
        """Write the filter to a file, with a checksum, in constant memory.

        The file has all that was added before this call; what others add meanwhile may be in it or not.
        Reading costs the server some 1 ms a megabyte, in pieces of 0.1 ms.  `lua/FORMAT.md` describes it.

        :param file: a path, whose file is there as a whole or as it was before; or an open binary file, which
            need not be seekable.
        :param progress: called with the bytes done so far, and all of them.
        :raises FilterLostError: it was cleared or lost meanwhile; the file is of no use.
        :raises TypeError: it is a bitmap of another system, or in a key of the server's module.
        """
        stored = transfer.stored_of(self._operations)
        with files.written(file) as opened:
            self._run(transfer.save(stored, opened, progress))

    @classmethod
    @observed
    def restore(
        cls,
        client: SyncClient | Sequence[SyncClient],
        name: str,
        file: File,
        *,
        encode: Callable[[I], bytes] | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Put a saved filter under a name that is free; return it.

        It is a new filter with the same answers: of another generation, with the parameters and the count
        that the file has.  It lives as long from now on as the filter had left when it was saved; what a
        rotating filter has forgotten by now is left out.  It is written beside the name and appears in one
        step; where that does not come about, nothing is left ten minutes later.

        :param client: of any server, cluster or list of servers, whatever the filter was saved from.
        :param file: a path, or an open binary file, which need not be seekable; nothing is read behind the
            filter where it is not, so that a connection may go on.
        :param encode: as in the constructor; it has to be that of the filter that was saved.
        :param progress: called with the bytes done so far, and all of them.
        :raises ValueError: the file was cut or changed, or has a filter of another class.
        :raises FilterMismatchError: the name is taken; what is there is left unchanged.
        """
        made: Self = cls._from_server(client, arguments.name(name), encode=encode)
        own = made._operations
        with files.read(file) as opened:
            steps = transfer.restore(
                *(own.name, transfer.class_of(own), own.servers, opened),
                encoded=number_of(encode),
                progress=progress,
            )
            made._run(steps)
        made._run(own.reserve())
        return made

    @observed
    def copy(
        self, client: SyncClient | Sequence[SyncClient], name: str, *, progress: Progress | None = None
    ) -> Self:
        """Copy the filter to a name that is free, on any server; return the copy.

        It is as if the filter was saved and restored, without a file between: see `save` and `restore`.

        :raises FilterMismatchError: the name is taken; what is there is left unchanged.
        :raises FilterLostError: it was cleared or lost meanwhile; there is no copy.
        """
        stored = transfer.stored_of(self._operations)
        encode = self._operations.options.encode
        made: Self = self._from_server(client, arguments.name(name), encode=encode)
        both: Any = [self._link, made._link]
        drive(both, transfer.copy(stored, name, made._operations.servers, progress))
        made._run(made._operations.reserve())
        return made

    @observed
    def merge(self, other: Portable[I] | LocalFilter[I], *, progress: Progress | None = None) -> None:
        """Add all that another filter has, which stays as it is: the union of both.

        Both are a `BloomFilter` or a `ShardedBloomFilter`, with the same parameters and the same `encode`, on
        one server or on two; or the other is a `LocalFilter`.  The bits are or-ed in pieces of 128 KB, in the
        server where both are in one slot; others may add meanwhile, to this filter without a loss.  The
        count is an estimate from then on; a warning is logged if it is beyond the capacity.  After a fault it
        may simply be called again.

        :param progress: called with the bytes done so far, and all of them.
        :raises FilterMismatchError: their parameters differ.
        :raises TypeError: they are of a class that cannot be merged; the message says what to do instead.
        """
        own: Any = self._operations  # that can be merged, or `_source` raises
        self._run(union.merge(own, self._source(other), progress))

    def _source(self, other: Portable[I] | LocalFilter[I]) -> union.Source:
        transfer.stored_of(self._operations)
        if isinstance(other, LocalFilter):
            return union.local_source(other, union.local_pieces(other))
        check_same_class(self, other)
        return other._as_source(self._client)  # noqa: SLF001 - of the same class

    def _as_source(self, for_client: object) -> union.Source:
        parts = self._run(reading.parts_of(transfer.stored_of(self._operations)))

        def pieces(part: Part) -> Iterator[list[bytes]]:
            return (self._run(parts.read(part, run)) for run in reading.runs(part))

        return union.stored_source(parts, pieces, together(self._client, for_client))


class Adopting(Driven, Generic[I]):
    """Filters that a plain one can become a part of."""

    @classmethod
    @observed
    def adopt(
        cls,
        client: SyncClient,
        name: str,
        *,
        expansion: int = 2,
        tightening_ratio: float = 0.5,
        encode: Callable[[I], bytes] | None = None,
    ) -> Self:
        """Turn a `BloomFilter` that is full, or soon is, into a filter that grows; return it.

        It keeps its name, its items, its count and its time to live, and becomes the oldest layer, in one
        step: nothing that others add meanwhile is lost.  Its error rate stays as it is, so that of the whole
        is 1 / (1 - `tightening_ratio`) times as high, by default twice.  Its bits cannot be hashed again, so
        one that is overfull goes on to err as it does.  It gets another generation: objects that used the
        `BloomFilter` raise `FilterLostError`, and have to be of `ScalingBloomFilter` from then on.

        :param expansion: how many times larger a layer is than the one before.
        :param tightening_ratio: the error rate of a layer as a share of that of the one before.
        :param encode: as in the constructor; it has to be that of the `BloomFilter`.
        :raises FilterNotFoundError: there is none.
        :raises FilterMismatchError: it is no `BloomFilter`; it is left unchanged.
        :raises ValueError: its error rate leaves none for another layer.
        """
        made: Self = cls._from_server(client, arguments.name(name), encode=encode)
        made._run(adoption(name, expansion, tightening_ratio, number_of(encode)))
        made._run(made._operations.reserve())
        return made


class Expiring(Bound[SyncClient]):
    """Filters that can be given a time to live."""

    @observed
    def expire(self, seconds: float | timedelta) -> None:
        """Let everything that the filter stores expire that many seconds (or a timedelta) from now.

        :raises OutcomeUnknownError: no reply came; make the call again.
        :raises FilterLostError: the filter was lost since this object first used it.
        """
        drive(self._link, self._operations.expire(seconds))


def check_same_class(one: Bound[Any], other: object) -> None:
    """Raise `TypeError` for a filter that cannot be merged into another."""
    if not isinstance(other, type(one)):
        raise TypeError(
            f"a {type(one).__name__} is merged with another one or with a LocalFilter, not with "
            f"{type(other).__name__} {arguments.shown(other)}"
        )


def together(one: Any, other: Any) -> Callable[[bytes, bytes], bool]:
    """Return what says whether two keys of two filters, with these clients, are in one slot of one server."""
    if one is not other or isinstance(one, list | tuple):
        return lambda *_: False
    kind: type = type(one)
    if not is_cluster(kind):
        return lambda *_: True
    return lambda first, second: one.keyslot(first) == one.keyslot(second)
