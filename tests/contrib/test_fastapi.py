"""A receiver of webhooks in FastAPI."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any
from unittest.mock import patch

import httpx
import pytest
import redis
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse

import bloomredis
import bloomredis.asyncio
from bloomredis.contrib.fastapi import once
from tests.contrib import pages
from tests.contrib.violence import acknowledge
from tests.support.servers import Server
from tests.support.values import for_each

SIZE: dict[str, Any] = {"capacity": 1000, "error_rate": 1e-6}


class Receiver:
    """An application with an endpoint that notes its events."""

    def __init__(self, url: str, **how: Any) -> None:
        self.worked: list[str] = []
        self.fails = False
        self.begun = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.returns: Any = "worked"
        self.seen = bloomredis.asyncio.BloomFilter.from_url(url, "hooks", **SIZE)
        app = FastAPI()

        @app.post("/", dependencies=[once(self.seen, **(how or {"header": "X-Id"}))])
        async def hook(event: dict[str, str]) -> Any:
            self.begun.set()
            await self.goes_on.wait()
            if self.fails:
                raise HTTPException(500)
            self.worked.append(event["id"])
            return self.returns

        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://here")

    async def deliver(self, event: str) -> httpx.Response:
        """Deliver an event, as a sender does."""
        return await self.http.post("/", json={"id": event}, headers={"X-Id": event})


@pytest.fixture
def received(any_server: Server) -> Callable[..., Any]:
    """A function that runs a scenario with a receiver."""

    def run(scenario: Callable[[Receiver], Awaitable[Any]], **how: Any) -> Any:
        async def main() -> Any:
            receiver = Receiver(any_server.url, **how)
            try:
                return await scenario(receiver)
            finally:
                await receiver.seen.close()

        return asyncio.run(main())

    return run


def test_a_repeat_is_answered_without_work(received: Any) -> None:
    """Each repeat is answered 200."""

    async def scenario(receiver: Receiver) -> None:
        answers = [await receiver.deliver("e1") for _ in range(3)] + [await receiver.deliver("e2")]
        assert [answer.status_code for answer in answers] == [200] * 4
        assert answers[1].json() == {"detail": "this event was processed already"}
        assert receiver.worked == ["e1", "e2"]

    received(scenario)


def test_deliveries_at_the_same_time_are_worked_on_once(received: Any) -> None:
    """The second is answered 409, with the time after which the first may be over."""

    async def scenario(receiver: Receiver) -> None:
        receiver.goes_on.clear()
        first = asyncio.create_task(receiver.deliver("e1"))
        await receiver.begun.wait()
        second = await receiver.deliver("e1")
        receiver.goes_on.set()
        assert second.status_code == 409
        assert 0 < int(second.headers["Retry-After"]) <= 30
        assert (await first).status_code == 200
        assert receiver.worked == ["e1"]

    received(scenario)


def test_an_endpoint_that_raises_gives_the_event_back(received: Any) -> None:
    """The next delivery is worked on at once."""

    async def scenario(receiver: Receiver) -> None:
        receiver.fails = True
        assert (await receiver.deliver("e1")).status_code == 500
        receiver.fails = False
        assert (await receiver.deliver("e1")).json() == "worked"

    received(scenario)


def test_an_event_is_done_before_its_response_is_sent(received: Any, any_client: redis.Redis) -> None:
    """If the claim was lost meanwhile, the response is an error."""

    async def scenario(receiver: Receiver) -> None:
        receiver.goes_on.clear()
        first = asyncio.create_task(receiver.deliver("e1"))
        await receiver.begun.wait()
        any_client.delete(*any_client.keys("{hooks}:claim:*"))
        receiver.goes_on.set()
        assert (await first).status_code == 500

    received(scenario)


def test_an_error_that_an_outer_dependency_suppresses_gives_the_event_back(any_server: Server) -> None:
    """FastAPI answers 500, and the next delivery is worked on."""

    async def suppressing() -> AsyncIterator[None]:
        with suppress(LookupError):
            yield

    async def run() -> list[httpx.Response]:
        seen = bloomredis.asyncio.BloomFilter.from_url(
            any_server.url, "hooks", capacity=1000, error_rate=1e-6
        )
        app, errors = FastAPI(dependencies=[Depends(suppressing, scope="function")]), [LookupError()]

        @app.post("/", dependencies=[once(seen, header="X-Id")])
        async def hook() -> str:
            if errors:
                raise errors.pop()
            return "worked"

        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as http:
            return [await http.post("/", headers={"X-Id": "e1"}) for _ in range(2)]

    first, second = asyncio.run(run())
    assert (first.status_code, second.json()) == (500, "worked")


def test_an_error_that_an_endpoint_returns_is_done(received: Any) -> None:
    """Only an exception gives the event back."""

    async def scenario(receiver: Receiver) -> None:
        receiver.returns = JSONResponse(None, 500)
        assert [(await receiver.deliver("e1")).status_code for _ in range(2)] == [500, 200]

    received(scenario)


@for_each(("options", "before"), [({}, 503), ({"on_lost": "recreate"}, 200)])
def test_a_lost_filter_stops_the_workers(
    any_server: Server, any_client: redis.Redis, options: dict[str, Any], before: int
) -> None:
    """The answer is 503 until the loss is acknowledged; with `on_lost="recreate"` each event runs again."""

    async def scenario() -> None:
        with patch.dict(SIZE, options):
            receiver = Receiver(any_server.url)
            assert (await receiver.deliver("e1")).json() == "worked"
            any_client.flushall()
            assert (await receiver.deliver("e1")).status_code == before
            if not options:
                assert (await receiver.deliver("e1")).status_code == 503
                acknowledge(any_server, "hooks", "--capacity", "1000", "--error-rate", "1e-6")
            assert (await receiver.deliver("e1")).status_code == 200
            assert receiver.worked == ["e1"] * 2

    asyncio.run(scenario())


def test_an_event_without_an_id_is_refused(received: Any) -> None:
    """The answer is 400."""

    async def scenario(receiver: Receiver) -> None:
        assert (await receiver.http.post("/", json={"id": "e1"})).status_code == 400
        assert receiver.worked == []

    received(scenario)


def test_an_id_may_be_in_the_body(received: Any) -> None:
    """`key` may be a coroutine function."""

    async def identity(request: Request) -> str:
        found: str = (await request.json())["id"]
        return found

    async def scenario(receiver: Receiver) -> None:
        for _ in range(2):
            assert (await receiver.deliver("e1")).status_code == 200
        assert receiver.worked == ["e1"]

    received(scenario, key=identity)


@for_each(("identity", "worked"), [(None, ["e1", "e1"]), ("", ["e1", "e1"]), (0, ["e1"])])
def test_an_event_may_have_no_id(any_server: Server, identity: Any, worked: list[str]) -> None:
    """If `key` returns None or an empty text, the endpoint runs as usual; 0 is an id."""

    async def scenario() -> None:
        receiver = Receiver(any_server.url, key=lambda _: identity)
        answers = [await receiver.deliver("e1") for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 200]
        assert receiver.worked == worked
        await receiver.seen.close()

    asyncio.run(scenario())


def test_an_event_with_two_ids_is_refused(received: Any) -> None:
    """The answer is 400."""

    async def scenario(receiver: Receiver) -> None:
        headers = [("X-Id", "e1"), ("X-Id", "e2")]
        answer = await receiver.http.post("/", json={"id": "e1"}, headers=headers)
        assert (answer.status_code, answer.json()) == (400, {"detail": "2 ids of an event in X-Id, not one"})
        assert receiver.worked == []

    received(scenario)


def test_without_a_server_the_sender_comes_again() -> None:
    """The answer is 503, and the endpoint does not run."""

    async def scenario() -> None:
        receiver = Receiver("redis://127.0.0.1:1")
        assert (await receiver.deliver("e1")).status_code == 503
        assert receiver.worked == []

    asyncio.run(scenario())


@pytest.mark.parametrize("how", [{}, {"header": "X-Id", "key": str}])
def test_the_id_has_one_place(how: dict[str, Any]) -> None:
    """A header or a function; neither or both raise `TypeError`."""
    with pytest.raises(TypeError, match="one of the two"):
        once(None, **how)


def test_the_page_runs(any_server: Server) -> None:
    """The endpoint of the page runs once for two deliveries."""
    app = pages.run("fastapi", any_server)["app"]

    async def deliver_twice() -> list[Any]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as http:
            headers = {"X-GitHub-Delivery": "e1"}
            return [(await http.post("/github", json={"id": "e1"}, headers=headers)).json() for _ in "ab"]

    assert asyncio.run(deliver_twice()) == [{"done": "e1"}, {"detail": "this event was processed already"}]
