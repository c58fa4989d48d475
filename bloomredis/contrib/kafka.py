"""Kafka: batches of records, each worked on once, with offsets that pass no unfinished record.

`Batches` is for a `Consumer` of confluent-kafka, `AsyncBatches` for one of aiokafka; turn off its
`enable.auto.commit`.  A batch is claimed in one round trip, and committed in another one.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.util import find_spec
from typing import Any, Final

from bloomredis.contrib import missing
from bloomredis.contrib._records import Partitions, Place, Positions, Read, Records, entries_of, starts_of

if not (find_spec("confluent_kafka") or find_spec("aiokafka")):
    raise missing("kafka", "confluent-kafka or aiokafka")

__all__ = ["AsyncBatch", "AsyncBatches", "Batch", "Batches"]

NOT_COMMITTED: Final = "offsets were not committed (%s): the records come again, and are done"

_log = logging.getLogger("bloomredis")


class Batch(Records):
    """Records of which this consumer holds those that it iterates over.

    A record is finished when the next one is asked for.  Claims are extended between records, so that each
    record has to be finished within two thirds of the lease, not all of them.
    """

    def __iter__(self) -> Iterator[Any]:
        """Yield each record to work on; of records with equal items the first."""
        self._finish()
        while self._work:
            if self._is_aging():
                self._seen.extend_many([*self.finished, *self.unfinished], self._lease)
            if entry := self._take():
                yield entry.record
                self._finish()


class AsyncBatch(Records):
    """Records of which this consumer holds those that it iterates over, with `async for`: see `Batch`."""

    async def __aiter__(self) -> AsyncIterator[Any]:
        """Yield each record to work on; of records with equal items the first."""
        self._finish()
        while self._work:
            if self._is_aging():
                await self._seen.extend_many([*self.finished, *self.unfinished], self._lease)
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

    At the end of the block the finished records are committed, and then the offsets up to the first record
    of a partition that is not done.  If that one is busy, since another consumer holds it or has died with
    it, the partition waits until its claim ends.  Records that were not finished are given back.

    :param key: returns the item of a record, for duplicates by producers; by default it is the record's place
        in the log, for redeliveries.
    """

    @contextmanager
    def next(self, size: int = 500, timeout: float = 1.0) -> Iterator[Batch]:
        """Read up to so many records within that time, and claim them.

        :raises BloomError: the filter does not answer; the records are read again by the next call.
        """
        batch = self._claimed(self._read(size, timeout))
        try:
            yield batch
        finally:
            try:
                self._seen.commit_many(batch.finished)
                self._seen.release_many(batch.unfinished)
            finally:
                self._settle(batch.positions())

    def _read(self, size: int, timeout: float) -> Read:
        from confluent_kafka import KafkaException  # noqa: PLC0415 - aiokafka is enough for the other class

        if due := self._assigned(dict.fromkeys(self._due(), 0)):
            self._consumer.resume(due)
        records = self._consumer.consume(size, timeout)
        read = [
            (record, (record.topic(), record.partition()), record.offset())
            for record in records
            if record.error() is None
        ]
        failed = [record.error() for record in records if record.error() is not None]
        if failed:
            self._go_back(starts_of(read))
            raise KafkaException(failed[0])
        return read

    def _claimed(self, read: Read) -> Batch:
        try:
            claims = self._seen.claim_many(self._items(read), self._lease)
        except BaseException:
            self._go_back(starts_of(read))
            raise
        return Batch(self._seen, entries_of(read, claims), self._lease)

    def _assigned(self, offsets: dict[Place, int]) -> list[Any]:
        """Return those of the partitions that are still this consumer's, as the client has them."""
        from confluent_kafka import TopicPartition  # noqa: PLC0415 - as above

        mine = {(each.topic, each.partition) for each in self._consumer.assignment()}
        return [TopicPartition(*place, offset) for place, offset in offsets.items() if place in mine]

    def _settle(self, positions: Positions) -> None:
        """Commit offsets, and go back where a record is not done."""
        from confluent_kafka import KafkaException  # noqa: PLC0415 - as above

        self._go_back(positions)
        offsets = self._assigned({place: offset for place, (offset, _) in positions.items()})
        try:
            if offsets:
                self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            _log.warning(NOT_COMMITTED, error)

    def _go_back(self, positions: Positions) -> None:
        """Let partitions wait, and then go on where they have to."""
        if back := self._assigned(self._wait(positions)):
            self._consumer.pause(back)
            for each in back:
                self._consumer.seek(each)


class AsyncBatches(Partitions):
    """Batches of the records that a consumer of aiokafka reads, with `async with`: see `Batches`."""

    @asynccontextmanager
    async def next(self, size: int = 500, timeout: float = 1.0) -> AsyncIterator[AsyncBatch]:  # noqa: ASYNC109 - the broker's
        """Read up to so many records, waiting that long for the first, and claim them."""
        batch = await self._claimed(await self._read(size, timeout))
        try:
            yield batch
        finally:
            try:
                await self._seen.commit_many(batch.finished)
                await self._seen.release_many(batch.unfinished)
            finally:
                await self._settle(batch.positions())

    async def _read(self, size: int, timeout: float) -> Read:  # noqa: ASYNC109 - as above
        if due := self._assigned(self._due()):
            self._consumer.resume(*due)
        read = await self._consumer.getmany(timeout_ms=int(timeout * 1000), max_records=size)
        return [
            (record, (record.topic, record.partition), record.offset)
            for records in read.values()
            for record in records
        ]

    async def _claimed(self, read: Read) -> AsyncBatch:
        try:
            claims = await self._seen.claim_many(self._items(read), self._lease)
        except BaseException:
            self._go_back(starts_of(read))
            raise
        return AsyncBatch(self._seen, entries_of(read, claims), self._lease)

    def _assigned(self, places: Iterable[Place]) -> dict[Any, Place]:
        """Return those of the partitions that are still this consumer's, by their names in the client."""
        mine = {(each.topic, each.partition): each for each in self._consumer.assignment()}
        return {mine[place]: place for place in places if place in mine}

    async def _settle(self, positions: Positions) -> None:
        """Commit offsets, and go back where a record is not done."""
        from aiokafka.errors import KafkaError  # noqa: PLC0415 - confluent-kafka is enough for the other class

        self._go_back(positions)
        offsets = {each: positions[place][0] for each, place in self._assigned(positions).items()}
        try:
            if offsets:
                await self._consumer.commit(offsets)
        except KafkaError as error:
            _log.warning(NOT_COMMITTED, error)

    def _go_back(self, positions: Positions) -> None:
        """Let partitions wait, and then go on where they have to."""
        back = self._wait(positions)
        for each, place in self._assigned(back).items():
            self._consumer.pause(each)
            self._consumer.seek(each, back[place])
