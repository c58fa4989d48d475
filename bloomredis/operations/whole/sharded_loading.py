"""Bulk load of a sharded filter: its items are split by shard, and each shard has a load of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NoReturn

from bloomredis.bits.encoding import Encoder, rows_from
from bloomredis.bits.hashing import Digests
from bloomredis.bits.picked import Picked
from bloomredis.errors import BatchInterruptedError
from bloomredis.operations.items.outcomes import TRANSIENT, raise_batch_of_stream
from bloomredis.operations.whole.load_calls import LoadCalls, LoadedFilter
from bloomredis.operations.whole.loading import Load, WaitingItems, counted, send_full
from bloomredis.protocol.gather import error_to_raise, gather
from bloomredis.protocol.steps import Batches, Compute, Next, Op
from bloomredis.stored.shards.parts import StoredShard
from bloomredis.stored.shards.shards import StoredShards

SPLIT_TOGETHER: Final = 1 << 16
"""Items that are read before they are split by shard, so that each shard hashes many at once."""
LOADED_TOGETHER: Final = 4
"""Shards to which items are sent at a time: each takes memory while its segments are sent."""


@dataclass(slots=True)
class ShardLoad:
    """The batch of a load for one shard.

    :ivar since: number of items that had been read when the batch began.
    """

    load: Load
    since: int = 0

    def append(self, waiting: WaitingItems, read: int) -> None:
        """Add items to the batch; `read` is the number of items read before them."""
        if not self.load.items:
            self.since = read
        self.load.append(waiting)


def load(
    stored: StoredShards,
    part_of: Callable[[StoredShard], LoadedFilter],
    encoder: Encoder,
    source: Batches,
    progress: Callable[[int], object] | None,
) -> Op[int]:
    """Add items as fast as possible; return the number of items read.

    :param part_of: returns the operations of a shard.
    :param source: an iterator of batches.
    """
    loads: dict[StoredShard, ShardLoad] = {}
    read, told, is_over = 0, 0, False
    while not is_over:
        batch = yield from _read(source)
        is_over = len(batch) < SPLIT_TOGETHER
        if batch:
            yield from stored.acquire()
            split: dict[StoredShard, WaitingItems] = yield Compute(
                partial(_split, stored, encoder, batch, read)
            )
            for shard in [each for each in split if each not in loads]:
                handle = yield from shard.acquire()
                loads[shard] = ShardLoad(Load(shard.segmented(handle), encoder, parts=stored.record.shards))
            yield Compute(partial(_append, loads, split, read))
            read += len(batch)
        begun = {shard: each.load for shard, each in loads.items() if each.load.items}
        due = (shard for shard, each in begun.items() if each.is_full or is_over)
        outcomes = yield from gather(
            (send_full(LoadCalls(part_of(shard)), begun[shard], ends=True) for shard in due),
            most=LOADED_TOGETHER,
        )
        done = min((each.since for each in loads.values() if each.load.items), default=read)
        if errors := [each for each in outcomes if isinstance(each, Exception)]:
            _raise_unread(error_to_raise(errors), [each.load for each in loads.values()], read, done)
        if progress is not None and done > told:
            told = done
            progress(done)
    return read


def _read(source: Batches) -> Op[list[object]]:
    """Return the next `SPLIT_TOGETHER` items or more; fewer at the end."""
    batch: list[object] = []
    while len(batch) < SPLIT_TOGETHER and (some := (yield Next(source))):
        batch += some
    return batch


def _split(
    stored: StoredShards, encoder: Encoder, batch: Sequence[Any], read: int
) -> dict[StoredShard, WaitingItems]:
    """Return the items of each shard; `read` is the number of items read before the batch."""
    with rows_from(read):
        encoded = encoder.encode_all(batch)
    digests = Digests.of(encoded)
    return {
        shard: WaitingItems(Picked(batch, own), Picked(encoded, own), digests.take(own))
        for shard, own in stored.parted(encoded).items()
    }


def _append(
    loads: Mapping[StoredShard, ShardLoad], split: Mapping[StoredShard, WaitingItems], read: int
) -> None:
    """Add the items of each shard to its batch."""
    for shard, waiting in split.items():
        loads[shard].append(waiting, read)


def _raise_unread(error: Exception, loads: Iterable[Load], read: int, done: int) -> NoReturn:
    """Raise the error of a load that has read `read` items and added the first `done` of them.

    The error has the items that were not added, if they are still in this process.
    """
    reason = error.__cause__ if isinstance(error, BatchInterruptedError) else error
    unsent = [each for each in loads if each.items]
    with counted(lambda: done):
        if isinstance(reason, TRANSIENT) and all(each.waiting for each in unsent):
            rest = [item for each in unsent for run in each.waiting for item in run.items]
            raise_batch_of_stream(reason, "update", rest, can_repeat_all=len(rest) == read)
        raise error
