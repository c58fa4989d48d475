"""The programs of docs/any-framework.md, in an aiohttp server and in workers of Kombu."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp.test_utils import TestClient, TestServer
from kombu import Connection, Queue

from bloomredis import FilterLostError
from tests.contrib.violence import KEPT, restart
from tests.support.readme import ROOT, on_page
from tests.support.servers import Server, running
from tests.support.waiting import wait_until

EXAMPLES = [block for block in on_page(ROOT / "docs" / "any-framework.md") if block.language == "python"]
PAGE: Final = {
    name: block.text for name, block in zip(("five lines", "aiohttp", "Kombu"), EXAMPLES, strict=True)
}


def program(name: str, seen: Server, **given: Any) -> dict[str, Any]:
    """Return the names of an example whose filter is on that server."""
    names = dict(given)
    exec(PAGE[name].replace("redis://localhost", seen.url), names)  # noqa: S102 - the project's own page
    return names


def test_five_lines(any_server: Server) -> None:
    """Each outcome in the table of the page: done, done before, busy, failed, and a lost filter."""
    delivered: list[str] = []

    def deliver(order: str) -> None:
        delivered.append(order)
        if delivered.count(order) == 1 and order.startswith("fails"):
            raise LookupError(order)

    names = program("five lines", any_server, deliver=deliver)
    ship, seen = names["ship"], names["seen"]
    with seen.claim(ship.item("busy"), lease=30) as claim:
        assert claim
        with pytest.raises(TimeoutError) as caught:
            ship("busy")
        assert 29 < caught.value.args[0] < 30.1
    with pytest.raises(LookupError):
        ship("fails once")
    assert ship("fails once") is None
    assert delivered == ["order-1", "fails once", "fails once"]
    with any_server.client() as client:
        client.flushall()
    for _ in range(2):
        with pytest.raises(FilterLostError):
            ship("order-2")
    again = program("five lines", any_server, deliver=deliver)  # a worker that is started again
    assert again["ship"]("order-2") is None
    assert delivered[3:] == ["order-1", "order-2"]


PAID: Final = b'{"paid": true}'


class Site:
    """The application of the page, and the payments that it has made."""

    def __init__(self, seen: Server) -> None:
        self.paid: list[str] = []
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()
        self.names = program("aiohttp", seen, charge=self.charge)

    async def charge(self, payment: dict[str, str]) -> None:
        """Make a payment, once it may."""
        self.begun.set()
        await self.go.wait()
        if payment.get("fails") and not self.paid:
            self.paid.append("failed")
            raise LookupError("the bank")
        self.paid.append(payment["order"])

    async def asked(self, work: Callable[[Any], Awaitable[None]]) -> None:
        """Run the application while a client works with it."""
        async with TestClient(TestServer(self.names["app"])) as client:
            await work(client)


async def pay(client: Any, order: str, **more: str) -> tuple[int, bytes, str | None]:
    """Send a payment; return status, body and the header Retry-After."""
    headers = {"Idempotency-Key": order}
    async with client.post("/pay", json={"order": order, **more}, headers=headers) as answer:
        return answer.status, await answer.read(), answer.headers.get("Retry-After")


def test_aiohttp(any_server: Server) -> None:
    """A payment is made once; a repeat gets 200, one in progress 409, one without a key 400."""

    async def work() -> None:
        site = Site(any_server)

        async def requests(client: Any) -> None:
            assert await pay(client, "a") == (200, PAID, None)
            assert await pay(client, "a") == (200, b"", None)
            site.go.clear()
            site.begun.clear()
            first = asyncio.ensure_future(pay(client, "b"))
            await site.begun.wait()
            status, _, seconds = await pay(client, "b")
            assert (status, 1 <= int(seconds or 0) <= 30) == (409, True)
            site.go.set()
            assert (await first)[:2] == (200, PAID)
            async with client.post("/pay", json={"order": "c"}) as answer:
                assert answer.status == 400
            assert site.paid == ["a", "b"]
            held = await site.names["seen"].claim(site.names["pay_once"].item("d"))  # of another worker
            assert (await pay(client, "d"))[0] == 409
            await held.release()
            assert (await pay(client, "d"))[:2] == (200, PAID)

        await site.asked(requests)

    asyncio.run(work())


def test_aiohttp_after_failures(any_server: Server) -> None:
    """A body that raises frees the key; 503 while the server is away, and from a loss to the restart."""

    async def work(server: Server) -> None:
        site = Site(server)

        async def requests(client: Any) -> None:
            assert (await pay(client, "a", fails="once"))[0] == 500
            assert await pay(client, "a", fails="once") == (200, PAID, None)
            server.stop()
            assert await pay(client, "b") == (503, b"503: Service Unavailable", "10")
            server.start()
            assert await pay(client, "a") == (200, b"", None)
            site.go.clear()
            site.begun.clear()
            committed = asyncio.ensure_future(pay(client, "away"))
            await site.begun.wait()
            server.stop()
            site.go.set()
            while "away" not in site.paid:  # noqa: ASYNC110 - until the body has ended
                await asyncio.sleep(0.01)
            server.start()
            assert await committed == (200, PAID, None)
            with server.client() as filters:
                filters.flushall()
            assert [(await pay(client, "c"))[0] for _ in range(2)] == [503, 503]

        await site.asked(requests)
        assert site.paid == ["failed", "a", "away"]
        again = Site(server)

        async def after(client: Any) -> None:
            assert await pay(client, "c") == (200, PAID, None)

        await again.asked(after)

    with running(any_server.binary, *KEPT) as server:
        asyncio.run(work(server))


NOTES: Final = """
import os as _os, time as _time
import redis as _redis
_notes = _redis.Redis(unix_socket_path={notes!r})
def deliver(order):
    _notes.rpush("begun", order + " " + str(_os.getpid()))
    while not _notes.exists("go"):
        _time.sleep(0.02)
    _notes.rpush("ended", order)
