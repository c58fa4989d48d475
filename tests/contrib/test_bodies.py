"""The bodies of requests, read in every way that WSGI and ASGI have."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import pytest

import bloomredis
import bloomredis.asyncio
from bloomredis.contrib import _bodies
from bloomredis.contrib.idempotency import ASGIMiddleware, WSGIMiddleware
from tests.support.servers import Server
from tests.support.values import for_each

SIZE: Final[dict[str, Any]] = {"capacity": 1000, "error_rate": 1e-6}
BODY: Final = b"0123456789abcde\n" * 8
HALF: Final = len(BODY) // 2


def _pieces(body: Any, size: int) -> bytes:
    return b"".join(iter(lambda: body.read(size), b""))


def _into(body: Any) -> bytes:
    buffer = bytearray(len(BODY))
    return bytes(buffer[: body.readinto(buffer)])


READS: Final[dict[str, Callable[[Any], bytes]]] = {
    "all": lambda body: body.read(),
    "all, spelled out": lambda body: body.read(-1) + body.read(None),
    "the declared length": lambda body: body.read(len(BODY)),
    "more than the declared length": lambda body: body.read(10 * len(BODY)),
    "pieces that fit": lambda body: _pieces(body, 16),
    "pieces that do not fit": lambda body: _pieces(body, 7),
    "lines": lambda body: b"".join(iter(body.readline, b"")),
    "short lines": lambda body: b"".join(iter(lambda: body.readline(5), b"")),
    "a loop": b"".join,
    "a list": lambda body: b"".join(body.readlines()),
    "a buffer": _into,
    "text": lambda body: io.TextIOWrapper(body).read().encode(),
}
"""Ways to read a body to its end."""
PARTS: Final[dict[str, Callable[[Any], bytes]]] = {
    "nothing": lambda _: b"",
    "no bytes": lambda body: body.read(0),
    "the first bytes": lambda body: body.read(HALF),
    "the first line": lambda body: body.readline(),
    "a part of the first line": lambda body: body.readline(3),
}
"""Ways to read a part of it."""


def answers(server: Server, read: Callable[[Any], bytes], body: bytes | io.BytesIO) -> list[str]:
    """Send a request with that body twice, and return the statuses; the application answers 201."""

    def app(environ: Any, start: Any) -> list[bytes]:
        read(environ["wsgi.input"])
        start("201 Created", [])
        return []

    seen = bloomredis.BloomFilter.from_url(server.url, "keys", **SIZE)
    statuses: list[str] = []
    for _ in range(2):
        environ = {
            "REQUEST_METHOD": "POST",
            "PATH_INFO": "/",
            "HTTP_IDEMPOTENCY_KEY": "k",
            "CONTENT_LENGTH": str(len(BODY)),
            "wsgi.input": io.BytesIO(body) if isinstance(body, bytes) else body,
        }
        WSGIMiddleware(app, seen)(environ, lambda status, *_: statuses.append(status[:3]))
    return statuses


@for_each("way", READS)
def test_a_body_that_is_read_to_its_end_may_be_cut_off(any_server: Server, way: str) -> None:
    """The request is done if the body had its declared length, and runs again if not."""
    assert READS[way](_bodies.WsgiBody({"wsgi.input": io.BytesIO(BODY)})) == BODY
    assert answers(any_server, READS[way], BODY) == ["201", "200"]
    any_server.empty()
    assert answers(any_server, READS[way], BODY[: HALF + 3]) == ["201", "201"]


@for_each("way", PARTS)
@for_each("body", [BODY, BODY[:HALF]])
def test_a_body_of_which_a_part_is_enough_is_not_cut_off(any_server: Server, way: str, body: bytes) -> None:
    """The application has what it asked for."""
    assert answers(any_server, PARTS[way], body) == ["201", "200"]


class Broken(io.BytesIO):
    """A body whose sender hangs up, as uWSGI tells it."""

    def read(self, *_: Any) -> bytes:
        raise OSError("the sender has hung up")

    readline = read


@for_each("read", [lambda body: body.read(), lambda body: body.read(9), lambda body: body.readline()])
def test_an_error_cuts_a_body_off(any_server: Server, read: Callable[[Any], bytes]) -> None:
    """Also in an application that goes on, as Django's check of forms does."""

    def going_on(body: Any) -> bytes:
        with suppress(OSError):
            read(body)
        return b""

    assert answers(any_server, going_on, Broken()) == ["201", "201"]


