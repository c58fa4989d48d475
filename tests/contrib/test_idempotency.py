"""Requests that run once, in ASGI, WSGI, Flask and Django."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
import unittest
from collections.abc import Callable, Coroutine, Iterator
from contextlib import nullcontext, suppress
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, patch

import fastapi
import flask
import httpx
import pytest
import redis
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.httpsredirect import HTTPSRedirectMiddleware
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

import bloomredis.asyncio
from bloomredis import BloomFilter, ClaimLostError, ServerRefusedError
from bloomredis.contrib.fastapi import once as once_of_fastapi
from bloomredis.contrib.idempotency import HEADER, ASGIMiddleware, WSGIMiddleware, claim_or_answer
from tests.contrib import django_project, pages  # noqa: F401 - the settings
from tests.contrib.violence import KEPT, acknowledge
from tests.support.proxy import Held, proxied, refused
from tests.support.servers import Server, running
from tests.support.values import for_each
from tests.support.waiting import PATIENCE, wait_until

SIZE: dict[str, Any] = {"capacity": 1000, "error_rate": 1e-6}


class Loop:
    """An event loop in a thread of its own, which runs coroutines for any thread."""

    current: Loop

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine, and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    def end(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(autouse=True)
def loop() -> Iterator[None]:
    """The loop of a test."""
    Loop.current = Loop()
    yield
    Loop.current.end()


class Work:
    """The work of the applications: it notes keys and returns a status."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.status = 201
        self.error: Exception | None = None
        self.entered = threading.Event()
        self.goes_on = threading.Event()
        self.goes_on.set()

    def __call__(self, key: str) -> int:
        self.entered.set()
        assert self.goes_on.wait(60)
        if self.error:
            raise self.error
        self.done.append(key)
        return self.status


class Deliver:
    """A client of an application, which delivers requests from any thread."""

    def __init__(self, ask: Callable[[str, dict[str, str]], tuple[int, dict[str, str], bytes]]) -> None:
        self._ask = ask
        self.headers: dict[str, str] = {}

    def __call__(
        self, key: str | None, method: str = "POST", path: str = "/pay"
    ) -> tuple[int, dict[str, str], bytes]:
        return self._ask(f"{method} {path}", self.headers | ({} if key is None else {HEADER: key}))