"""
ORDERS: Final = [f"order-{number}" for number in range(8)]


class Shop:
    """The program of the page for Kombu, in a folder of its own; an order ends once the key "go" exists."""

    def __init__(self, folder: Path, broker: Server, seen: Server) -> None:
        self.notes: Any = broker.client(decode_responses=True)
        self._url = broker.url.replace("unix://", "redis+socket://")
        text = PAGE["Kombu"].replace('from_url("redis://localhost"', f'from_url("{seen.url}"')
        text = text.replace("redis://localhost", self._url).replace("lease=30", "lease=3")
        text = text.replace('"visibility_timeout": 60', '"visibility_timeout": 3')
        self._path = folder / "shop.py"
        self._path.write_text(f"{NOTES.format(notes=broker.socket)}\n{text}\nWorker().run()\n")

    @contextmanager
    def worker(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run a worker, and end it by its own id."""
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        with subprocess.Popen([sys.executable, str(self._path)], env=environment) as process:
            try:
                yield process
            finally:
                process.kill()

    def send(self, *orders: str) -> None:
        """Send orders."""
        with Connection(self._url) as connection, connection.Producer() as producer:
            for order in orders:
                producer.publish(order, routing_key="orders", declare=[Queue("orders")])

    def begun(self) -> list[list[str]]:
        """Return each delivery that has begun: its order and its process."""
        return [note.split() for note in self.notes.lrange("begun", 0, -1)]

    def pushes(self) -> int:
        """Return how many messages were sent or requeued."""
        stats = self.notes.info("commandstats")
        return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("lpush", "rpush"))

    def ended(self) -> Counter[str]:
        """Return how often each order was delivered."""
        return Counter(self.notes.lrange("ended", 0, -1))


def test_kombu_loses_no_order(any_server: Server, tmp_path: Path) -> None:
    """Each order is sent twice; a worker is killed, and the filter's server is away for a second."""
    with running(any_server.binary, *KEPT) as seen:
        shop = Shop(tmp_path, any_server, seen)
        with shop.worker() as first, shop.worker() as second:
            shop.send(*ORDERS * 2)
            wait_until("both workers are in the middle", lambda: len({by for _, by in shop.begun()}) == 2)
            cut = [order for order, by in shop.begun() if by == str(first.pid)]
            first.send_signal(signal.SIGKILL)
            restart(seen, meanwhile=lambda: shop.notes.set("go", 1))
            wait_until("all have ended", lambda: shop.ended().keys() == set(ORDERS))
            wait_until("the queue is empty", lambda: not shop.notes.exists("orders", "unacked"))
            assert second.poll() is None
        begun = Counter(order for order, _ in shop.begun())
    assert shop.ended() == dict.fromkeys(ORDERS, 1)
    assert {order for order, times in begun.items() if times > 1} <= set(cut)


def test_kombu_waits_for_a_restart_after_a_loss(any_server: Server, tmp_path: Path) -> None:
    """A running worker requeues each order; one that is started again delivers it."""
    with running(any_server.binary) as seen:
        shop = Shop(tmp_path, any_server, seen)
        shop.notes.set("go", 1)
        with shop.worker():
            shop.send("before")
            wait_until("it has ended", lambda: shop.ended()["before"])
            with seen.client() as client:
                client.flushall()
            shop.send("after")
            sent = shop.pushes()
            wait_until("it was requeued twice", lambda: shop.pushes() >= sent + 2)
            assert not shop.ended()["after"]
        with shop.worker():
            wait_until("it has ended", lambda: shop.ended()["after"])
