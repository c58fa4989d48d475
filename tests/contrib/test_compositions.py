"""Groups, chains, dependencies and replies: what follows a message, if its item is done or busy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import dramatiq
import pytest
from celery import chain, chord
from dramatiq.brokers.stub import StubBroker
from dramatiq.middleware import GroupCallbacks
from dramatiq.rate_limits.backends import StubBackend
from faststream.redis import RedisBroker

import bloomredis.asyncio
from bloomredis import BloomFilter, WorkItem
from bloomredis.contrib.dramatiq import Once
from bloomredis.contrib.faststream import Once as OnceOfFastStream
from tests.contrib.celery_worker import worker
from tests.contrib.recipes import RECIPES, Shop
from tests.support.servers import Server
from tests.support.waiting import wait_until

SIZE: Final[dict[str, Any]] = {"capacity": 1000, "error_rate": 1e-6}
ORDERS: Final = ["done", "busy", "new"]


@dataclass
class Scene:
    """A queue with a worker.

    :ivar seen: the filter.
    :ivar item: returns the item of an order.
    :ivar compose: sends orders together, so that something follows the last of them.
    :ivar ended: returns the orders that were shipped, and "followed".
    """

    seen: Any
    item: Callable[[str], str | WorkItem]
    compose: Callable[[list[str]], object]
    ended: Callable[[], list[str]]


@contextmanager
def celery(composition: Any, server: Server, monkeypatch: pytest.MonkeyPatch, _: Path) -> Iterator[Scene]:
    """A worker of Celery in another process."""
    monkeypatch.setenv("BLOOMREDIS_TEST_SOCKET", server.socket)
    from tests.contrib import tasks

    def compose(orders: list[str]) -> None:
        members = [tasks.member.si(order) for order in orders]
        if composition is chord:
            chord(members)(tasks.followed.si())
        else:
            chain(*members, tasks.followed.si())()

    tasks.seen.acknowledge()  # the tests before this one may have lost it
    tasks.seen.create()
    with worker("compositions"):
        yield Scene(
            tasks.seen,
            lambda order: str(tasks.member.item((order,), {})),
            compose,
            lambda: list(map(str, tasks.notes.lrange("ended", 0, -1))),
        )


@contextmanager
def dramatiq_worker(composition: Any, server: Server, *_: Any) -> Iterator[Scene]:
    """A worker of Dramatiq in threads."""
    broker, ended = StubBroker(), list[str]()
    seen = BloomFilter.from_url(server.url, "orders", **SIZE)
    broker.add_middleware(GroupCallbacks(StubBackend()))
    broker.add_middleware(Once(seen))
    ship: Any = dramatiq.actor(ended.append, actor_name="ship", broker=broker, once=lambda order: order)
    followed: Any = dramatiq.actor(lambda: ended.append("followed"), actor_name="followed", broker=broker)

    def compose(orders: list[str]) -> None:
        members = [ship.message_with_options(args=(order,), pipe_ignore=True) for order in orders]
        if composition is dramatiq.group:
            group = dramatiq.group(members, broker=broker)
            group.add_completion_callback(followed.message())
            group.run()
        else:
            last = followed.message_with_options(pipe_ignore=True)
            dramatiq.pipeline([*members, last], broker=broker).run()

    worker = dramatiq.Worker(broker, worker_timeout=10, worker_threads=2)
    worker.start()
    yield Scene(seen, partial(WorkItem, "ship"), compose, lambda: ended)
    worker.stop()


@contextmanager
def replies(_: Any, server: Server, *__: Any) -> Iterator[Scene]:
    """A broker of FastStream, whose sender waits for a reply to each order."""
    ended: list[str] = []

    async def run(orders: list[str]) -> None:
        seen = bloomredis.asyncio.BloomFilter.from_url(server.url, "orders", **SIZE)
        broker = RedisBroker(server.url, middlewares=[OnceOfFastStream(seen, key=body)])

        @broker.subscriber("orders")
        async def ship(order: str) -> None:
            ended.append(order)

        async with broker, seen:
            await broker.start()
            await asyncio.gather(*(broker.request(order, "orders", timeout=30) for order in orders))
        ended.append("followed")

    async def body(message: Any) -> Any:
        return await message.decode()

    seen = BloomFilter.from_url(server.url, "orders", **SIZE)
    yield Scene(seen, partial(WorkItem, "ship"), lambda orders: asyncio.run(run(orders)), lambda: ended)


@contextmanager
def recipe(composition: Any, server: Server, _: pytest.MonkeyPatch, folder: Path) -> Iterator[Scene]:
    """A program of docs/queues.md with a worker in another process."""
    name, text = composition
    shop = Shop(RECIPES[name], folder, server, server, text)
    notes: Any = shop.notes
    notes.set("go", 1)
    with shop.worker():
        shop.send(["before"])
        wait_until("the worker works", lambda: notes.llen("ended"))
        notes.delete("ended")
        seen = BloomFilter.from_url(server.url, "shipped", capacity=1_000_000, error_rate=1e-6)
        yield Scene(seen, partial(WorkItem, "ship"), shop.compose, lambda: notes.lrange("ended", 0, -1))


SCENES: Final = {
    "a chord of Celery": partial(celery, chord),
    "a chain of Celery": partial(celery, chain),
    "a group of Dramatiq": partial(dramatiq_worker, dramatiq.group),
    "a pipeline of Dramatiq": partial(dramatiq_worker, dramatiq.pipeline),
    "a list of replies of FastStream": partial(replies, None),
    **{
        f"a {kind} of {name}": partial(recipe, (name, text))
        for name, each in RECIPES.items()
        for kind, text in each.compositions.items()
    },
}


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_what_follows_comes_after_all(
    scene: Any, any_server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One order is done, one is held by a worker that is dead, and one is new.

    The last two are shipped.  What follows them comes once, after both.
    """
    with scene(any_server, monkeypatch, tmp_path) as running:
        running.seen.add(running.item("done"))
        assert running.seen.claim(running.item("busy"), lease=1.0)
        running.compose(ORDERS)
        wait_until("what follows has come", lambda: "followed" in running.ended())
        assert sorted(running.ended()[:-1]) == ["busy", "new"]
        assert running.ended()[-1] == "followed"