def of_asgi(app: Any) -> Deliver:
    def ask(line: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        async def run() -> httpx.Response:
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
                return await client.request(*line.split(), headers=headers)

        got = Loop.current.run(run())
        return got.status_code, dict(got.headers), got.content

    return Deliver(ask)


def of_wsgi(app: Any) -> Deliver:
    def ask(line: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        with httpx.Client(transport=httpx.WSGITransport(app), base_url="http://here") as client:
            try:
                got = client.request(*line.split(), headers=headers)
            except (ZeroDivisionError, ClaimLostError):
                return 500, {}, b""  # as WSGI servers do
        return got.status_code, dict(got.headers), got.content

    return Deliver(ask)


def environ_of(path: str, key: str) -> dict[str, Any]:
    """Return the environ of a request without a body."""
    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": path, "HTTP_IDEMPOTENCY_KEY": key}
    return environ | {"wsgi.input": io.BytesIO()}


async def no_body() -> dict[str, Any]:
    """Receive a request without a body."""
    return {"type": "http.request", "body": b"", "more_body": False}


def make_asgi(url: str, work: Work, **options: Any) -> Deliver:
    """Return a client of an ASGI application."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = {key.decode(): value.decode() for key, value in scope["headers"]}
        status = await asyncio.to_thread(work, headers.get("idempotency-key", ""))
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"worked"})

    seen = bloomredis.asyncio.BloomFilter.from_url(url, "keys", **SIZE)
    return of_asgi(ASGIMiddleware(app, seen, **options))


def make_wsgi(url: str, work: Work, **options: Any) -> Deliver:
    """Return a client of a WSGI application that begins its response late."""

    def app(environ: Any, start: Any) -> Iterator[bytes]:
        status = work(environ.get("HTTP_IDEMPOTENCY_KEY", ""))
        start(f"{status} Done", [("X-Own", "1")])
        yield b"wor"
        yield b"ked"

    return of_wsgi(WSGIMiddleware(app, BloomFilter.from_url(url, "keys", **SIZE), **options))


def make_flask(url: str, work: Work, **options: Any) -> Deliver:
    """Return a client of a Flask application."""
    app = flask.Flask("shop")

    @app.route("/pay", methods=["POST", "GET"])
    @app.route("/refund", methods=["POST"])
    def pay() -> Any:
        return "worked", work(flask.request.headers.get("Idempotency-Key", ""))

    app.wsgi_app = WSGIMiddleware(app.wsgi_app, BloomFilter.from_url(url, "keys", **SIZE), **options)
    return of_wsgi(app)


def make_django(url: str, work: Work, *, is_asyncio: bool = False, **options: Any) -> Deliver:
    """Return a client of views of Django."""
    from django.http import HttpResponse
    from django.test import AsyncClient, Client, override_settings
    from django.urls import path

    from bloomredis.contrib.django import once

    half = bloomredis.asyncio if is_asyncio else bloomredis
    seen: Any = half.BloomFilter.from_url(url, "keys", **SIZE)
    options = {"required": False} | options

    def pay(request: Any) -> Any:
        return HttpResponse("worked", status=work(request.headers.get("Idempotency-Key", "")))

    async def pay_later(request: Any) -> Any:
        status = await asyncio.to_thread(work, request.headers.get("Idempotency-Key", ""))
        return HttpResponse("worked", status=status)

    view = once(seen, **options)(pay_later if is_asyncio else pay)
    urls = tuple(path(name, view) for name in ("pay", "refund"))

    def ask(line: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        method, to = line.split()
        with override_settings(ROOT_URLCONF=urls):
            if not is_asyncio:
                got = Client(raise_request_exception=False).generic(method, to, headers=headers)
            else:
                client = AsyncClient(raise_request_exception=False)
                got = Loop.current.run(client.generic(method, to, headers=headers))
        return got.status_code, {name.lower(): value for name, value in got.items()}, got.content

    return Deliver(ask)


def make_async_django(url: str, work: Work, **options: Any) -> Deliver:
    """Return a client of asynchronous views."""
    return make_django(url, work, is_asyncio=True, **options)


MAKERS = {
    each.__name__.removeprefix("make_"): each
    for each in (make_asgi, make_wsgi, make_flask, make_django, make_async_django)
}
EACH = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


@EACH
def test_a_request_runs_once(make: Any, any_server: Server) -> None:
    """A repeat is answered 200 without work; a request with another key, path or method runs."""
    work = Work()
    deliver = make(any_server.url, work)
    status, headers, body = deliver("k1")
    assert (status, body) == (201, b"worked")
    assert headers.get("x-own", "1") == "1"
    status, headers, body = deliver('"k1"')  # a quoted string, as in the draft
    assert (status, headers["content-type"]) == (200, "application/json")
    assert body == b'{"detail": "this request was processed already"}'
    assert [deliver("k2")[0], deliver("k1", path="/refund")[0]] == [201, 201]
    assert [deliver(None)[0], deliver(None)[0]] == [201, 201]
    assert work.done == ["k1", "k2", "k1", "", ""]


@EACH
def test_a_busy_request_comes_again(make: Any, any_server: Server) -> None:
    """The answer is 409, with the seconds left of the lease in `Retry-After`."""
    work = Work()
    work.goes_on.clear()
    deliver = make(any_server.url, work)
    first: list[Any] = []
    thread = threading.Thread(target=lambda: first.append(deliver("k1")))
    thread.start()
    assert work.entered.wait(60)
    status, headers, body = deliver("k1")
    work.goes_on.set()
    thread.join(60)
    assert (status, headers["content-type"]) == (409, "application/problem+json")
    assert 20 <= int(headers["retry-after"]) <= 30
    assert b'"status": 409' in body
    assert first[0][0] == 201
    assert (deliver("k1")[0], work.done) == (200, ["k1"])


@EACH
@pytest.mark.parametrize("failure", [422, 500, ZeroDivisionError()], ids=str)
def test_a_request_that_failed_may_come_again(make: Any, any_server: Server, failure: Any) -> None:
    """After an error status, and after an exception."""
    work = Work()
    deliver = make(any_server.url, work)
    work.status, work.error = (500, failure) if isinstance(failure, Exception) else (failure, None)
    assert deliver("k1")[0] == work.status
    work.status, work.error = 201, None
    assert [deliver("k1")[0], deliver("k1")[0]] == [201, 200]


COMMITTED = (200, 201, 202, 204, 206, 303)
GIVEN_BACK = (300, 301, 302, 304, 307, 308, 400, 404, 409, 422, 500, 503)


@EACH
@for_each("status", COMMITTED + GIVEN_BACK)
def test_the_status_says_that_a_request_is_done(make: Any, any_server: Server, status: int) -> None:
    """A success is, and so is 303, which follows one; a redirect to the address of the work is not."""
    work = Work()
    deliver = make(any_server.url, work)
    work.status = status
    assert deliver("k1")[0] == status
    work.status = 201
    assert deliver("k1")[0] == (200 if status in COMMITTED else 201)


@EACH
@for_each(
    ("done", "status", "is_done"), [(lambda status: status == 302, 302, True), (lambda _: False, 201, False)]
)
def test_the_caller_may_say_which_status_is_done(
    make: Any,
    any_server: Server,
    done: Any,
    status: int,
    is_done: bool,  # noqa: FBT001 - of the cases
) -> None:
    """`done` decides alone."""
    work = Work()
    deliver = make(any_server.url, work, done=done)
    work.status = status
    assert [deliver("k1")[0], deliver("k1")[0]] == [status, 200 if is_done else status]


@EACH
def test_a_redirect_that_may_be_a_success_is_logged_once(
    make: Any, any_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning names `done=`."""
    work = Work()
    deliver = make(any_server.url, work)
    work.status = 302
    assert [deliver("k1")[0], deliver("k2")[0], len(work.done)] == [302, 302, 2]
    (warning,) = (each.message for each in caplog.records if each.name == "bloomredis")
    assert "status 302" in warning
    assert "done=" in warning


@for_each("done", [302, asyncio.sleep, "302"])
def test_done_is_a_function(any_server: Server, done: Any) -> None:
    """A coroutine function would say that everything is done."""
    with pytest.raises(TypeError, match="done must be a function that takes a status"):
        make_wsgi(any_server.url, Work(), done=done)


def slash_of_fastapi(url: str) -> tuple[Deliver, list[str]]:
    app, ran = fastapi.FastAPI(), list[str]()

    @app.post("/pay/")
    async def pay() -> None:
        ran.append("worked")

    app.add_middleware(ASGIMiddleware, seen=bloomredis.asyncio.BloomFilter.from_url(url, "keys", **SIZE))
    return of_asgi(app), ran


def https_of_starlette(url: str) -> tuple[Deliver, list[str]]:
    app, ran = fastapi.FastAPI(), list[str]()

    @app.post("/pay")
    async def pay() -> None:
        ran.append("worked")

    app.add_middleware(HTTPSRedirectMiddleware)
    app.add_middleware(ASGIMiddleware, seen=bloomredis.asyncio.BloomFilter.from_url(url, "keys", **SIZE))
    return of_asgi(app), ran


def shop_of_flask(url: str) -> tuple[Deliver, list[str]]:
    """Return a shop whose order needs a log-in first, at an address with a slash."""
    app, ran, users = flask.Flask("shop"), list[str](), list[str]()

    @app.post("/login")
    def log_in() -> str:
        users.append("u")
        return "in"

    @app.post("/pay/")
    def pay() -> Any:
        if not users:
            return flask.redirect("/login")
        ran.append("worked")
        return flask.redirect("/thanks", 303)

    app.wsgi_app = WSGIMiddleware(app.wsgi_app, BloomFilter.from_url(url, "keys", **SIZE))
    return of_wsgi(app), ran


def slash_of_django(url: str) -> tuple[Deliver, list[str]]:
    from django.core.handlers.wsgi import WSGIHandler
    from django.http import HttpResponse
    from django.test import override_settings
    from django.urls import path

    ran: list[str] = []

    def pay(request: Any) -> HttpResponse:
        ran.append("worked")
        return HttpResponse()

    urls = (path("pay/", pay),)
    with override_settings(MIDDLEWARE=["django.middleware.common.CommonMiddleware"]):
        handler: Any = WSGIHandler()

    def app(environ: Any, start: Any) -> Any:
        with override_settings(ROOT_URLCONF=urls):
            return handler(environ, start)

    return of_wsgi(WSGIMiddleware(app, BloomFilter.from_url(url, "keys", **SIZE))), ran


@for_each(
    ("make", "paths", "statuses"),
    [
        (slash_of_fastapi, ["/pay", "/pay", "/pay/", "/pay/"], [307, 307, 200, 200]),
        (https_of_starlette, ["/pay", "/pay", "https://here/pay", "/pay"], [307, 307, 200, 200]),
        (shop_of_flask, ["/pay", "/pay/", "/login", "/pay/", "/pay/"], [308, 302, 200, 303, 200]),
        (slash_of_django, ["/pay", "/pay/", "/pay/"], [301, 200, 200]),
    ],
)
def test_a_redirect_does_no_work(
    any_server: Server, make: Any, paths: list[str], statuses: list[int]
) -> None:
    """Its target is another path, another scheme, or a page after which the same request works."""
    deliver, ran = make(any_server.url)
    assert [deliver(None if path == "/login" else "k1", path=path)[0] for path in paths] == statuses
    assert ran == ["worked"]


@EACH
def test_without_a_server_nothing_runs(make: Any) -> None:
    """The answer is 503."""
    work = Work()
    deliver = make("redis://127.0.0.1:1", work)
    assert [deliver("k1")[0], work.done] == [503, []]
    assert deliver(None)[0] == 201


@EACH
def test_a_key_may_be_required(make: Any, any_server: Server) -> None:
    """A request without a key is answered 400, if its method is checked."""
    work = Work()
    deliver = make(any_server.url, work, required=True)
    assert [deliver(None)[0], deliver("")[0], work.done] == [400, 400, []]
    if make is not make_async_django:
        assert deliver(None, "GET")[0] == 201


@EACH
@for_each(
    ("value", "is_one"),
    [("k", True), ('"k"', True), ('"a,b"', True), (r'"a\"b"', True), ("a,b", False), ('"a", "b"', False)],
)
def test_a_request_has_one_key(
    make: Any,
    any_server: Server,
    value: str,
    is_one: bool,  # noqa: FBT001 - of the cases
) -> None:
    """WSGI servers join the values of two headers with a comma, so a key with a comma is in quotes."""
    work = Work()
    is_one |= make is make_asgi  # its servers join none
    deliver = make(any_server.url, work)
    assert [deliver(value)[0], deliver(value)[0]] == ([201, 200] if is_one else [400, 400])
    assert work.done == [value] * is_one


@EACH
def test_the_query_is_a_part_of_the_request(make: Any, any_server: Server) -> None:
    """Two queries with one key are two requests."""
    deliver = make(any_server.url, Work())
    paths = ["/pay?a=1", "/pay?a=2", "/pay", "/pay?a=1"]
    assert [deliver("k1", path=path)[0] for path in paths] == [201, 201, 201, 200]


@EACH
@for_each(("key", "second"), [(None, 201), ("", 201), (b"", 201), (0, 200), ("k", 200)])
def test_a_request_may_have_no_key(make: Any, any_server: Server, key: Any, second: int) -> None:
    """If `key` returns None or an empty text, the request runs as usual; 0 is a key."""
    deliver = make(any_server.url, Work(), key=lambda _: key, required=None)
    assert [deliver(None)[0], deliver(None)[0]] == [201, second]


@EACH
@pytest.mark.parametrize("by", ["commit", "renewal"])
def test_a_claim_that_was_lost_is_no_success(
    make: Any, any_server: Server, any_client: redis.Redis, caplog: pytest.LogCaptureFixture, by: str
) -> None:
    """Another worker may have the request, so the answer is 500, whichever call finds the claim lost."""
    work = Work()
    work.goes_on.clear()
    deliver = make(any_server.url, work, lease=3)
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(deliver("k1")))
    thread.start()
    assert work.entered.wait(60)
    any_client.delete(*any_client.keys("{keys}:claim:*"))
    if by == "renewal":
        wait_until("a renewal finds the loss", lambda: "another worker may have the item" in caplog.text)
    work.goes_on.set()
    thread.join(60)
    assert got[0][0] == 500


@EACH
@for_each(("options", "statuses"), [({}, (503, 201)), ({"on_lost": "recreate"}, (201, 200))])
def test_a_lost_filter_stops_the_workers(
    make: Any, any_server: Server, any_client: redis.Redis, options: dict[str, Any], statuses: tuple[int, int]
) -> None:
    """The answer is 503 until the loss is acknowledged; with `on_lost="recreate"` each request runs again."""
    with patch.dict(SIZE, options):
        deliver = make(any_server.url, Work())
        assert deliver("k1")[0] == 201
        any_client.flushall()
        found = [deliver("k1")[0]]
        if not options:
            assert deliver("k1")[0] == 503
            acknowledge(any_server, "keys", "--capacity", "1000", "--error-rate", "1e-6")
        assert (*found, deliver("k1")[0]) == statuses


@EACH
def test_a_restart_of_the_server_loses_nothing(make: Any, any_server: Server) -> None:
    """The response is sent once the key is committed."""
    work = Work()
    work.goes_on.clear()
    with running(any_server.binary, *KEPT) as server:
        deliver = make(server.url, work)
        got: list[Any] = []
        thread = threading.Thread(target=lambda: got.append(deliver("k1")))
        thread.start()
        assert work.entered.wait(60)
        server.stop()
        work.goes_on.set()
        server.start()
        thread.join(60)
        assert (got[0][0], deliver("k1")[0], work.done) == (201, 200, ["k1"])


def test_the_key_may_be_another(any_server: Server) -> None:
    """`key` returns it, for example one key for each tenant; a request without a key runs as usual."""
    work = Work()
    deliver = make_wsgi(any_server.url, work, key=lambda environ: environ["PATH_INFO"].removeprefix("/pay"))
    assert [deliver(None, path="/a")[0], deliver(None, path="/a")[0], deliver(None)[0]] == [201, 200, 201]


def test_what_is_done_may_be_looked_up(any_server: Server) -> None:
    """`on_done` of Django is a view."""

    def view(request: Any) -> Any:
        from django.http import HttpResponse

        return HttpResponse("found", status=203)

    for number, make in enumerate((make_django, make_async_django)):
        deliver = make(any_server.url, Work(), on_done=view)
        assert [deliver(f"k{number}")[0], *deliver(f"k{number}")[::2]] == [201, 203, b"found"]


def test_tests_of_django_are_no_transactions(any_server: Server) -> None:
    """In a `TestCase`, whose transactions never end in a commit, a repeat is done, in the next test too."""
    deliver = make_django(any_server.url, Work())
    from django.db import transaction
    from django.test import TestCase

    statuses: list[int] = []

    class Tests(TestCase):
        def test_a(self) -> None:
            statuses.extend(deliver("k1")[0] for _ in range(2))

        def test_b(self) -> None:
            with self.captureOnCommitCallbacks(execute=True), transaction.atomic():
                statuses.append(deliver("k2")[0])
            statuses.extend(deliver(key)[0] for key in ("k1", "k2"))

    result = unittest.TestResult()
    unittest.TestSuite([Tests("test_a"), Tests("test_b")]).run(result)
    assert (result.testsRun, result.errors, result.failures) == (2, [], [])
    assert statuses == [201, 200, 201, 200, 200]


def test_a_transaction_of_django_comes_before_the_commit(any_server: Server) -> None:
    """If the transaction of a view is rolled back, as with ATOMIC_REQUESTS, the key is not committed."""
    from django.db import transaction

    work = Work()
    deliver = make_django(any_server.url, work)
    seen = BloomFilter.from_url(any_server.url, "keys", **SIZE)
    with transaction.atomic():
        assert deliver("k1")[0] == 201
        assert "POST /pay k1" not in seen
        transaction.set_rollback(True)
    assert "POST /pay k1" not in seen
    with transaction.atomic():
        assert deliver("k2")[0] == 201
    assert "POST /pay k2" in seen


def test_a_hook_of_a_transaction_that_raises_skips_no_commit(any_server: Server) -> None:
    """The transaction is committed, so the view must not run again."""
    make_django(any_server.url, Work())
    from django.db import transaction
    from django.http import HttpResponse
    from django.test import RequestFactory

    from bloomredis.contrib.django import once

    seen = BloomFilter.from_url(any_server.url, "keys", **SIZE)
    statuses = [201, 400]

    @once(seen)
    def pay(request: Any) -> Any:
        transaction.on_commit(lambda: 1 / 0)
        return HttpResponse(status=statuses.pop(0))

    for key in ("k1", "k2"):
        with suppress(ZeroDivisionError), transaction.atomic():
            pay(RequestFactory().post("/pay", headers={"Idempotency-Key": key}))
    assert ("POST /pay k1" in seen, seen.claim("POST /pay k2").state) == (True, "claimed")


def test_a_commit_that_fails_skips_no_hook_of_a_transaction(
    any_client: redis.Redis, any_server: Server
) -> None:
    """Its error follows the hooks of the view."""
    make_django(any_server.url, Work())
    from django.db import transaction
    from django.http import HttpResponse
    from django.test import RequestFactory

    from bloomredis.contrib.django import once

    hooks: list[str] = []

    @once(BloomFilter.from_url(any_server.url, "keys", **SIZE))
    def pay(request: Any) -> Any:
        transaction.on_commit(lambda: hooks.append("a mail"))
        return HttpResponse(status=201)

    @transaction.atomic
    def ask() -> None:
        pay(RequestFactory().post("/pay", headers={"Idempotency-Key": "k1"}))
        any_client.delete(*any_client.keys("{keys}:claim:*"))

    with pytest.raises(ClaimLostError):
        ask()
    assert hooks == ["a mail"]


def test_an_answer_in_place_of_one_that_was_not_committed_gives_the_key_back(
    any_client: redis.Redis, any_server: Server
) -> None:
    """As an application does that answers its errors with 500."""

    async def run() -> list[Any]:
        seen = bloomredis.asyncio.BloomFilter.from_url(any_server.url, "keys", **SIZE)
        sent: list[Any] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            fail = len(sent) == 0
            if fail:
                any_client.delete(*any_client.keys("{keys}:claim:*"))
            try:
                await send({"type": "http.response.start", "status": 201, "headers": []})
            except ClaimLostError:
                await send({"type": "http.response.start", "status": 500, "headers": []})

        async def send(message: Any) -> None:
            sent.append(message["status"])

        scope = {"type": "http", "method": "POST", "path": "/pay", "headers": [(b"idempotency-key", b"k1")]}
        for _ in range(2):
            await ASGIMiddleware(app, seen)(scope, no_body, send)
        return sent

    assert asyncio.run(run()) == [500, 201]


def test_an_error_answer_is_sent_though_the_server_is_away(any_server: Server) -> None:
    """The release that fails with it is logged, and the lease ends by itself."""

    async def run() -> list[Any]:
        sent: list[Any] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            proxy.always("commit", refused("NOPERM no rights"))
            proxy.always("release", refused("NOPERM no rights"))
            try:
                await send({"type": "http.response.start", "status": 201, "headers": []})
            except ServerRefusedError:
                await send({"type": "http.response.start", "status": 500, "headers": []})

        async def send(message: Any) -> None:
            sent.append(message["status"])

        with proxied(any_server.socket) as proxy:
            seen: Any = bloomredis.asyncio.BloomFilter.from_url(
                f"redis://127.0.0.1:{proxy.port}", "keys", **SIZE
            )
            headers = [(b"idempotency-key", b"k1")]
            scope = {"type": "http", "method": "POST", "path": "/pay", "headers": headers}
            await ASGIMiddleware(app, seen)(scope, no_body, send)
        return sent

    assert asyncio.run(run()) == [500]


@pytest.mark.parametrize("swallows", [False, True])
@pytest.mark.parametrize("adapter", ["asgi", "django"])
def test_a_request_that_is_cancelled_at_its_commit_is_done(
    adapter: str,
    swallows: bool,  # noqa: FBT001 - of the cases
    any_server: Server,
) -> None:
    """The sender has hung up; a retry must not run the work again.  Starlette swallows the cancellation."""
    make_django(any_server.url, Work())

    async def run() -> None:
        from django.http import HttpResponse
        from django.test import AsyncRequestFactory

        from bloomredis.contrib.django import once

        with proxied(any_server.socket) as proxy:
            seen: Any = bloomredis.asyncio.BloomFilter.from_url(
                f"redis://127.0.0.1:{proxy.port}", "keys", **SIZE
            )
            held = Held(executed=False)
            ran: list[int] = []

            async def app(scope: Any, receive: Any, send: Any) -> None:
                ran.append(1)
                with suppress(asyncio.CancelledError) if swallows else nullcontext():
                    await send({"type": "http.response.start", "status": 201, "headers": []})

            @once(seen)
            async def view(request: Any) -> Any:
                ran.append(1)
                return HttpResponse(status=201)

            async def ask() -> None:
                if adapter == "django":
                    with suppress(asyncio.CancelledError) if swallows else nullcontext():
                        await view(AsyncRequestFactory().post("/pay", headers={"Idempotency-Key": "k1"}))
                else:
                    headers = [(b"idempotency-key", b"k1")]
                    scope = {"type": "http", "method": "POST", "path": "/pay", "headers": headers}
                    await ASGIMiddleware(app, seen)(scope, no_body, AsyncMock())

            await seen.claim("another")
            proxy.plan("commit", held)
            asked = asyncio.ensure_future(ask())
            await asyncio.to_thread(held.wait)
            asked.cancel()
            with suppress(asyncio.CancelledError):
                await asked
            held.go.set()
            async with asyncio.timeout(PATIENCE):
                while (state := (await seen.claim("POST /pay k1")).state) == "busy":  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await ask()
            assert (state, ran) == ("done", [1])

    asyncio.run(run())


def test_answers_have_the_headers_of_an_outer_middleware(any_server: Server) -> None:
    """With CORSMiddleware outermost, a browser may read them."""
    app = fastapi.FastAPI()
    app.post("/pay")(lambda: None)
    seen = bloomredis.asyncio.BloomFilter.from_url(any_server.url, "keys", **SIZE)
    app.add_middleware(ASGIMiddleware, seen=seen, required=True)
    app.add_middleware(
        CORSMiddleware, allow_origins=["*"], allow_headers=[HEADER], expose_headers=["Retry-After"]
    )
    ask = of_asgi(app)
    ask.headers["Origin"] = "http://shop"
    BloomFilter.from_url(any_server.url, "keys", **SIZE).claim("POST /pay held")
    answers = [ask(key) for key in ("k1", "k1", "held", "")]
    assert [status for status, _, _ in answers] == [200, 200, 409, 400]
    assert all(headers["access-control-allow-origin"] == "*" for _, headers, _ in answers)
    assert answers[2][1]["access-control-expose-headers"] == "Retry-After"


def test_answers_have_no_headers_of_a_hook_of_flask(any_server: Server) -> None:
    """The application, which adds them, does not run."""
    app = flask.Flask("shop")

    @app.post("/pay")
    def pay() -> str:
        return ""

    @app.after_request
    def add(response: Any) -> Any:
        response.headers["Access-Control-Allow-Origin"] = "*"
        return response

    app.wsgi_app = WSGIMiddleware(app.wsgi_app, BloomFilter.from_url(any_server.url, "keys", **SIZE))
    deliver = of_wsgi(app)
    assert ["access-control-allow-origin" in deliver("k1")[1] for _ in range(2)] == [True, False]


def test_an_asynchronous_class_is_a_view(any_server: Server) -> None:
    """`as_view` returns a function that is marked as a coroutine function."""
    from django.http import HttpResponse
    from django.test import AsyncRequestFactory
    from django.views import View

    from bloomredis.contrib.django import once

    class Pay(View):
        async def post(self, request: Any) -> HttpResponse:
            return HttpResponse(status=201)

    async def run() -> list[int]:
        view = once(bloomredis.asyncio.BloomFilter.from_url(any_server.url, "keys", **SIZE))(Pay.as_view())
        factory = AsyncRequestFactory()
        return [
            (await view(factory.post("/pay", headers={"Idempotency-Key": "k"}))).status_code for _ in range(2)
        ]

    assert asyncio.run(run()) == [201, 200]


def by_method() -> Any:
    """Decorate methods of classes."""
    from django.utils.decorators import method_decorator

    from bloomredis.contrib.django import once

    def method(base: Any, handler: Any, seen: Any) -> Any:
        return type("Pay", (base,), {"post": method_decorator(once(seen))(handler)})

    def of_class(name: str) -> Any:
        return lambda base, handler, seen: method_decorator(once(seen), name=name)(
            type("Pay", (base,), {"post": handler})
        )

    return {
        "a method": method,
        "the class, post": of_class("post"),
        "the class, dispatch": of_class("dispatch"),
    }


@pytest.mark.parametrize("where", ["a method", "the class, post", "the class, dispatch"])
@pytest.mark.parametrize("half", [bloomredis, bloomredis.asyncio])
def test_a_method_of_a_class_is_a_view(where: str, half: Any, any_server: Server) -> None:
    """With `method_decorator`; a filter of the other half is refused at the request at the latest."""
    from django.http import HttpResponse
    from django.test import AsyncClient, Client, override_settings
    from django.urls import path
    from django.views import View

    ran: list[str] = []

    def post(self: Any, request: Any) -> Any:
        ran.append(request.path)
        return HttpResponse(status=201)

    async def post_later(self: Any, request: Any) -> Any:
        return post(self, request)

    is_asyncio, headers = half is bloomredis.asyncio, {HEADER: "k"}
    handler = post_later if is_asyncio else post
    seen = half.BloomFilter.from_url(any_server.url, "keys", **SIZE)
    view = by_method()[where](View, handler, seen)

    def ask() -> int:
        if is_asyncio:
            status: int = Loop.current.run(AsyncClient().post("/pay", headers=headers)).status_code
            return status
        return int(Client().post("/pay", headers=headers).status_code)

    with override_settings(ROOT_URLCONF=(path("pay", view.as_view()),)):
        assert [ask(), ask()] == [201, 200]
    assert ran == ["/pay"]
    other = bloomredis if is_asyncio else bloomredis.asyncio
    wrong = other.BloomFilter.from_url(any_server.url, "keys", **SIZE)
    with (
        pytest.raises(TypeError, match="views needs a"),
        override_settings(ROOT_URLCONF=(path("pay", by_method()[where](View, handler, wrong).as_view()),)),
    ):
        ask()


def test_a_request_may_pass_two_guards(any_server: Server) -> None:
    """The inner one leaves it to the outer one: at a view, at an endpoint, mounted, or added twice."""
    from django.core.handlers.wsgi import WSGIHandler
    from django.http import HttpResponse
    from django.test import override_settings
    from django.urls import path

    from bloomredis.contrib.django import once

    runs: list[str] = []
    seen = BloomFilter.from_url(any_server.url, "keys", **SIZE)
    later = bloomredis.asyncio.BloomFilter.from_url(any_server.url, "keys", **SIZE)

    @once(seen)
    def view(request: Any) -> HttpResponse:
        runs.append("view")
        return HttpResponse(status=201)

    async def endpoint(request: Any) -> JSONResponse:
        runs.append("endpoint")
        return JSONResponse({}, status_code=201)

    mounted = Starlette(routes=[Route("/pay", endpoint, methods=["POST"])])
    mounted.add_middleware(ASGIMiddleware, seen=later)
    app = Starlette(routes=[Mount("/sub", mounted)])
    app.add_middleware(ASGIMiddleware, seen=later)
    with override_settings(ROOT_URLCONF=(path("pay", view),)):
        deliver = of_wsgi(WSGIMiddleware(WSGIHandler(), seen))
        assert [deliver("k")[0] for _ in range(2)] == [201, 200]
    events = fastapi.FastAPI()
    events.add_middleware(
        ASGIMiddleware, seen=later, key=lambda scope: httpx.Headers(scope["headers"])[HEADER]
    )

    @events.post("/pay", dependencies=[once_of_fastapi(later, header=HEADER)], status_code=201)
    async def receive() -> None:
        runs.append("event")

    for each, path_ in ((app, "/sub/pay"), (ASGIMiddleware(mounted, later), "/pay"), (events, "/pay")):
        deliver = of_asgi(each)
        assert [deliver("m", path=path_)[0] for _ in range(2)] == [201, 200]
    assert runs == ["view", "endpoint", "endpoint", "event"]


def test_a_guard_ends_with_its_call(any_server: Server) -> None:
    """A middleware that retries with the same environ is answered as any repeat."""
    seen, runs = BloomFilter.from_url(any_server.url, "keys", **SIZE), list[str]()

    def app(environ: Any, start: Any) -> list[bytes]:
        runs.append("app")
        start("201 Created", [])
        return [b"worked"]

    guarded, environ, statuses = WSGIMiddleware(app, seen), environ_of("/pay", "k"), list[str]()
    for _ in range(2):
        guarded(environ, lambda status, *_: statuses.append(status))
    assert (statuses, runs) == (["201 Created", "200 OK"], ["app"])


def test_a_path_is_no_part_of_a_key(any_server: Server) -> None:
    """Requests to `/pay/a` with the key `b k` and to `/pay/a b` with the key `k` are two."""
    seen = BloomFilter.from_url(any_server.url, "keys", **SIZE)
    ran: list[str] = []

    def app(environ: Any, start: Any) -> list[bytes]:
        start("201 Created", [])
        ran.append(environ["PATH_INFO"])
        return [b"worked"]

    for path, key in (("/pay/a", "b k"), ("/pay/a b", "k")):
        environ = environ_of(path, key)
        WSGIMiddleware(app, seen)(environ, lambda *_: None)
    assert ran == ["/pay/a", "/pay/a b"]


def test_the_status_of_wsgi_may_change_before_the_first_bytes(any_server: Server) -> None:
    """The server sends the headers with the first bytes; after them the application's error is raised."""
    seen = BloomFilter.from_url(any_server.url, "keys", **SIZE)
    sent: list[str] = []

    def app(environ: Any, start: Any) -> Iterator[bytes]:
        start("200 OK", [])
        yield b""
        for _ in range(2):
            try:
                raise LookupError  # noqa: TRY301
            except LookupError:
                start("500 Internal Server Error", [], sys.exc_info())
                yield b"failed"

    environ = environ_of("/pay", "k1")
    response = WSGIMiddleware(app, seen)(environ, lambda status, *_: sent.append(status))
    assert sent == ["500 Internal Server Error"]
    assert seen.claim("POST /pay k1").state == "claimed"
    with pytest.raises(LookupError):
        list(response)


def test_other_scopes_pass(any_server: Server) -> None:
    """For example the lifespan of an application."""
    passed: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        passed.append(scope["type"])

    seen = bloomredis.asyncio.BloomFilter.from_url(any_server.url, "keys", **SIZE)
    asyncio.run(ASGIMiddleware(app, seen)({"type": "lifespan"}, None, None))
    assert passed == ["lifespan"]


@pytest.mark.parametrize(("left", "seconds"), [(30.0009, "30"), (29.2, "30"), (0.001, "1"), (1.5, "2")])
def test_retry_after_is_not_a_second_too_long(left: float, seconds: str) -> None:
    """A lease of 30 seconds is 30, even if the clocks differ a little."""

    class Busy:
        state = "busy"
        remaining = left

        def __bool__(self) -> bool:
            return False

    seen = SimpleNamespace(claim=lambda _: Busy())
    assert asyncio.run(claim_or_answer(seen, "a")).headers == {"Retry-After": seconds}


@pytest.mark.parametrize("page", ["idempotency", "django"])
def test_the_pages_run(page: str, any_server: Server) -> None:
    """Each example of these pages runs."""
    make_django(any_server.url, Work())  # which configures Django
    pages.run(page, any_server)


def test_a_repeat_gets_the_stored_response(any_server: Server) -> None:
    """The last program of the page answers a repeat with the first response, and a second key anew."""
    app = pages.run("idempotency", any_server)["app"]

    async def ask() -> list[Any]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            sent = [("k1", "pen"), ("k1", "ink"), ("k2", "ink")]
            answers = [
                await client.post(f"/orders?article={article}", headers={HEADER: key})
                for key, article in sent
            ]
        return [answer.json() for answer in answers]

    assert asyncio.run(ask()) == [{"ordered": "pen"}, {"ordered": "pen"}, {"ordered": "ink"}]
