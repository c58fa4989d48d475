"""Kafka brokers in this process: the mock cluster of librdkafka."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition


class Brokers:
    """A cluster that lives as long as this object, with a log of what was sent to it."""

    def __init__(self) -> None:
        self._producer = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 3})
        found = self._producer.list_topics(timeout=30).brokers.values()
        self.addresses = ",".join(f"{broker.host}:{broker.port}" for broker in found)
        self.logs: dict[int, list[bytes | None]] = {}

    def send(self, topic: str, items: Sequence[bytes | None], partitions: int = 4) -> None:
        """Send items, and wait until the brokers have them."""
        for number, item in enumerate(items):
            self._producer.produce(topic, item, partition=number % partitions, on_delivery=self._delivered)
            self._producer.poll(0)
        assert self._producer.flush(30) == 0

    def _delivered(self, error: Any, record: Any) -> None:
        assert error is None
        log = self.logs.setdefault(record.partition(), [])
        assert record.offset() == len(log)
        log.append(record.value())

    def committed(self, topic: str, group: str) -> dict[int, int]:
        """Return the offsets that a group has committed."""
        consumer = Consumer({"bootstrap.servers": self.addresses, "group.id": group})
        try:
            found = consumer.committed([TopicPartition(topic, each) for each in self.logs], timeout=30)
            return {each.partition: max(each.offset, 0) for each in found}
        finally:
            consumer.close()


def with_redeliveries(count: int, share: float, seed: int = 1) -> list[bytes]:
    """Return `count` items, of which a share repeats earlier ones."""
    chosen = random.Random(seed)
    items: list[bytes] = []
    for number in range(count):
        is_new = not items or chosen.random() >= share
        items.append(b"%d" % number if is_new else chosen.choice(items))
    return items
