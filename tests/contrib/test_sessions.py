"""Sessions of a database that commit by themselves, in each place where frameworks let them.

A place is safe if the request is given back when that COMMIT fails, so that a retry writes the row.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final
from unittest.mock import patch

import flask
import httpx
import pytest
from django.core.handlers.wsgi import WSGIHandler
from django.db import connection
from django.http import HttpResponse
from django.test import override_settings
from django.urls import path
from fastapi import APIRouter, Depends, FastAPI
from starlette.middleware.base import BaseHTTPMiddleware

import bloomredis
import bloomredis.asyncio
from bloomredis.contrib import django as adapters
from bloomredis.contrib.fastapi import once
from bloomredis.contrib.idempotency import ASGIMiddleware, WSGIMiddleware
from tests.contrib import django_project  # noqa: F401 - the settings
from tests.support.servers import Server

SIZE: Final[dict[str, Any]] = {"capacity": 1000, "error_rate": 1e-9}


class Database:
    """Rows, and a COMMIT that fails the first time."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self._work: list[int] = []
        self._fails = True

    def write(self) -> None:
        """Write a row in the session."""
        self._work.append(1)

    def commit(self) -> None:
        """Commit the session."""
        work, self._work = self._work, []
        if work and self._fails:
            self._fails = False
            raise RuntimeError("COMMIT failed")
        self.rows += work


Ask = Callable[[], int]
"""Delivers the request, and returns its status."""


def _asked_asyncio(app: Any) -> Ask:
    def ask() -> int:
        async def run() -> int:
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://here") as http:
                status: int = (await http.post("/", headers={"Idempotency-Key": "k"})).status_code
                return status

        return asyncio.run(run())

    return ask


def _asked(app: Any) -> Ask:
    def ask() -> int:
        with httpx.Client(transport=httpx.WSGITransport(app), base_url="http://here") as http:
            try:
                status: int = http.post("/", headers={"Idempotency-Key": "k"}).status_code
            except RuntimeError:  # as WSGI servers answer it
                return 500
            return status

    return ask


def _in_fastapi(adapter: str, place: str, scope: Any) -> Callable[[str, Database], Ask]:
    def make(url: str, database: Database) -> Ask:
        seen = bloomredis.asyncio.BloomFilter.from_url(url, "keys", **SIZE)

        async def session() -> AsyncIterator[None]:
            yield
            database.commit()

        def of(*places: str) -> list[Any]:
            return [Depends(session, scope=scope)] * (place in places)

        check = [once(seen, header="Idempotency-Key")] * (adapter == "once")
        app, router = FastAPI(dependencies=of("app")), APIRouter(dependencies=of("router"))

        @router.post("/", dependencies=[*of("before"), *check, *of("after")])
        async def endpoint() -> None:
            database.write()

        app.include_router(router)
        if adapter == "middleware":
            app.add_middleware(ASGIMiddleware, seen=seen)
        return _asked_asyncio(app)

    return make


def _in_starlette(*, is_pure: bool) -> Callable[[str, Database], Ask]:
    def make(url: str, database: Database) -> Ask:
        app = FastAPI()

        @app.post("/")
        async def endpoint() -> None:
            database.write()

        class Pure:
            def __init__(self, app: Any) -> None:
                self._app = app

            async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
                await self._app(scope, receive, send)
                database.commit()

        class Dispatching(BaseHTTPMiddleware):
            async def dispatch(self, request: Any, call_next: Any) -> Any:
                response = await call_next(request)
                database.commit()
                return response

        app.add_middleware(Pure if is_pure else Dispatching)
        seen = bloomredis.asyncio.BloomFilter.from_url(url, "keys", **SIZE)
        app.add_middleware(ASGIMiddleware, seen=seen)
        return _asked_asyncio(app)

    return make


def _in_flask(hook: str) -> Callable[[str, Database], Ask]:
    def make(url: str, database: Database) -> Ask:
        app = flask.Flask("shop")

        @app.post("/")
        def endpoint() -> str:
            database.write()
            return ""

        def commit(argument: Any) -> Any:
            database.commit()
            return argument

        getattr(app, hook)(commit)
        app.wsgi_app = WSGIMiddleware(app.wsgi_app, bloomredis.BloomFilter.from_url(url, "keys", **SIZE))

        return _asked(app)

    return make


def _in_django(adapter: str) -> Callable[[str, Database], Ask]:
    """Return a maker of an application whose view runs in a transaction of a real database."""

    def make(url: str, database: Database) -> Ask:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE IF EXISTS rows")
            cursor.execute("DROP TABLE IF EXISTS parents")
            cursor.execute("CREATE TEMP TABLE parents (id integer PRIMARY KEY)")
            cursor.execute("CREATE TEMP TABLE rows (id REFERENCES parents DEFERRABLE INITIALLY DEFERRED)")
        seen = bloomredis.BloomFilter.from_url(url, "keys", **SIZE)
        parents = iter([[], [1]])

        def view(request: Any) -> HttpResponse:
            with connection.cursor() as cursor:
                cursor.executemany("INSERT INTO parents VALUES (%s)", [[each] for each in next(parents)])
                cursor.execute("INSERT INTO rows VALUES (1)")
            return HttpResponse()

        urls = (path("", adapters.once(seen, lease=2)(view) if adapter == "once" else view),)
        app: Any = WSGIHandler()
        ask = _asked(WSGIMiddleware(app, seen) if adapter == "middleware" else app)

        def ask_and_count() -> int:
            atomic = patch.dict(connection.settings_dict, ATOMIC_REQUESTS=True)
            with override_settings(ROOT_URLCONF=urls), atomic:
                while (status := ask()) == 409:  # until the lease ends
                    time.sleep(0.01)  # polling a condition; the test has a deadline
            with connection.cursor() as cursor:
                cursor.execute("SELECT id FROM rows")
                database.rows = [each for (each,) in cursor.fetchall()]
            return status

        return ask_and_count

    return make


PLACES: Final[dict[str, Callable[[str, Database], Ask]]] = {
    **{
        f"FastAPI, {adapter}, a dependency of the {place}, scope {scope}": _in_fastapi(adapter, place, scope)
        for adapter in ("once", "middleware")
        for place in ("app", "router", "before", "after")
        for scope in ("function", None)
    },
    "Starlette, a middleware with dispatch()": _in_starlette(is_pure=False),
    "Starlette, a middleware of pure ASGI": _in_starlette(is_pure=True),
    **{
        f"Flask, {hook}": _in_flask(hook)
        for hook in ("after_request", "teardown_request", "teardown_appcontext")
    },
    **{f"Django, ATOMIC_REQUESTS, {adapter}": _in_django(adapter) for adapter in ("once", "middleware")},
}


def is_safe(place: str) -> bool:
    """Return True for the places that the pages call safe."""
    return "scope None" not in place and "pure ASGI" not in place


@pytest.mark.parametrize("place", PLACES)
def test_a_session_that_fails_to_commit(any_server: Server, place: str) -> None:
    """In a safe place the sender gets 500 and its retry writes the row; elsewhere it got 201 before."""
    database = Database()
    ask = PLACES[place](any_server.url, database)
    statuses = [ask() for _ in range(3)]
    expected = ([500, 200, 200], [1]) if is_safe(place) else ([200, 200, 200], [])
    assert (statuses, database.rows) == expected
