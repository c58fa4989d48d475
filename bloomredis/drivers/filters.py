"""The verbs of the public classes over synchronous clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Self, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray

from bloomredis.arguments import check_items, listed
from bloomredis.bits.encoding import rows_from
from bloomredis.drivers.batches import batches, is_alone, numbered
from bloomredis.drivers.claiming import Claimer
from bloomredis.drivers.columns import Mask
from bloomredis.drivers.connections.clients import SyncClients
from bloomredis.drivers.connections.direct import reads_at_once
from bloomredis.drivers.lifecycle import Portable
from bloomredis.drivers.observing import observed
from bloomredis.drivers.sharing.batch import MOST_ITEMS, Several
from bloomredis.drivers.sharing.threads import Threads, sharing_calls
from bloomredis.drivers.sync import drive
from bloomredis.errors import BatchInterruptedError
from bloomredis.operations.items.outcomes import PASSING, raise_unread
from bloomredis.operations.options import CommonParameters, I
from bloomredis.operations.whole.info import FilterInfo
from bloomredis.operations.whole.loading import LOAD_ITEMS
from bloomredis.protocol.cluster import is_cluster
from bloomredis.protocol.steps import Op

T = TypeVar("T")
J = TypeVar("J")

DEDUPE_ITEMS: Final = 1000
"""Items that `dedupe` reads ahead and sends together."""

UPDATE_ITEMS: Final = 16_384
"""Items that `update` reads ahead and sends together."""


class Filter(Claimer[I], Portable[I]):
    """The verbs that every class has."""

    def _bind(self) -> None:
        operations = self._operations
        self._link = client = self._linked()
        self._coalesce = operations.options.coalesce is True
        operations.read_at_once(reads_at_once(client) and not is_cluster(type(self._client)))
        self._adds = Threads(client, operations.add_encoded)
        self._tests = Threads(client, lambda items, _: operations.contains_encoded(items))
        self._shared = sharing_calls(client).execute if self._coalesce else None

    def _run_batch(
        self, items: Iterable[I], verb: Callable[[list[I]], Op[list[bool]]], shared: Threads
    ) -> list[bool]:
        batch = listed(items)
        if not self._coalesce or not 0 < len(batch) < MOST_ITEMS:
            return list(self._run(verb(batch)))
        several = Several(self._operations.codec.encode_each(batch), batch)
        return list(shared.share(several, verb, batch))

    @classmethod
    def open(cls, client: SyncClients, name: str, **options: Unpack[CommonParameters[I]]) -> Self:
        """Return a filter whose parameters are read from the server.

        :param options: those of the class that are no parameters of what is stored, as `on_lost`, and the
            `encode` that the filter was made with.
        :raises FilterNotFoundError: there is none.
        :raises FilterMismatchError: it is of another class, or was made with another `encode`.
        :raises FilterLostError: the record of a sharded filter is there and a shard is not; a filter that is
            made with the constructor goes on without it after `reserve()`.
        """
        opened = cls._from_server(client, name, **options)
        opened.reserve()
        return opened

    @observed
    def add(self, item: I, *, token: str | None = None) -> bool:
        """Add an item; True if this call was the first to add it.

        Exactly one of any number of concurrent callers gets True.  One round trip.

        :param token: that of an `OutcomeUnknownError`; the answer is that of the call it came from.
        :raises OutcomeUnknownError: no answer came; its `token` makes it safe to ask again.
        :raises ConnectionFailedError: no answer came, and nothing was added.
        """
        operations = self._operations
        if token is None and operations.cache is not None and operations.in_local_cache(item):
            return False
        if token is not None or not self._coalesce:
            return drive(self._link, operations.add(item, token=token))
        encoded = operations.codec.encode_for_batch(item)
        return self._adds.share(encoded, operations.add, item)

    @observed
    def contains(self, item: I) -> bool:
        """Return whether an item is in the filter: False is certain, True errs at the error rate.

        One round trip.

        :raises ConnectionFailedError: no answer came; likewise from all calls that only read.
        """
        operations = self._operations
        if operations.cache is not None and operations.in_local_cache(item):
            return True
        if not self._coalesce:
            return drive(self._link, operations.contains(item))
        encoded = operations.codec.encode_for_batch(item)
        return self._tests.share(encoded, operations.contains, item)

    def __contains__(self, item: I) -> bool:
        return self.contains(item)

    @observed
    def add_many(self, items: Iterable[I]) -> list[bool]:
        """Add items; return for each, in order, whether it was new.

        The first of two equal items is new, the second is not.  A batch is cut so that no script
        runs longer than about 2 ms; each script is atomic, the batch as a whole is not.  All items
        are checked before the first is sent, so an iterator is read to its end at once.

        :raises BatchInterruptedError: an error came in between; it has the answers so far.
        """
        return self._run_batch(items, self._operations.add_many, self._adds)

    @observed
    def contains_many(self, items: Iterable[I]) -> list[bool]:
        """Return for each item, in order, whether it is in the filter.

        :raises ConnectionFailedError: no reply came; nothing was changed.
        :raises FilterLostError: the filter was lost since this object first used it.
        """
        return self._run_batch(items, self._operations.contains_many, self._tests)

    def new_mask(self, column: Any) -> NDArray[np.bool_]:
        """Add the items of a column; return an array that says of each row whether it was new.

        It is for an array of numpy, or a column of pandas, Arrow or polars, of which the rows where the mask
        is true are then taken: ``frame[seen.new_mask(frame["url"])]``.  Of equal rows the first is new.

        :raises BatchInterruptedError: an error came in between; `rest` is the column from there on.
        """
        mask = Mask("new_mask", column)
        for batch in mask.batches():
            with mask.asking():
                mask.take(self.add_many(batch))
        return mask.answers

    def contains_mask(self, column: Any) -> NDArray[np.bool_]:
        """Return an array that says of each row of a column whether its item is in the filter."""
        mask = Mask("contains_mask", column)
        for batch in mask.batches():
            with mask.asking():
                mask.take(self.contains_many(batch))
        return mask.answers

    def update(self, items: Iterable[I]) -> int:
        """Add items; return how many were new.  An iterator is read in batches as they are sent.

        :raises BatchInterruptedError: an error came in between; `error.rest` has the items of its batch.
        """
        new = 0
        for batch, rows in numbered(batches(items, UPDATE_ITEMS)):
            try:
                with rows_from(rows):
                    new += sum(self.add_many(batch))
            except (BatchInterruptedError, *PASSING) as error:
                raise_unread(error, "update", batch, is_alone=is_alone(items, rows))
        return new

    def dedupe(self, items: Iterable[J], *, key: Callable[[J], Any] | None = None) -> Iterator[J]:
        """Yield those of the items that were new, in order, as they are read.

        The items are sent in batches of up to 1,000, so that many are added before the first of them
        is yielded.  Where a batch is interrupted, its items that are known to be new are yielded
        before the error is raised; `error.rest` has those without an answer.  Items that were added and are
        not asked for any more, as after a `break`, are new to the next call on this object.

        :param key: what is added for an item, such as ``itemgetter("id")``; None for the item itself.
        :raises BatchInterruptedError: an error came in between.
        """
        add_many: Callable[[list[Any]], list[bool]] = self.add_many
        for batch, rows in numbered(batches(items, DEDUPE_ITEMS)):
            keys: list[Any] = batch if key is None else list(map(key, batch))
            try:
                with rows_from(rows):
                    answers = add_many(keys)
            except (BatchInterruptedError, *PASSING) as error:
                yield from self._operations.new_items(batch, keys, getattr(error, "results", ()))
                raise_unread(error, "dedupe", batch, is_alone=is_alone(items, rows))
            yield from self._operations.new_items(batch, keys, answers)

    @observed
    def load(self, items: Iterable[I], progress: Callable[[int], object] | None = None) -> int:
        """Add items as fast as possible, without an answer for each; return how many were read.

        They are collected in batches that are the larger, the larger the filter is.  A batch that is dense
        enough is or-ed into the filter as segments of bits, a sparser one is added probe by probe; either way
        the server is never busy for longer than about 2 ms at a time, each segment is set atomically, and
        others may add meanwhile.

        Memory does not grow with the number of items, but with the filter's size: some 10 MB, and twice as
        much as the filter has, up to 200 MB.  A filter of more than 128 MB is loaded probe by probe.

        After a fault it may simply be called again with all items.  The filter's `count` then misses at
        most the new items of the batch that was interrupted.

        :param items: any iterable, an array of numpy, or a column of pandas or Arrow.
        :param progress: called with the number of items done so far.
        :raises ConnectionFailedError, OutcomeUnknownError: no reply came; load all items again.
        :raises ServerRefusedError: the server refuses writes; load all items again once it does not.
        :raises FilterLostError: the filter was lost since this object first used it.
        """
        if hasattr(items, "__array__"):
            check_items(items)  # before the filter is opened
        return self._run(self._operations.load(batches(items, LOAD_ITEMS), progress))

    @observed
    def reserve(self) -> None:
        """Create the filter now, or check the stored one.

        After a `FilterLostError` the filter that is there now, or a new one, is used from here on.

        :raises FilterMismatchError: the key holds something else; it is left untouched.
        :raises FilterNotFoundError: it does not exist, and there are no parameters to create it.
        """
        self._run(self._operations.reserve())

    @observed
    def info(self) -> FilterInfo:
        """Return the filter's parameters and how full it is.

        Costs a BITCOUNT over the whole filter, cut in pieces of under 2 ms.

        :raises ConnectionFailedError: no reply came.
        :raises FilterNotFoundError: it does not exist, and there are no parameters to create it.
        :raises FilterLostError: the filter was lost since this object first used it.
        """
        return self._run(self._operations.info())

    @observed
    def approximate_count(self) -> int:
        """Estimate the number of items from the share of bits set; costs what `info` does.

        :raises ConnectionFailedError: no reply came.
        :raises FilterLostError: the filter was lost since this object first used it.
        """
        return self._run(self._operations.approximate_count())

    @observed
    def clear(self) -> None:
        """Empty the filter: a new generation with the same parameters and the same expiry.

        Other clients notice at their next call (`FilterLostError`).  A missing filter is created.

        :raises OutcomeUnknownError: no reply came: it may be empty or not; clear it again.
        :raises FilterMismatchError: the key holds something else; it is left untouched.
        :raises ServerRefusedError: the server refuses writes; nothing was changed.
        """
        self._run(self._operations.clear())

    @observed
    def delete(self) -> bool:
        """Delete the filter; True if it existed.  This object's next call may create it again.

        :raises FilterMismatchError: the key holds something else; it is left untouched.
        """
        return self._run(self._operations.delete())

    def close(self) -> None:
        """Close the connections of a client that `from_url` made; one that was given stays as it is."""
        for client in self._own_clients():
            client.close()
