"""Applications that take uploads: for a WSGI server `wsgi`, for an ASGI server `asgi`.

The first part of a path names the framework, and the second how the body is read.  An answer is the number
of bytes that the application got.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, Final

from fastapi import FastAPI, Request

import bloomredis
import bloomredis.asyncio
from bloomredis.contrib.fastapi import once
from bloomredis.contrib.idempotency import ASGIMiddleware, WSGIMiddleware

PIECE: Final = 50_000
OPTIONS: Final[dict[str, Any]] = {"capacity": 100_000, "error_rate": 1e-9}


AWAY: Final = "redis://127.0.0.1:1"
"""The server of the filter that does not answer."""


def _filter(module: Any, name: str) -> Any:
    url = AWAY if name == "away" else os.environ["BLOOMREDIS_TEST_FILTER"]
    return module.BloomFilter.from_url(url, name, **OPTIONS)


def _pieces(read: Callable[[int], bytes]) -> int:
    """Return the number of bytes, read in pieces."""
    return sum(map(len, iter(lambda: read(PIECE), b"")))


def _flask() -> Any:
    import flask

    app = flask.Flask("uploads")
    ways: dict[str, Callable[[Any], int]] = {
        "body": lambda request: len(request.get_data()),
        "stream": lambda request: _pieces(request.stream.read),
        "form": lambda request: len(request.form.get("b", "")),
        "file": lambda request: _pieces(request.files["f"].stream.read) if request.files else 0,
        "unread": lambda _: 0,
    }

    @app.post("/<way>")
    def take(way: str) -> str:
        return str(ways[way](flask.request))

    app.wsgi_app = WSGIMiddleware(app.wsgi_app, _filter(bloomredis, "flask"))
    return app


def _django() -> Any:
    import django
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.http import HttpResponse
    from django.urls import path

    settings.configure(
        ALLOWED_HOSTS=["*"],
        SECRET_KEY="s",  # noqa: S106 - none
        MIDDLEWARE=["django.middleware.csrf.CsrfViewMiddleware"],
        DATA_UPLOAD_MAX_MEMORY_SIZE=None,
        LOGGING_CONFIG=None,
    )
    django.setup()
    from django.views.decorators.csrf import csrf_exempt

    from bloomredis.contrib import django as adapter

    ways: dict[str, Callable[[Any], int]] = {
        "body": lambda request: len(request.body),
        "stream": lambda request: _pieces(request.read),
        "form": lambda request: len(request.POST.get("b", "")),
        "file": lambda request: len(request.FILES["f"].read()) if request.FILES else 0,
        "unread": lambda _: 0,
    }

    def view(way: Callable[[Any], int]) -> Any:
        return adapter.once(_filter(bloomredis, "django"))(lambda request: HttpResponse(str(way(request))))

    settings.ROOT_URLCONF = (
        *(path(name, csrf_exempt(view(way))) for name, way in ways.items()),
        path("csrf", view(ways["file"])),  # whose middleware reads the body before the view
    )
    return get_wsgi_application()


def _raw(environ: dict[str, Any], start: Any) -> list[bytes]:
    """Be an application without a framework."""
    body, length = environ["wsgi.input"], int(environ["CONTENT_LENGTH"])
    ways: dict[str, Callable[[], int]] = {
        "/body": lambda: len(body.read(length)),
        "/stream": lambda: _pieces(body.read),
        "/lines": lambda: sum(map(len, body)),
        "/unread": lambda: 0,
    }
    found = ways[environ["PATH_INFO"]]()
    start("200 OK", [])
    return [str(found).encode()]


def _dispatching(apps: dict[str, Any]) -> Any:
    """Return an application of applications, by the first part of the path."""

    def app(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        _, name, rest = environ["PATH_INFO"].split("/")
        environ["SCRIPT_NAME"], environ["PATH_INFO"] = f"/{name}", f"/{rest}"
        found: Iterable[bytes] = apps[name](environ, start)
        return found

    return app


def _fastapi() -> Any:
    app = FastAPI()

    async def take(way: str, request: Request) -> int:
        return 0 if way == "unread" else len(await request.body())

    app.post("/fastapi/{way}")(take)
    app.post("/once/{way}", dependencies=[once(_filter(bloomredis.asyncio, "once"), header="X-Id")])(take)

    app.add_middleware(ASGIMiddleware, seen=_filter(bloomredis.asyncio, "fastapi"))
    return app


async def _asgi(scope: Any, receive: Any, send: Any) -> None:
    """Be an application without a framework, whose loop takes a disconnect for the end of the body."""
    found, more = 0, not scope["path"].endswith("unread")
    while more:
        message = await receive()
        found += len(message.get("body", b""))
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(found).encode()})


if os.environ.get("BLOOMREDIS_TEST_KIND") == "wsgi":
    _plain = {name: WSGIMiddleware(_raw, _filter(bloomredis, name)) for name in ("raw", "away")}
    wsgi = _dispatching({"flask": _flask(), "django": _django(), **_plain})
elif os.environ.get("BLOOMREDIS_TEST_KIND") == "asgi":
    _framework = _fastapi()
    _apps = {name: ASGIMiddleware(_asgi, _filter(bloomredis.asyncio, name)) for name in ("raw", "away")}

    async def asgi(scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, by the first part of its path."""
        name = scope["path"].split("/")[1] if scope["type"] == "http" else ""
        await _apps.get(name, _framework)(scope, receive, send)
