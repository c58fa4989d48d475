"""FastStream with Kafka (the mock brokers of librdkafka) and with Redis streams."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import pytest
import redis.asyncio
from faststream import AckPolicy, BaseMiddleware, ExceptionMiddleware
from faststream.confluent import KafkaBroker, TestKafkaBroker
from faststream.exceptions import AckMessage, RejectMessage
from faststream.redis import RedisBroker, StreamSub
from faststream.redis.annotations import RedisStreamMessage

import bloomredis.asyncio
from bloomredis import WorkItem
from bloomredis.contrib.faststream import Once
from tests.contrib.brokers import Brokers, with_redeliveries
from tests.contrib.consumer import GROUP, TOPIC
from tests.contrib.violence import KEPT, restarting
from tests.support.clock import Clock, WhenBusy
from tests.support.readme import ROOT, on_page
from tests.support.servers import Server, running
from tests.support.waiting import wait_until

SLOW = 240.0
"""Seconds that two applications have to handle all messages, one by one."""


@contextmanager
def application(
    brokers: Brokers, seen: Server, notes: Server, hang_after: int
) -> Iterator[subprocess.Popen[bytes]]:
    """Run an application with a filter on one server, and notes of its work on another one."""
    arguments = [brokers.addresses, seen.socket, notes.socket, str(hang_after)]
    process = subprocess.Popen([sys.executable, "-m", "tests.contrib.stream_app", *arguments], cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_each_message_is_handled_once(any_server: Server, any_client: redis.Redis) -> None:
    """Of 4,000 messages 30% are repeats; a consumer is killed, and the filter's server is away for a second.

    A committed offset passes at most the two messages that are being handled, which librdkafka may include.
    So these two may be lost with the consumer, as the page says of `faststream.confluent`.
    """
    brokers = Brokers()
    items = with_redeliveries(4000, 0.3)
    brokers.send(TOPIC, items)
    notes: Any = any_client

    def is_all_committed() -> bool:
        committed = brokers.committed(TOPIC, GROUP)
        ended = set(notes.lrange("ended", 0, -1))
        for partition, offset in committed.items():
            assert len(set(brokers.logs[partition][:offset]) - ended) <= 2
        whole = {partition: len(log) for partition, log in brokers.logs.items()}
        return committed == whole and len(set(items) - ended) <= 2

    with ExitStack() as stack:
        seen = stack.enter_context(running(any_server.binary, *KEPT))
        dying = stack.enter_context(application(brokers, seen, any_server, 600))
        stack.enter_context(application(brokers, seen, any_server, 10**9))
        wait_until("a consumer hangs at a message", lambda: notes.llen("hanging"))
        assert not is_all_committed()
        dying.send_signal(signal.SIGKILL)
        before = notes.llen("ended")
        stack.enter_context(restarting(seen, lambda: notes.llen("ended") > before + 200))
        deadline = time.monotonic() + SLOW
        while not is_all_committed():
            assert time.monotonic() < deadline
            time.sleep(0.2)  # polling a condition, with a deadline
    ended = Counter(notes.lrange("ended", 0, -1))
    assert ended == Counter(set(items) & set(ended))


def filter_on(server: Server, **options: Any) -> Any:
    """Return a filter on a server."""
    size: dict[str, Any] = {"capacity": 1000, "error_rate": 1e-9}
    return bloomredis.asyncio.BloomFilter.from_url(server.url, "done", **size, **options)


async def body(message: Any) -> Any:
    """Return the body of a message."""
    return await message.decode()


async def handled(seen: Any, *items: str, error: Exception | None = None) -> list[str]:
    """Send items to a handler in memory, which may raise at the first; return the items that it got."""
    got: list[str] = []
    broker = KafkaBroker(middlewares=[Once(seen, key=body)])

    @broker.subscriber("orders", group_id="shop", ack_policy=AckPolicy.NACK_ON_ERROR)
    async def handle(item: str) -> None:
        got.append(item)
        if error is not None and len(got) == 1:
            raise error

    async with TestKafkaBroker(broker) as test:
        for item in items:
            try:
                await test.publish(item, "orders")
            except ZeroDivisionError:
                assert error is not None
    return got


def test_a_message_that_is_done_is_not_handled(any_server: Server) -> None:
    """Of two messages with one item, the second is not handled."""
    assert asyncio.run(handled(filter_on(any_server), "a", "b", "a")) == ["a", "b"]


@pytest.mark.parametrize(
    ("error", "got"),
    [(ZeroDivisionError(), ["a", "a"]), (RejectMessage(), ["a", "a"]), (AckMessage(), ["a"])],
    ids=lambda each: type(each).__name__,
)
def test_what_a_handler_raises_gives_the_item_back(
    error: Exception, got: list[str], any_server: Server
) -> None:
    """Except `AckMessage`, with which the handler says that the message is done."""
    assert asyncio.run(handled(filter_on(any_server), "a", "a", error=error)) == got


def test_a_result_that_is_not_published_gives_the_item_back(any_server: Server) -> None:
    """So the message comes again, and its result is published once."""
    published: list[str] = []
    failures = [ZeroDivisionError()]

    class Flaky(BaseMiddleware):
        async def publish_scope(self, call_next: Any, cmd: Any) -> Any:
            if cmd.destination == "shipped":
                if failures:
                    raise failures.pop()
                published.append(cmd.body)
            return await call_next(cmd)

    async def run() -> None:
        once = Once(filter_on(any_server), key=body)
        broker = KafkaBroker(middlewares=[once, Flaky])

        @broker.subscriber("orders", group_id="shop", ack_policy=AckPolicy.NACK_ON_ERROR)
        @broker.publisher("shipped")
        async def handle(item: str) -> str:
            return f"{item} by rail"

        async with TestKafkaBroker(broker) as test:
            for _ in range(3):
                with suppress(ZeroDivisionError):
                    await test.publish("a", "orders")

    asyncio.run(run())
    assert published == ["a by rail"]


@pytest.mark.parametrize("on_done", [None, lambda message: f"{message.headers['id']} was there"])
def test_the_sender_of_a_done_message_gets_a_reply(on_done: Any, any_server: Server) -> None:
    """It is what `on_done` returns; the publishers of the handler publish nothing."""
    published: list[str] = []

    async def run() -> list[Any]:
        once = Once(filter_on(any_server), key=lambda message: message.headers.get("id"), on_done=on_done)
        broker = RedisBroker(any_server.url, middlewares=[once])

        @broker.subscriber("orders")
        @broker.publisher("shipped")
        async def handle(item: str) -> str:
            return f"{item} by rail"

        @broker.subscriber("shipped")
        async def note(item: str) -> None:
            published.append(item)

        async with broker:
            await broker.start()
            replies = [await broker.request("a", "orders", headers={"id": "1"}, timeout=30) for _ in range(3)]
            return [await reply.decode() for reply in replies]

    replies = asyncio.run(run())
    done = [] if on_done is None else "1 was there"
    assert replies[0] == "a by rail"
    assert [reply or [] for reply in replies[1:]] == [done, done]
    assert published == ["a by rail"]


def test_a_done_message_is_acknowledged_though_the_handler_does_it(any_server: Server) -> None:
    """With `AckPolicy.MANUAL` no message stays pending."""
    handled: list[str] = []

    async def run() -> Any:
        broker = RedisBroker(any_server.url, middlewares=[Once(filter_on(any_server), key=body)])
        orders = StreamSub("orders", group="shop", consumer="one")

        @broker.subscriber(stream=orders, ack_policy=AckPolicy.MANUAL)
        async def handle(item: str, message: RedisStreamMessage) -> None:
            handled.append(item)
            await message.ack()

        async with broker, redis.asyncio.Redis(unix_socket_path=any_server.socket) as client:
            await broker.start()
            for item in ("a", "a", "b"):
                await broker.publish(item, stream="orders")
            deadline = time.monotonic() + 30
            while len(handled) < 2:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
            await broker.stop()
            return (await client.xpending("orders", "shop"))["pending"]

    assert asyncio.run(run()) == 0
    assert handled == ["a", "b"]


def test_an_error_that_another_middleware_handles_gives_the_item_back(any_server: Server) -> None:
    """Such as FastStream's own ExceptionMiddleware, inside of this one."""
    got: list[str] = []

    async def run() -> None:
        handling = ExceptionMiddleware(handlers={ZeroDivisionError: lambda: None})
        broker = KafkaBroker(middlewares=[Once(filter_on(any_server), key=body), handling])

        @broker.subscriber("orders", group_id="shop", ack_policy=AckPolicy.NACK_ON_ERROR)
        async def handle(item: str) -> None:
            got.append(item)
            if len(got) == 1:
                raise ZeroDivisionError

        async with TestKafkaBroker(broker) as test:
            for _ in range(3):
                await test.publish("a", "orders")

    asyncio.run(run())
    assert got == ["a", "a"]