def test_a_body_of_unknown_length_is_whole(any_server: Server) -> None:
    """The server ends it: gunicorn raises if the last chunk is missing."""
    environ = {"wsgi.input": io.BytesIO(BODY), "CONTENT_LENGTH": ""}
    body = _bodies.WsgiBody(environ)
    assert environ["wsgi.input"].read() == BODY  # type: ignore[attr-defined]  # it is the body
    assert not body.is_cut


@for_each(
    ("declared", "terminated", "left"),
    [("100", False, 0), ("100", True, 0), ("", True, 0), ("", False, 128), ("1000", False, 0)],
)
def test_a_body_that_nobody_needs_is_read(declared: str, terminated: bool, left: int) -> None:  # noqa: FBT001
    """Up to its declared length, or to its end if the server marks it; a later read does not wait."""
    stream = io.BytesIO(BODY)
    environ = {"wsgi.input": stream, "CONTENT_LENGTH": declared, "wsgi.input_terminated": terminated}
    body = _bodies.WsgiBody(environ)
    body.drop()
    expected = left if declared != "100" else len(BODY) - 100
    assert (len(stream.read()), body.read()) == (expected, b"")


def test_a_body_that_nobody_needs_is_read_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender cannot keep a worker busy for ever."""
    monkeypatch.setattr(_bodies, "MOST_DROPPED", 50)
    stream = io.BytesIO(BODY)
    _bodies.WsgiBody({"wsgi.input": stream, "CONTENT_LENGTH": str(len(BODY))}).drop()
    assert stream.tell() == 50
    received: list[int] = []

    async def receive() -> dict[str, Any]:
        received.append(10)
        return {"type": "http.request", "body": b"x" * 10, "more_body": True}

    asyncio.run(_bodies.AsgiBody(receive).drop())
    assert sum(received) == 50


PIECE: Final = {"type": "http.request", "body": b"x", "more_body": True}
LAST: Final = {"type": "http.request", "body": b"y"}
GONE: Final = {"type": "http.disconnect"}


@for_each(
    ("messages", "is_read", "second"),
    [
        ([PIECE, LAST], True, 200),
        ([PIECE, GONE], True, 201),  # an application that takes it for the end of the body
        ([GONE], True, 201),
        ([PIECE, GONE], False, 200),
    ],
)
def test_an_asgi_request_whose_sender_hung_up_runs_again(
    any_server: Server,
    messages: list[dict[str, Any]],
    is_read: bool,  # noqa: FBT001 - of the cases
    second: int,
) -> None:
    """If the application has met that in the place of the rest of the body."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while is_read and (await receive()).get("more_body", False):
            pass
        await send({"type": "http.response.start", "status": 201, "headers": []})

    async def run() -> list[int]:
        seen = bloomredis.asyncio.BloomFilter.from_url(any_server.url, "keys", **SIZE)
        statuses: list[int] = []

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"idempotency-key", b"k")]}
        for _ in range(2):
            left = iter([*messages, *[GONE] * 3])

            async def receive(left: Any = left) -> Any:
                return next(left)

            await ASGIMiddleware(app, seen)(scope, receive, send)
        return statuses

    assert asyncio.run(run()) == [201, second]


def test_an_application_may_wait_for_a_disconnect_while_the_body_is_dropped() -> None:
    """As Starlette's streams do; each message goes to one of the two, and none waits for the other's."""

    async def run() -> list[str]:
        messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        body = _bodies.AsgiBody(messages.get)
        got: list[str] = []

        async def listen() -> None:
            while got[-1:] != ["http.disconnect"]:
                got.append((await body.receive())["type"])

        listening = asyncio.create_task(listen())
        await asyncio.sleep(0)
        dropping = asyncio.create_task(body.drop())
        for message in (PIECE, PIECE, LAST):
            messages.put_nowait(message)
        async with asyncio.timeout(60):
            await dropping
        messages.put_nowait(GONE)
        await listening
        return got

    assert asyncio.run(run())[-1] == "http.disconnect"
