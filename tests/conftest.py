"""One fixture runs the same test on every server that this machine has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import fakeredis
import pytest
import redis

from tests.support.drivers import DRIVERS
from tests.support.servers import Server, binaries, running

BINARIES = binaries()
REAL = sorted(BINARIES)


def pytest_report_header() -> str:
    """Say which servers the run covers."""
    return "servers: " + ", ".join([*REAL, "fakeredis"])


@pytest.fixture(scope="session")
def servers() -> Iterator[Callable[[str], Server]]:
    """Start each server once, when the first test asks for it."""
    started: dict[str, Server] = {}
    with ExitStack() as stack:

        def get(name: str) -> Server:
            if name not in started:
                started[name] = stack.enter_context(running(BINARIES[name]))
            return started[name]

        yield get


@pytest.fixture(params=REAL)
def server(request: pytest.FixtureRequest, servers: Callable[[str], Server]) -> Iterator[Server]:
    """Each real server in turn, empty, with no script known."""
    found = servers(request.param)
    with found.client() as client:
        client.flushall()
        client.script_flush()
        yield found


@pytest.fixture(params=[*REAL, "fakeredis"])
def client(request: pytest.FixtureRequest, servers: Callable[[str], Server]) -> Iterator[redis.Redis]:
    """A client of each server in turn, fakeredis too; the server is empty and knows no script."""
    made: Any = (
        fakeredis.FakeRedis(server=fakeredis.FakeServer())
        if request.param == "fakeredis"
        else servers(request.param).client()
    )
    with made:
        made.flushall()
        made.script_flush()
        yield made


@pytest.fixture
def any_server(servers: Callable[[str], Server]) -> Server:
    """One real server, empty, for facts that no server can change."""
    found = servers("valkey-9")
    with found.client() as client:
        client.flushall()
    return found


@pytest.fixture(params=DRIVERS)
def bloom(request: pytest.FixtureRequest) -> Iterator[Any]:
    """What makes filters over a client: each driver in turn."""
    driver = DRIVERS[request.param]()
    yield driver
    if hasattr(driver, "close"):
        driver.close()
