"""What an item is the same for: the calls, requests and messages of an adapter that share one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import dramatiq
import httpx
import pytest
from aiokafka import AIOKafkaConsumer
from celery import Celery
from confluent_kafka import Consumer
from dramatiq.brokers.stub import StubBroker
from fastapi import FastAPI, Request
from faststream import Context
from faststream.confluent import KafkaBroker, TestKafkaBroker
from pydantic import BaseModel

import bloomredis.asyncio
from bloomredis import BloomFilter
from bloomredis.contrib import celery, django, fastapi, faststream, idempotency, kafka
from bloomredis.contrib import dramatiq as dramatiq_adapter
from bloomredis.contrib._items import call_item  # which all adapters call
from tests.contrib import django_project  # noqa: F401 - before the test client
from tests.contrib.brokers import Brokers
from tests.support.servers import Server
from tests.support.values import for_each

SIZE: Final[dict[str, Any]] = {"capacity": 1000, "error_rate": 1e-9}
Runs = list[tuple[str, str]]
"""The name of the work and the key of each body that ran."""


def of_celery(server: Server, works: dict[str, list[str]], *, bare: bool) -> Runs:
    """Call tasks of Celery."""
    seen, runs = BloomFilter.from_url(server.url, "seen", **SIZE), Runs()
    app = Celery("shop")

    class ByOrder(celery.Once):
        abstract = True

        def item(self, args: Any, kwargs: Any) -> str:
            return str(args[0])

    for name, keys in works.items():

        def body(order: str, name: str = name) -> None:
            runs.append((name, order))

        task = app.task(base=ByOrder, seen=seen, name=name, bare=bare)(body)
        for key in keys:
            task.apply((key,))
    return runs


def of_dramatiq(server: Server, works: dict[str, list[str]], *, bare: bool) -> Runs:
    """Send messages to actors of Dramatiq."""
    broker, runs = StubBroker(), Runs()
    broker.add_middleware(dramatiq_adapter.Once(BloomFilter.from_url(server.url, "seen", **SIZE), bare=bare))
    broker.emit_after("process_boot")
    worker = dramatiq.Worker(broker, worker_timeout=10, worker_threads=1)
    worker.start()
    for name, keys in works.items():
        actor: Any = dramatiq.actor(
            lambda order, name=name: runs.append((name, order)),
            actor_name=name,
            broker=broker,
            once=lambda order, **_: order,
        )
        for key in keys:
            actor.send(key)
        broker.join("default", timeout=30_000)
    worker.stop()
    return runs


def posted(app: Any, works: dict[str, list[str]]) -> None:
    """Send requests with keys to the paths of an ASGI application."""

    async def send() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            for name, keys in works.items():
                for key in keys:
                    answer = await client.post(f"/{name}", headers={"Idempotency-Key": key})
                    assert answer.status_code == 200

    asyncio.run(send())


def of_asgi(server: Server, works: dict[str, list[str]], *, bare: bool) -> Runs:
    """Send requests to an application of ASGI; the middleware has a `key` of its own."""
    seen, runs = bloomredis.asyncio.BloomFilter.from_url(server.url, "seen", **SIZE), Runs()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        runs.append((scope["path"][1:], key_of(scope)))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def key_of(scope: Any) -> str:
        return str(dict(scope["headers"])[b"idempotency-key"].decode())

    posted(idempotency.ASGIMiddleware(app, seen, key=key_of, bare=bare), works)
    return runs


def of_fastapi(server: Server, works: dict[str, list[str]], *, bare: bool) -> Runs:
    """Send events to endpoints of FastAPI."""
    seen, runs = bloomredis.asyncio.BloomFilter.from_url(server.url, "seen", **SIZE), Runs()
    app, once = FastAPI(), fastapi.once(seen, header="Idempotency-Key", bare=bare)

    async def endpoint(request: Request) -> None:
        runs.append((request.url.path[1:], request.headers["Idempotency-Key"]))

    for name in works:
        app.post(f"/{name}", dependencies=[once])(endpoint)
    posted(app, works)
    return runs


def of_wsgi(server: Server, works: dict[str, list[str]], *, bare: bool) -> Runs:
    """Send requests to an application of WSGI."""
    seen, runs = BloomFilter.from_url(server.url, "seen", **SIZE), Runs()

    def app(environ: Any, start: Any) -> list[bytes]:
        runs.append((environ["PATH_INFO"][1:], environ["HTTP_IDEMPOTENCY_KEY"]))
        start("200 OK", [])
        return [b""]

    guarded = idempotency.WSGIMiddleware(app, seen, bare=bare)
    with httpx.Client(transport=httpx.WSGITransport(guarded), base_url="http://here") as client:
        for name, keys in works.items():
            for key in keys:
                assert client.post(f"/{name}", headers={"Idempotency-Key": key}).status_code == 200
    return runs


def of_django(server: Server, works: dict[str, list[str]], *, bare: bool) -> Runs:
    """Send requests to views of Django."""
    from django.http import HttpResponse
    from django.test import Client, override_settings
    from django.urls import path

    seen, runs = BloomFilter.from_url(server.url, "seen", **SIZE), Runs()

    @django.once(seen, key=lambda request: request.headers["Idempotency-Key"], bare=bare)
    def view(request: Any) -> HttpResponse:
        runs.append((request.path[1:], request.headers["Idempotency-Key"]))
        return HttpResponse()

    with override_settings(ROOT_URLCONF=tuple(path(name, view) for name in works)):
        for name, keys in works.items():
            for key in keys:
                assert Client().post(f"/{name}", headers={"Idempotency-Key": key}).status_code == 200
    return runs


def of_faststream(server: Server, works: dict[str, list[str]], *, bare: bool) -> Runs:
    """Send messages to subscribers of FastStream."""
    runs = Runs()

    async def run() -> None:
        seen = bloomredis.asyncio.BloomFilter.from_url(server.url, "seen", **SIZE)
        once = faststream.Once(seen, key=lambda message: message.decode(), bare=bare)
        broker = KafkaBroker(middlewares=[once])
        for name in works:

            async def handle(key: str, to: Any = Context("message.raw_message")) -> None:  # noqa: B008 - as FastStream reads it
                runs.append((to.topic(), key))

            broker.subscriber(name, title=name)(handle)
        async with seen, TestKafkaBroker(broker):
            for name, keys in works.items():
                for key in keys:
                    await broker.publish(key, name)

    asyncio.run(run())
    return runs


def of_kafka(server: Server, works: dict[str, list[str]], *, bare: bool) -> Runs:
    """Read a topic by groups of confluent-kafka."""
    seen, runs = BloomFilter.from_url(server.url, "seen", **SIZE), Runs()
    for name, keys in works.items():
        brokers = Brokers()
        brokers.send("orders", [key.encode() for key in keys], partitions=1)
        options = {"bootstrap.servers": brokers.addresses, "group.id": name}
        consumer = Consumer(options | {"auto.offset.reset": "earliest", "enable.auto.commit": False})
        consumer.subscribe(["orders"])
        batches = kafka.Batches(consumer, seen, key=lambda record: record.value(), bare=bare)
        while brokers.committed("orders", name) != {0: len(keys)}:
            with batches.next(5, timeout=0.2) as batch:
                runs += [(name, record.value().decode()) for record in batch]
        consumer.close()
    return runs


def of_aiokafka(server: Server, works: dict[str, list[str]], *, bare: bool) -> Runs:
    """Read a topic by groups of aiokafka."""
    runs = Runs()

    async def read(seen: Any, name: str, keys: list[str]) -> None:
        brokers = Brokers()
        brokers.send("orders", [key.encode() for key in keys], partitions=1)
        options: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
        consumer = AIOKafkaConsumer("orders", bootstrap_servers=brokers.addresses, group_id=name, **options)
        await consumer.start()
        batches = kafka.AsyncBatches(consumer, seen, key=lambda record: record.value, bare=bare)
        while brokers.committed("orders", name) != {0: len(keys)}:
            async with batches.next(5, timeout=0.2) as batch:
                runs.extend([(name, record.value.decode()) async for record in batch])
        await consumer.stop()

    async def run() -> None:
        async with bloomredis.asyncio.BloomFilter.from_url(server.url, "seen", **SIZE) as seen:
            for name, keys in works.items():
                await read(seen, name, keys)

    asyncio.run(run())
    return runs


ADAPTERS: Final[dict[str, Callable[..., Runs]]] = {
    "Celery: the task's name": of_celery,
    "Dramatiq: the actor's name": of_dramatiq,
    "ASGI: method and path": of_asgi,
    "WSGI: method and path": of_wsgi,
    "Django: method and path": of_django,
    "FastAPI: method and path": of_fastapi,
    "FastStream: the subscriber's name": of_faststream,
    "confluent-kafka: the group": of_kafka,
    "aiokafka: the group": of_aiokafka,
}


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_two_works_on_one_filter_share_no_item(adapter: str, any_server: Server) -> None:
    """Each runs once for a key; with `bare` only one of them does."""
    works = {"ship": ["7", "7", "8"], "bill": ["7", "9", "9"]}
    runs = [("ship", "7"), ("ship", "8"), ("bill", "7"), ("bill", "9")]
    assert ADAPTERS[adapter](any_server, works, bare=False) == runs
    any_server.empty()
    assert ADAPTERS[adapter](any_server, works, bare=True) == [each for each in runs if each != ("bill", "7")]


# -- the item of a call


class Order(BaseModel):
    """A model with a default."""

    id: int
    carrier: str = "rail"


def ship(order: str, carrier: str = "rail") -> None: ...


async def ship_later(order: str, carrier: str = "rail") -> None: ...


def ship_by_name(*, order: str, carrier: str = "rail") -> None: ...


def ship_all(*orders: str, **options: str) -> None: ...


def ship_model(order: Order, other: Order | None = None) -> None: ...


CALLS: Final[dict[str, tuple[Callable[..., object], list[tuple[tuple[Any, ...], dict[str, Any]]]]]] = {
    name: (function, [(("7",), {}), (("7", "rail"), {}), ((), {"carrier": "rail", "order": "7"})])
    for name, function in {"a function": ship, "a coroutine function": ship_later}.items()
} | {
    "keywords": (ship_by_name, [((), {"order": "7"}), ((), {"carrier": "rail", "order": "7"})]),
    "any arguments": (ship_all, [(("a", "b"), {"x": "1", "y": "2"}), (("a", "b"), {"y": "2", "x": "1"})]),
    "a model": (
        ship_model,
        [((Order(id=7),), {}), (({"id": 7},), {}), ((), {"order": {"id": 7, "carrier": "rail"}})],
    ),
}
"""Functions, and calls of each that are one call."""


@for_each("kind", CALLS)
def test_calls_with_the_same_arguments_are_one_item(kind: str) -> None:
    """However they are given."""
    function, calls = CALLS[kind]
    items = {call_item("ship", function, *call, advice="") for call in calls}
    assert len(items) == 1
    assert call_item("bill", function, *calls[0], advice="") not in items


def test_the_item_of_a_call_is_frozen() -> None:
    """It is JSON; the name is left out of a bare one, and `only` names arguments."""
    call: Any = ("ship", ship, ("7",), {})
    assert call_item(*call, advice="") == '["ship", {"carrier": "rail", "order": "7"}]'
    assert call_item(*call, only=["order"], advice="") == '["ship", {"order": "7"}]'
    assert call_item(*call, bare=True, advice="") == '{"carrier": "rail", "order": "7"}'


def test_an_argument_without_json_is_refused() -> None:
    """The error says what can be done."""
    with pytest.raises(TypeError, match=r"an argument of ship cannot be part of its item: .*give a function"):
        call_item("ship", ship, (object(),), {}, advice="give a function")