def test_another_middleware_may_call_the_handler_again(any_server: Server) -> None:
    """The claim is that of the message, and the last call decides."""
    got: list[str] = []

    class Retry(BaseMiddleware):
        async def consume_scope(self, call_next: Any, msg: Any) -> Any:
            with suppress(ZeroDivisionError):
                return await call_next(msg)
            return await call_next(msg)

    async def run() -> None:
        once = Once(filter_on(any_server), key=body)
        broker = KafkaBroker(middlewares=[Retry, once])

        @broker.subscriber("orders", group_id="shop", ack_policy=AckPolicy.NACK_ON_ERROR)
        async def handle(item: str) -> None:
            got.append(item)
            if len(got) == 1:
                raise ZeroDivisionError

        async with TestKafkaBroker(broker) as test:
            for _ in range(2):
                await test.publish("a", "orders")

    asyncio.run(run())
    assert got == ["a", "a"]


def test_a_busy_message_waits_for_a_consumer_that_died(
    any_server: Server, any_client: redis.Redis, clock: Clock, set_hook: Any
) -> None:
    """After the dead consumer's lease, the message is handled."""
    busy = WhenBusy(partial(clock.end_leases, any_client))
    set_hook(busy)

    async def run() -> list[str]:
        seen = filter_on(any_server)
        assert await seen.claim(WorkItem("handle", "a"))
        return await handled(seen, "a")

    assert (asyncio.run(run()), busy.times) == (["a"], 1)


