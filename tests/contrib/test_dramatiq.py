"""Actors of Dramatiq that run once for an item."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import dramatiq
import pytest
import redis
from dramatiq.brokers.stub import StubBroker
from dramatiq.results import ResultMissing, Results
from dramatiq.results.backends import StubBackend
from redis.backoff import NoBackoff
from redis.retry import Retry

from bloomredis import BloomFilter, FilterNotFoundError, WorkItem
from bloomredis.contrib.dramatiq import Once
from tests.contrib import pages
from tests.contrib.dramatiq_worker import broker_at
from tests.contrib.violence import KEPT, restarting
from tests.support.clock import Clock, WhenBusy
from tests.support.readme import ROOT
from tests.support.servers import Server, running
from tests.support.waiting import wait_until

SIZE: dict[str, Any] = {"capacity": 1000, "error_rate": 1e-6}


class Office:
    """A broker with an actor that notes its orders, and a worker."""

    def __init__(self, seen: Any, *, once: Any = True, **options: Any) -> None:
        self.broker = StubBroker()
        self.results = StubBackend()
        self.broker.add_middleware(Results(backend=self.results))
        self.broker.add_middleware(Once(seen))
        self.shipped: list[str] = []
        self.failures = 0
        backoff = {"min_backoff": 1, "max_backoff": 2}
        self.ship: Any = dramatiq.actor(self._ship, broker=self.broker, once=once, **backoff, **options)

    def _ship(self, order: str, carrier: str = "rail") -> str:
        if self.failures:
            self.failures -= 1
            raise OSError("the office is closed")
        self.shipped.append(f"{order} by {carrier}")
        return f"{order} is shipped"

    def work(self) -> None:
        """Work until no message is left."""
        worker = dramatiq.Worker(self.broker, worker_timeout=10, worker_threads=4)
        worker.start()
        self.broker.join("default", timeout=30_000, fail_fast=False)
        worker.join()
        worker.stop()


@pytest.fixture
def seen(any_client: redis.Redis, clock: Clock, set_hook: Any) -> BloomFilter[Any]:
    """A filter; a message whose item is busy comes again at once."""
    set_hook(WhenBusy(partial(clock.advance, 60)))
    return BloomFilter(any_client, "orders", **SIZE)


def test_an_actor_runs_once_for_its_arguments(seen: BloomFilter) -> None:
    """However many times a message with these arguments is sent."""
    office = Office(seen)
    for order in ("a", "b", "a", "a", "c", "b"):
        office.ship.send(order)
    office.work()
    office.ship.send("a")
    office.work()
    assert sorted(office.shipped) == ["a by rail", "b by rail", "c by rail"]


def test_the_item_is_what_the_option_returns(seen: BloomFilter) -> None:
    """The option takes the arguments of a message."""
    office = Office(seen, once=lambda order, carrier: order)
    office.ship.send("a", "rail")
    office.work()
    office.ship.send("a", "road")
    office.work()
    assert office.shipped == ["a by rail"]


def test_arguments_by_name_are_the_same_item(seen: BloomFilter) -> None:
    """As by position, and as a default that is left out."""
    office = Office(seen)
    office.ship.send("a", "road")
    office.work()
    office.ship.send("a", carrier="road")
    office.ship.send(carrier="road", order="a")
    office.ship.send("a")
    office.work()
    assert sorted(office.shipped) == ["a by rail", "a by road"]


def test_a_direct_call_runs_the_actor(seen: BloomFilter) -> None:
    """It has no message, so it claims nothing; neither does an actor that another one calls."""
    office = Office(seen)

    def body(order: str) -> None:
        office.ship(order)

    outer = dramatiq.actor(body, actor_name="outer", broker=office.broker)
    for _ in range(2):
        office.ship("a")
        outer.send("b")
        office.work()
    assert office.shipped == ["a by rail", "b by rail"] * 2
    with pytest.raises(FilterNotFoundError):
        seen.info()


@pytest.mark.parametrize("on_done", [None, lambda order, carrier="rail": f"{order} was by {carrier}"])
def test_a_done_message_has_a_result(seen: BloomFilter, on_done: Any) -> None:
    """It is None, or what `on_done` returns; it goes on to the next message of a pipeline."""
    options = {} if on_done is None else {"on_done": on_done}
    office = Office(seen, once=lambda order, carrier="rail": order, store_results=True, **options)
    got: list[Any] = []
    following: Any = dramatiq.actor(got.append, actor_name="following", broker=office.broker)
    seen.add(WorkItem("_ship", "a"))
    message = office.ship.message("a")
    dramatiq.pipeline([message, following.message()], broker=office.broker).run()
    office.work()
    result = None if on_done is None else "a was by rail"
    assert (office.results.get_result(message), got, office.shipped) == (result, [result], [])


def test_a_busy_message_has_no_result_yet(seen: BloomFilter) -> None:
    """Its sender waits until it is done."""
    office = Office(seen, once=lambda order: order, store_results=True)
    results: list[bool] = []

    class Watch(dramatiq.Middleware):
        def after_enqueue(self, broker: Any, message: Any, delay: Any) -> None:
            if delay is not None:
                results.append(_has_result(office, message))
                held.release()

        def after_ack(self, broker: Any, message: Any) -> None:
            results.append(_has_result(office, message))

    office.broker.add_middleware(Watch())
    held = seen.claim(WorkItem("_ship", "a"))
    assert held
    message = office.ship.send("a")
    office.work()
    assert results[:2] == [False, False]
    assert office.results.get_result(message) == "a is shipped"


def _has_result(office: Office, message: Any) -> bool:
    with suppress(ResultMissing):
        office.results.get_result(message)
        return True
    return False


@pytest.mark.parametrize("followed", [1, 2])
def test_the_result_of_an_earlier_delivery_stays(seen: BloomFilter, followed: int) -> None:
    """The worker died before it acknowledged the message.

    What follows is not sent again, if a stored result shows that the message has succeeded.
    """
    is_stored = followed == 1
    office = Office(seen, once=lambda order: order, store_results=is_stored)
    got: list[Any] = []
    following: Any = dramatiq.actor(got.append, actor_name="following", broker=office.broker)
    message = dramatiq.pipeline([office.ship.message("a"), following.message()]).messages[0]
    for _ in range(2):
        office.broker.enqueue(message)
        office.work()
    assert (office.shipped, got) == (["a by rail"], ["a is shipped", None][:followed])
    assert _has_result(office, message) is is_stored
    assert not is_stored or office.results.get_result(message) == "a is shipped"


def test_other_actors_are_left_alone(seen: BloomFilter) -> None:
    """An actor without the option runs for each message."""
    office = Office(seen, once=None)
    office.ship.send("a")
    office.ship.send("a")
    office.work()
    assert len(office.shipped) == 2


def test_an_actor_that_raises_is_retried(seen: BloomFilter) -> None:
    """Its item is given back before the retry."""
    office = Office(seen)
    office.failures = 2
    office.ship.send("a")
    office.work()
    assert office.shipped == ["a by rail"]


def test_the_next_message_of_a_pipeline_comes_before_the_commit(seen: BloomFilter) -> None:
    """Else it would be lost with a worker that dies between the two."""
    office = Office(seen, once=lambda order, carrier="rail": order)
    billed: list[str] = []
    committed: list[bool] = []

    class Watch(dramatiq.Middleware):
        def after_enqueue(self, broker: Any, message: Any, delay: Any) -> None:
            if message.actor_name == "bill":
                committed.append(WorkItem("_ship", "a") in seen)

    office.broker.add_middleware(Watch())
    bill = dramatiq.actor(billed.append, actor_name="bill", broker=office.broker)
    messages = [office.ship.message("a"), bill.message_with_options(args=("a",), pipe_ignore=True)]
    dramatiq.pipeline(messages, broker=office.broker).run()
    office.work()
    assert (billed, committed, WorkItem("_ship", "a") in seen) == (["a"], [False], True)


def test_a_busy_item_comes_again_when_it_may_be_free(
    any_client: redis.Redis, clock: Clock, set_hook: Any
) -> None:
    """A dead worker's item is taken after its lease, and no retry is used up."""
    busy = WhenBusy(partial(clock.end_leases, any_client))
    set_hook(busy)
    seen: Any = BloomFilter(any_client, "orders", **SIZE)
    office = Office(seen)
    assert seen.claim('["_ship", {"carrier": "rail", "order": "a"}]')
    office.broker.enqueue(office.ship.message_with_options(args=("a",), max_retries=0))
    office.work()
    assert (office.shipped, busy.times) == (["a by rail"], 1)


