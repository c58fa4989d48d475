"""Records without a key: every adapter hands them on unchecked, drops or refuses them, as told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import dramatiq
import pytest
from aiokafka import AIOKafkaConsumer
from celery import Celery
from confluent_kafka import Consumer
from datatrove.data import Document
from dramatiq.brokers.stub import StubBroker
from faststream import AckPolicy
from faststream.confluent import KafkaBroker, TestKafkaBroker

import bloomredis
import bloomredis.asyncio
import bloomredis.contrib.celery
import bloomredis.contrib.dramatiq
import bloomredis.contrib.faststream
from bloomredis.contrib.datatrove import SeenFilter
from bloomredis.contrib.kafka import AsyncBatches, Batches
from tests.contrib.brokers import Brokers
from tests.support.servers import Server
from tests.support.values import for_each
from tests.support.waiting import wait_until

RECORDS: Final = ("a", None, "a", None, "b")
"""Records; their keys are the records themselves."""


def seen_on(server: Server, half: Any = bloomredis) -> Any:
    """Return a filter on a server."""
    return half.BloomFilter.from_url(server.url, "seen", capacity=1000, error_rate=1e-9)


def brokers_with_records() -> Brokers:
    """Return brokers with the records in one partition; a record without a value is a tombstone."""
    brokers = Brokers()
    brokers.send("orders", [record.encode() if record else None for record in RECORDS], partitions=1)
    return brokers


def confluent(server: Server, *, key: Any = lambda record: record.value(), **options: Any) -> list[Any]:
    """Return the records that batches of confluent-kafka yield until all offsets are committed."""
    brokers, got = brokers_with_records(), list[Any]()
    where = {"bootstrap.servers": brokers.addresses, "group.id": "shop", "auto.offset.reset": "earliest"}
    consumer = Consumer(where | {"enable.auto.commit": False})
    consumer.subscribe(["orders"])

    def is_committed() -> bool:
        with batches.next(5, timeout=0.2) as batch:
            got.extend(record.value() for record in batch)
        return brokers.committed("orders", "shop") == {0: len(RECORDS)}

    try:
        batches = Batches(consumer, seen_on(server), key=key, **options)
        wait_until("all is committed", is_committed)
    finally:
        consumer.close()
    return [value and value.decode() for value in got]


def aiokafka(server: Server, **options: Any) -> list[Any]:
    """Return the records that batches of aiokafka yield until all offsets are committed."""
    brokers, got = brokers_with_records(), list[Any]()
    where = {"bootstrap_servers": brokers.addresses, "group_id": "shop", "auto_offset_reset": "earliest"}

    async def run() -> None:
        async with AIOKafkaConsumer("orders", enable_auto_commit=False, **where) as consumer:
            seen = seen_on(server, bloomredis.asyncio)
            batches = AsyncBatches(consumer, seen, key=lambda record: record.value, **options)
            while brokers.committed("orders", "shop") != {0: len(RECORDS)}:
                async with batches.next(5, timeout=0.2) as batch:
                    got.extend([record.value async for record in batch])

    asyncio.run(asyncio.wait_for(run(), 60))
    return [value and value.decode() for value in got]


def faststream(server: Server, **options: Any) -> list[Any]:
    """Return the messages that a handler gets."""
    got: list[Any] = []

    async def run() -> None:
        once = bloomredis.contrib.faststream.Once(
            seen_on(server, bloomredis.asyncio), key=lambda message: message.headers.get("id"), **options
        )
        broker = KafkaBroker(middlewares=[once])

        @broker.subscriber("orders", group_id="shop", ack_policy=AckPolicy.NACK_ON_ERROR)
        async def handle(item: str) -> None:
            got.append(item or None)

        async with TestKafkaBroker(broker) as test:
            for record in RECORDS:
                await test.publish(record or "", "orders", headers={"id": record} if record else {})

    asyncio.run(run())
    return got


def datatrove(server: Server, **options: Any) -> list[Any]:
    """Return the documents that a task keeps."""
    step = SeenFilter(seen_on(server), job="job", key=lambda document: document.text or None, **options)
    documents = [Document(text=record or "", id=str(at)) for at, record in enumerate(RECORDS)]
    return [document.text or None for document in step.run(documents)]


def dramatiq_messages(server: Server) -> list[Any]:
    """Return the messages for which an actor runs."""
    broker, got = StubBroker(), list[Any]()
    broker.add_middleware(bloomredis.contrib.dramatiq.Once(seen_on(server)))
    actor: Any = dramatiq.actor(got.append, actor_name="ship", broker=broker, once=lambda order: order)
    for record in RECORDS:
        actor.send(record)
    worker = dramatiq.Worker(broker, worker_timeout=10, worker_threads=1)
    worker.start()
    broker.join("default", timeout=30_000)
    worker.stop()
    return got


def celery_calls(server: Server) -> list[Any]:
    """Return the calls for which a body runs."""
    app, got = Celery("shop"), list[Any]()

    class ByOrder(bloomredis.contrib.celery.Once):
        abstract = True

        def item(self, args: Any, kwargs: Any) -> str | None:
            return args[0]  # type: ignore[no-any-return]  # the caller's

    @app.task(base=ByOrder, seen=seen_on(server))
    def ship(order: str | None) -> None:
        got.append(order)

    for record in RECORDS:
        ship.apply((record,))
    return got


WITH_MISSING: Final[dict[str, tuple[Callable[..., list[Any]], str]]] = {
    "confluent-kafka": (confluent, "record of topic orders, partition 0, offset 1"),
    "aiokafka": (aiokafka, "record of topic orders, partition 0, offset 1"),
    "FastStream": (faststream, "message .+"),
    "datatrove": (datatrove, "document 1"),
}
"""Adapters that take `missing`, and the place of a record in an error."""

ADAPTERS: Final[dict[str, Callable[[Server], list[Any]]]] = {
    **{name: run for name, (run, _) in WITH_MISSING.items()},
    "Dramatiq": dramatiq_messages,
    "Celery": celery_calls,
}


@for_each("adapter", ADAPTERS)
def test_a_key_of_none_means_unchecked(adapter: str, any_server: Server) -> None:
    """Each record without a key is handed on; the others are compared by their keys."""
    assert ADAPTERS[adapter](any_server) == ["a", None, None, "b"]


@for_each("adapter", WITH_MISSING)
@for_each(("missing", "handled"), [("keep", ["a", None, None, "b"]), ("drop", ["a", "b"])])
def test_a_record_without_a_key(
    adapter: str, missing: str, handled: list[str | None], any_server: Server
) -> None:
    """It is handed on or dropped; a partition of Kafka goes on after it."""
    assert WITH_MISSING[adapter][0](any_server, missing=missing) == handled


@for_each("adapter", WITH_MISSING)
def test_a_record_without_a_key_is_refused(adapter: str, any_server: Server) -> None:
    """The error names the record."""
    run, place = WITH_MISSING[adapter]
    with pytest.raises(TypeError, match=f'^.*{place} has no key: missing="keep" hands it on unchecked'):
        run(any_server, missing="raise")


@for_each("adapter", WITH_MISSING)
def test_another_treatment_is_refused(adapter: str, any_server: Server) -> None:
    """The error lists the treatments."""
    with pytest.raises(ValueError, match='missing must be "keep", "drop" or "raise", not \'skip\''):
        WITH_MISSING[adapter][0](any_server, missing="skip")


def test_an_error_of_a_key_names_the_record(any_server: Server) -> None:
    """As a note."""
    with pytest.raises(AttributeError) as caught:
        confluent(any_server, key=lambda record: record.value().decode())
    note = "raised by key= for the record of topic orders, partition 0, offset 1"
    assert caught.value.__notes__ == [note]