def test_a_message_waits_while_another_consumer_handles_it(
    any_server: Server, clock: Clock, set_hook: Any
) -> None:
    """It waits as long as the other consumer needs, and is then done.

    If it were refused, its offset would be committed with the next message of another partition.
    """
    busy = WhenBusy(partial(clock.advance, 60))
    set_hook(busy)

    async def run() -> list[str]:
        seen = filter_on(any_server)
        async with seen.claim(WorkItem("handle", "a")) as claim:
            assert claim
            waiting = asyncio.create_task(handled(seen, "a"))
            while busy.times < 3:  # noqa: ASYNC110 - the condition has no event
                await asyncio.sleep(0.01)
            assert not waiting.done()
        return await waiting

    assert asyncio.run(run()) == []


def test_two_subscribers_of_one_name_are_refused(any_server: Server) -> None:
    """They would share their items; a `title` tells them apart."""

    def handler() -> Any:
        async def handle(item: str) -> None:
            assert item

        return handle

    async def other(item: str) -> None: ...

    async def run(**second: Any) -> None:
        broker = KafkaBroker(middlewares=[Once(filter_on(any_server), key=body)])
        broker.subscriber("orders")(handler())
        other.__name__ = "handle"
        broker.subscriber("bills", **second)(other)
        async with TestKafkaBroker(broker):
            await broker.publish("a", "orders")
            await broker.publish("a", "bills")

    with pytest.raises(ValueError, match="two subscribers with the name 'handle'"):
        asyncio.run(run())
    asyncio.run(run(title="bills"))


def test_a_lost_filter_stops_the_application(any_server: Server, any_client: redis.Redis) -> None:
    """Until the loss is acknowledged."""
    seen = filter_on(any_server)
    assert asyncio.run(handled(seen, "a")) == ["a"]
    any_client.flushall()
    with pytest.raises(bloomredis.FilterLostError):
        asyncio.run(handled(seen, "a"))
    asyncio.run(filter_on(any_server).clear())
    assert asyncio.run(handled(seen, "a")) == ["a"]


def test_the_example_of_the_page_runs(any_server: Server, any_client: redis.Redis) -> None:
    """With Redis streams: of two messages with one id, one is handled."""
    (example,) = [each for each in on_page(ROOT / "docs" / "faststream.md") if each.language == "python"]
    text = example.text.replace("redis://localhost", any_server.url)
    names: dict[str, Any] = {"__name__": "shop"}
    exec(text, names)  # noqa: S102 - the project's own page

    async def run() -> None:
        async with names["broker"] as broker:
            await broker.start()
            for number in (1, 1, 2):
                await broker.publish("order", stream="orders", headers={"event-id": str(number)})
            deadline = time.monotonic() + 30
            while len(names["shipped"]) < 2:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)

    asyncio.run(run())
    assert names["shipped"] == ["order", "order"]
