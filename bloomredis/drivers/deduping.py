# Made from aio_deduping.py by `make generate`: change that file instead.
"""`dedupe`; with asyncio, a task reads the source while the caller works."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, Final, TypeVar

from bloomredis import arguments
from bloomredis.bits.sizing import positive
from bloomredis.drivers.batches import can_repeat_all
from bloomredis.drivers.driven import Driven
from bloomredis.drivers.keyed import KeyedBatch
from bloomredis.drivers.streams import Paced
from bloomredis.errors import BatchInterruptedError, BloomError
from bloomredis.operations.items.outcomes import TRANSIENT, raise_batch_of_stream

J = TypeVar("J")

DEDUPE_ITEMS: Final = 1000
"""Items that `dedupe` sends together, unless its caller says otherwise."""


class Deduping(Driven):
    """Filters that pass on the new items of an iterable."""

    def dedupe(
        self,
        items: Iterable[J],
        *,
        key: Callable[[J], Any] | None = None,
        missing: arguments.Missing = "raise",
        batch: int = DEDUPE_ITEMS,
    ) -> Iterator[J]:
        """Yield the items that were new, in order, while they are read.

        The items are sent in batches: a whole batch is added before its first item is yielded.  An iterator's
        batch collects items for no longer than the last one took to be sent.  So after an item that took
        longer than a round trip to come, all items are sent before the next is asked for.  While the iterator
        waits, this call holds at most the items that came in a burst before it.  A list, or another
        collection with a length, is sent in batches of `batch`.

        With an asyncio filter, a task reads an async iterable, and all items that came are sent as soon as it
        waits; it may then go on to wait while the caller works.  A caller that stops early cancels it.

        If a batch is interrupted, its items that are known to be new are yielded before the error is raised;
        `error.rest` has the items without an answer.  If the iterable raises, the items that it gave before
        are added first, and those that were new are yielded.  If the caller stops early, for example with
        `break`, the items that were added but not yielded are new to the next add of this object.

        :param key: a function that returns the value to add for an item, such as ``itemgetter("id")``; None
            adds the item itself.
        :param missing: treatment of an item whose value is None or another null: "raise" an error that says
            which item it is, "keep" the item (it is yielded unchecked), or "drop" it.
        :param batch: the most items that are sent together.  If the process is killed, so many items at most
            are in the filter and were not yielded.
        :raises BatchInterruptedError: an error stopped a batch.
        """
        arguments.one_of("missing", missing, "keep", "drop", "raise")
        arguments.function("key", key, 'of an item, such as itemgetter("id")')
        most = positive("batch", batch)
        return self._deduped(items, key, missing, most, [])

    def _deduped(
        self,
        items: Iterable[J],
        key: Callable[[J], Any] | None,
        missing: arguments.Missing,
        most: int,
        opened: list[Generator[J, None, None]],
    ) -> Iterator[J]:
        """Yield the new items.

        :param opened: gets the generator of the batch whose items are yielded.
        """
        own: Any = self  # `add_many` is a method of the filters
        rows = 0
        source = Paced(items, most)
        with closing(source):
            for read in source:
                keyed = KeyedBatch(read, key, missing)
                failed: BloomError | None = None
                try:
                    with keyed.adding(rows), source.sending():
                        answers: Sequence[bool] = keyed.answers(own.add_many(keyed.present))
                except (BatchInterruptedError, *TRANSIENT) as error:
                    failed, answers = error, getattr(error, "results", ())
                with closing(keyed.new_items(self._operations, answers)) as new:
                    opened[:] = [new]
                    yield from new
                if failed is not None:
                    rest = [*keyed.items, *source.unsent()]
                    raise_batch_of_stream(failed, "dedupe", rest, can_repeat_all=can_repeat_all(items, rows))
                rows += len(read)

    _deduped.__code__ = _deduped.__code__.replace(co_name="dedupe")  # tracebacks show the public method