def test_without_a_server_no_actor_runs() -> None:
    """The message is retried, and fails after its last retry."""
    client = redis.Redis(host="127.0.0.1", port=1, retry=Retry(NoBackoff(), 0))
    office = Office(BloomFilter(client, "orders", **SIZE))
    office.broker.enqueue(office.ship.message_with_options(args=("a",), max_retries=1))
    office.work()
    assert office.shipped == []
    assert len(office.broker.dead_letters) == 1


def test_a_lost_filter_stops_the_actors(seen: BloomFilter, any_client: redis.Redis) -> None:
    """Until the loss is acknowledged; messages are retried, and fail then."""
    office = Office(seen, max_retries=1)
    office.ship.send("a")
    office.work()
    any_client.flushall()
    office.ship.send("a")
    office.work()
    assert (len(office.shipped), len(office.broker.dead_letters)) == (1, 1)
    BloomFilter(any_client, seen.name, capacity=1000, error_rate=1e-6).clear()
    office.ship.send("a")
    office.work()
    assert len(office.shipped) == 2


@contextmanager
def worker(server: Server, seen: Server) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker process with a broker and a filter; kill it at the end."""
    command = [sys.executable, "-m", "tests.contrib.dramatiq_worker", server.socket, seen.socket]
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


def test_the_items_of_a_worker_that_is_killed_are_done_by_another(any_server: Server) -> None:
    """Only the items that its four threads had not committed are worked on twice.

    While the other worker works, the filter's server is away for a second.
    """
    orders = [f"order-{i}" for i in range(40)]
    with running(any_server.binary, *KEPT) as seen:
        _, ship, client = broker_at(any_server.socket, seen.socket)
        with worker(any_server, seen) as first:
            for order in orders * 2:
                ship.send(order)
            wait_until("five are done", lambda: client.llen("ended") >= 5)
            first.kill()
            first.wait(30)
        with seen.client() as filters:
            done = BloomFilter.open(filters, "orders")
            in_hand = {order for order in client.lrange("begun", 0, -1) if _item(order) not in done}
        before = client.llen("ended")
        with worker(any_server, seen), restarting(seen, lambda: client.llen("ended") > before + 5):
            wait_until("all are done", lambda: len(set(client.lrange("ended", 0, -1))) == len(orders))
    begun, ended = (Counter(client.lrange(name, 0, -1)) for name in ("begun", "ended"))
    assert {order for order, times in (begun | ended).items() if times > 1} <= in_hand
    assert len(in_hand) <= 4


def _item(order: bytes) -> str:
    """Return the item of a message to the actor `ship`."""
    return f'["ship", {{"order": "{order.decode()}"}}]'


def test_the_page_runs(any_server: Server) -> None:
    """The second message of the page is skipped."""
    names = pages.run("dramatiq", any_server)
    worker = dramatiq.Worker(names["broker"], worker_timeout=10, worker_threads=1)
    worker.start()
    names["broker"].join("default", timeout=30_000)
    worker.stop()
    with any_server.client() as client:
        assert BloomFilter.open(client, "shipped-orders").info().count == 1
