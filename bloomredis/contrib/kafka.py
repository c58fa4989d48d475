"""Kafka: batches of records; each record is worked on once, and no offset passes an unfinished record.

`Batches` is for a `Consumer` of confluent-kafka, `AsyncBatches` for a consumer of aiokafka.  Turn off the
consumer's `enable.auto.commit`.  A batch is claimed in one round trip, and committed in another.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.util import find_spec
from typing import Any, Final

from bloomredis.contrib import missing
from bloomredis.contrib._flavours import require_async, require_sync
from bloomredis.contrib._records import (
    PartitionId,
    Partitions,
    Positions,
    Read,
    Records,
    entries_of,
    keyed,
    starts_of,
)

if not (find_spec("confluent_kafka") or find_spec("aiokafka")):
    raise missing("kafka", "confluent-kafka or aiokafka")

__all__ = ["AsyncBatch", "AsyncBatches", "Batch", "Batches"]

NOT_COMMITTED: Final = "offsets were not committed (%s): the next batch commits them"

_log = logging.getLogger("bloomredis")


class Batch(Records):
    """A batch of records; iterating over it yields the records that this consumer holds.

    A record is finished when the loop asks for the next one.  Claims are extended between records, so each
    record, not the whole batch, must be finished within two thirds of the lease.
    """

    def __iter__(self) -> Iterator[Any]:
        """Yield each record to work on; of records with equal items the first."""
        self._give_back()
        while self._work:
            if self._is_aging():
                self._seen.extend_many(self.held(), self._lease)
            if entry := self._take():
                yield entry.record
                self._finish()


class AsyncBatch(Records):
    """A batch of records, for `async for`: see `Batch`."""

    async def __aiter__(self) -> AsyncIterator[Any]:
        """Yield each record to work on; of records with equal items the first."""
        self._give_back()
        while self._work:
            if self._is_aging():
                await self._seen.extend_many(self.held(), self._lease)
            if entry := self._take():
                yield entry.record
                self._finish()


class Batches(Partitions):
    """Batches of the records that a consumer of confluent-kafka reads.

    ::

        batches = Batches(consumer, seen)
        while True:
            with batches.next(500) as batch:
                for record in batch:
                    process(record)

    At the end of the block the finished records are committed.  Then the offsets are committed: in each
    partition, up to the first record that is not done.  If that record is busy (another consumer holds it,
    and may have died), the partition waits until its claim ends.  Records that were not finished are given
    back.

    :param key: returns the key of a record, which also finds duplicates that a producer sent.  By default
        the key is the topic, partition and offset, which finds only redeliveries.  The item is made of the
        key and of the consumer's group.
    :param missing: treatment of a record whose `key` is None, such as a tombstone: "keep" hands it on
        unchecked, "drop" counts it as done, and with "raise" `next` raises `TypeError`, which stops its
        partition.
    :param lease: a dead consumer's records are free after so many seconds.  A record must be finished within
        two thirds of it.
    :param whole: the effects of a batch become final together, at the end of the block: if the block raises,
        all records are given back, including the finished ones.
    :param bare: leave the group out of the item: a record is done for all groups together.
    """

    _require = staticmethod(require_sync)

    @contextmanager
    def next(self, size: int = 500, timeout: float = 1.0) -> Iterator[Batch]:
        """Read up to `size` records within `timeout` seconds, and claim them.

        :raises BloomError: the filter does not answer; the records are read again by the next call.
        """
        batch = self._claimed(self._read(size, timeout))
        try:
            yield batch
        except BaseException:
            batch.fail()
            raise
        finally:
            try:
                self._seen.commit_many(batch.finish())
                self._seen.release_many(batch.unfinished())
            finally:
                self._settle(batch.positions())

    def _read(self, size: int, timeout: float) -> Read:
        from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 - aiokafka is enough for the other class

        self._seek()
        if due := self._assigned(dict.fromkeys(self._due(), 0)):
            self._consumer.resume(due)
            self._resumed((each.topic, each.partition) for each in due)
        records = self._consumer.consume(size, timeout)
        read = [
            (record, (record.topic(), record.partition()), record.offset())
            for record in records
            if record.error() is None
        ]
        errors = [record.error() for record in records if record.error() is not None]
        if failed := [each for each in errors if each.code() != KafkaError._PARTITION_EOF]:  # noqa: SLF001 - the client's name
            self._go_back(starts_of(read))
            raise KafkaException(failed[0])
        return read

    def _claimed(self, read: Read) -> Batch:
        with self._claiming(read) as items:
            claims = self._seen.claim_many(keyed(items), lease=self._lease)
        return Batch(self._seen, entries_of(read, items, claims), self._lease, whole=self._whole)

    def _assigned(self, offsets: dict[PartitionId, int]) -> list[Any]:
        """Return the partitions that are still assigned to this consumer, as objects of the client."""
        from confluent_kafka import TopicPartition  # noqa: PLC0415 - as above

        mine = {(each.topic, each.partition) for each in self._consumer.assignment()}
        return [TopicPartition(*place, offset) for place, offset in offsets.items() if place in mine]

    def _settle(self, positions: Positions) -> None:
        """Commit offsets, and go back where a record is not done."""
        from confluent_kafka import KafkaException  # noqa: PLC0415 - as above

        self._go_back(positions)
        offsets = self._assigned(self._offsets(positions))
        try:
            if offsets:
                self._consumer.commit(offsets=offsets, asynchronous=False)
            self._uncommitted.clear()
        except KafkaException as error:
            _log.warning(NOT_COMMITTED, error)

    def _go_back(self, positions: Positions) -> None:
        """Let partitions wait, and then go on where they have to."""
        self._wait(positions)
        if back := self._assigned(self._behind):
            self._consumer.pause(back)
            self._seek()

    def _seek(self) -> None:
        """Seek in the partitions where a seek is pending."""
        back = {(each.topic, each.partition): each for each in self._assigned(self._behind)}
        self._catch_up(back, lambda place, _: self._consumer.seek(back[place]))


class AsyncBatches(Partitions):
    """Batches of the records that a consumer of aiokafka reads, with `async with`: see `Batches`."""

    _require = staticmethod(require_async)

    @asynccontextmanager
    async def next(self, size: int = 500, timeout: float = 1.0) -> AsyncIterator[AsyncBatch]:  # noqa: ASYNC109 - the broker's
        """Read up to `size` records, waiting up to `timeout` seconds for the first, and claim them."""
        batch = await self._claimed(await self._read(size, timeout))
        try:
            yield batch
        except BaseException:
            batch.fail()
            raise
        finally:
            try:
                await self._seen.commit_many(batch.finish())
                await self._seen.release_many(batch.unfinished())
            finally:
                await self._settle(batch.positions())

    async def _read(self, size: int, timeout: float) -> Read:  # noqa: ASYNC109 - as above
        self._seek()
        if due := self._assigned(self._due()):
            self._consumer.resume(*due)
            self._resumed(due.values())
        read = await self._consumer.getmany(timeout_ms=int(timeout * 1000), max_records=size)
        return [
            (record, (record.topic, record.partition), record.offset)
            for records in read.values()
            for record in records
        ]

    async def _claimed(self, read: Read) -> AsyncBatch:
        with self._claiming(read) as items:
            claims = await self._seen.claim_many(keyed(items), lease=self._lease)
        return AsyncBatch(self._seen, entries_of(read, items, claims), self._lease, whole=self._whole)

    def _assigned(self, places: Iterable[PartitionId]) -> dict[Any, PartitionId]:
        """Return the places that are still assigned to this consumer, by the partitions of the client."""
        mine = {(each.topic, each.partition): each for each in self._consumer.assignment()}
        return {mine[place]: place for place in places if place in mine}

    async def _settle(self, positions: Positions) -> None:
        """Commit offsets, and go back where a record is not done."""
        from aiokafka.errors import KafkaError  # noqa: PLC0415 - confluent-kafka is enough for the other class

        self._go_back(positions)
        all_offsets = self._offsets(positions)
        offsets = {each: all_offsets[place] for each, place in self._assigned(all_offsets).items()}
        try:
            if offsets:
                await self._consumer.commit(offsets)
            self._uncommitted.clear()
        except KafkaError as error:
            _log.warning(NOT_COMMITTED, error)

    def _go_back(self, positions: Positions) -> None:
        """Let partitions wait, and then go on where they have to."""
        self._wait(positions)
        self._consumer.pause(*self._assigned(self._behind))
        self._seek()

    def _seek(self) -> None:
        """Seek in the partitions where a seek is pending."""
        back = {place: each for each, place in self._assigned(self._behind).items()}
        self._catch_up(back, lambda place, offset: self._consumer.seek(back[place], offset))
