"""A Kafka consumer in a process of its own, which notes each item that it has finished."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from typing import Any

import redis

import bloomredis.asyncio
from bloomredis.contrib.kafka import AsyncBatches, Batches

GROUP = "workers"
TOPIC = "orders"
LEASE = 4.0
PAUSE = 0.1
"""Seconds until a retry after an error of the filter."""
PARAMETERS: dict[str, Any] = {"capacity": 100_000, "error_rate": 1e-9}


class Work:
    """The work on a record; after enough records it hangs at the first one of a batch."""

    def __init__(self, socket: str, hang_after: int) -> None:
        self.notes = redis.Redis(unix_socket_path=socket)
        self._left = hang_after

    def __call__(self, item: bytes, *, is_first: bool) -> None:
        if self._left < 0 and is_first:
            self.notes.rpush("hanging", item)
            threading.Event().wait()
        self._left -= 1
        self.notes.rpush("ended", item)


def confluent(brokers: str, socket: str, work: Work) -> None:
    """Consume with confluent-kafka; while the filter's server is away, read the same batch again."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 3000,
            "heartbeat.interval.ms": 300,
        }
    )
    consumer.subscribe([TOPIC])
    seen = bloomredis.BloomFilter.from_url(f"unix://{socket}", "done", **PARAMETERS)
    batches = Batches(consumer, seen, key=lambda record: record.value(), lease=LEASE)
    while True:
        try:
            with batches.next(300, timeout=0.3) as batch:
                for number, record in enumerate(batch):
                    work(record.value(), is_first=not number)
        except bloomredis.BloomError:
            time.sleep(PAUSE)


async def aiokafka(brokers: str, socket: str, work: Work) -> None:
    """Consume with aiokafka; while the filter's server is away, read the same batch again."""
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=brokers,
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=3000,
        heartbeat_interval_ms=300,
    )
    await consumer.start()
    seen = bloomredis.asyncio.BloomFilter.from_url(f"unix://{socket}", "done", **PARAMETERS)
    batches = AsyncBatches(consumer, seen, key=lambda record: record.value, lease=LEASE)
    while True:
        try:
            async with batches.next(300, timeout=0.3) as batch:
                is_first = True
                async for record in batch:
                    work(record.value, is_first=is_first)
                    is_first = False
        except bloomredis.BloomError:
            await asyncio.sleep(PAUSE)


def main() -> None:
    """Consume until the end of the process."""
    library, brokers, socket, notes, hang_after = sys.argv[1:]
    work = Work(notes, int(hang_after))
    if library == "confluent":
        confluent(brokers, socket, work)
    else:
        asyncio.run(aiokafka(brokers, socket, work))


if __name__ == "__main__":
    main()
