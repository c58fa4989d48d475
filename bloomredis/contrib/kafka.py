"""Kafka: batches without the records that are done; no offset passes an unfinished record.

`Batches` is for a `Consumer` of confluent-kafka, `AsyncBatches` for a consumer of aiokafka.  Turn off the
consumer's `enable.auto.commit`.  A batch is claimed in one round trip, and committed in another.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.util import find_spec
from typing import Any

from bloomredis.contrib import needs
from bloomredis.contrib._flavours import at_once, require_async, require_sync
from bloomredis.contrib._records import PartitionId, Partitions, Read, Records, starts_of

with needs("kafka", "confluent-kafka or aiokafka"):
    if not (find_spec("confluent_kafka") or find_spec("aiokafka")):
        raise ImportError

__all__ = ["AsyncBatch", "AsyncBatches", "Batch", "Batches"]


class Batch(Records):
    """A batch of records; iterating over it yields the records that this consumer holds.

    A record is finished when the loop asks for the next one.  Claims are extended between records, so each
    record, not the whole batch, must be finished within two thirds of the lease.
    """

    def __iter__(self) -> Iterator[Any]:
        """Yield each record to work on; of records with equal items the first."""
        for entry in self._steps():
            if entry is None:
                self._seen.extend_many(self.held(), self._lease)
            else:
                yield entry.record


class AsyncBatch(Records):
    """A batch of records, for `async for`: see `Batch`."""

    async def __aiter__(self) -> AsyncIterator[Any]:
        """Yield each record to work on; of records with equal items the first."""
        for entry in self._steps():
            if entry is None:
                await self._seen.extend_many(self.held(), self._lease)
            else:
                yield entry.record


class Batches(Partitions[Batch]):
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
    _batch = Batch

    @contextmanager
    def next(self, size: int = 500, timeout: float = 1.0) -> Iterator[Batch]:
        """Read up to `size` records within `timeout` seconds, and claim them.

        :raises BloomError: the filter does not answer; the records are read again by the next call.
        """
        batch = at_once(self._claimed(self._read(size, timeout)))
        try:
            yield batch
        except BaseException:
            batch.fail()
            raise
        finally:
            at_once(self._end(batch))

    def _read(self, size: int, timeout: float) -> Read:
        from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 - aiokafka is enough for the other class

        self._go_on()
        records = self._consumer.consume(size, timeout)
        read = [
            (record, (record.topic(), record.partition()), record.offset())
            for record in records
            if record.error() is None
        ]
        errors = [record.error() for record in records if record.error() is not None]
        if failed := [each for each in errors if each.code() != KafkaError._PARTITION_EOF]:
            self._go_back(starts_of(read))
            raise KafkaException(failed[0])
        return read

    def _call(self, verb: str, partitions: list[Any]) -> None:
        getattr(self._consumer, verb)(partitions)

    def _seek(self, place: PartitionId, offset: int) -> None:
        from confluent_kafka import TopicPartition  # noqa: PLC0415 - as above

        self._consumer.seek(TopicPartition(*place, offset))

    def _commit(self, offsets: dict[PartitionId, int]) -> Any:
        from confluent_kafka import KafkaException, TopicPartition  # noqa: PLC0415 - as above

        partitions = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        try:
            if partitions:
                self._consumer.commit(offsets=partitions, asynchronous=False)
        except KafkaException as error:
            return error
        return None


class AsyncBatches(Partitions[AsyncBatch]):
    """Batches of the records that a consumer of aiokafka reads, with `async with`: see `Batches`."""

    _require = staticmethod(require_async)
    _batch = AsyncBatch

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
            await self._end(batch)

    async def _read(self, size: int, timeout: float) -> Read:  # noqa: ASYNC109 - as above
        self._go_on()
        read = await self._consumer.getmany(timeout_ms=int(timeout * 1000), max_records=size)
        return [
            (record, (record.topic, record.partition), record.offset)
            for records in read.values()
            for record in records
        ]

    def _call(self, verb: str, partitions: list[Any]) -> None:
        getattr(self._consumer, verb)(*partitions)

    def _seek(self, place: PartitionId, offset: int) -> None:
        self._consumer.seek(self._mine()[place], offset)

    async def _commit(self, offsets: dict[PartitionId, int]) -> Any:
        from aiokafka.errors import KafkaError  # noqa: PLC0415 - confluent-kafka is enough for the other class

        mine = self._mine()
        try:
            if offsets:
                await self._consumer.commit({mine[place]: offset for place, offset in offsets.items()})
        except KafkaError as error:
            return error
        return None
