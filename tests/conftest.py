"""Servers and clients: a test runs on each server that this machine has, or on one if none can differ.

`server`, `client`: every server in turn; what a script does is shown on each.
`any_server`, `any_client`: one of them; for facts about this side of the connection.
`bloom`: both drivers in turn.  With `client`, the synchronous one meets every server and asyncio's meets
one: both send the same commands, so a server cannot tell them apart.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import fakeredis
import pytest
import redis

from tests.support.drivers import DRIVERS
from tests.support.servers import IN_MEMORY, Server, binaries, module_options, running

BINARIES = binaries()
REAL = sorted(BINARIES)
FAKE = "fakeredis"
ANY = "valkey-9"
PAIRS = [*(("sync", name) for name in (*REAL, FAKE)), ("asyncio", ANY)]


def pytest_report_header() -> str:
    """Say which servers the run covers."""
    return "servers: " + ", ".join([*REAL, FAKE])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return one worker more than there are processors for us, since many tests wait for something."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return usable + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let tests that share what takes long to start run on one worker."""
    from tests.support.scheduling import Scheduling  # nobody needs pytest-xdist for a single test

    return Scheduling(config, log)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with each driver, on each server, or with the pairs of both."""
    asked = tuple(name for name in ("bloom", "client") if name in metafunc.fixturenames)
    if asked == ("bloom", "client"):
        metafunc.parametrize(asked, PAIRS, indirect=True, ids=map("-".join, PAIRS))
    elif asked:
        (name,) = asked
        metafunc.parametrize(name, DRIVERS if name == "bloom" else (*REAL, FAKE), indirect=True)


@pytest.fixture(scope="session")
def servers() -> Iterator[Callable[[str], Server]]:
    """Start each server once, when the first test asks for it."""
    started: dict[str, Server] = {}
    with ExitStack() as stack:

        def get(name: str) -> Server:
            if name not in started:
                options = (*IN_MEMORY, *module_options(BINARIES[name]))
                started[name] = stack.enter_context(running(BINARIES[name], *options))
            return started[name]

        yield get


@pytest.fixture(params=REAL)
def server(request: pytest.FixtureRequest, servers: Callable[[str], Server]) -> Server:
    """Each real server in turn, empty, with no script known."""
    return emptied(servers(request.param))


@pytest.fixture
def client(request: pytest.FixtureRequest, servers: Callable[[str], Server]) -> Iterator[redis.Redis]:
    """A client of each server in turn, fakeredis too; the server is empty and knows no script."""
    made: Any = (
        fakeredis.FakeRedis(server=fakeredis.FakeServer())
        if request.param == FAKE
        else emptied(servers(request.param)).client()
    )
    with made:
        yield made


@pytest.fixture
def any_server(servers: Callable[[str], Server]) -> Server:
    """One real server, empty, for facts that no server can change."""
    return emptied(servers(ANY))


@pytest.fixture
def any_client(any_server: Server) -> Iterator[redis.Redis]:
    """A client of that server."""
    with any_server.client() as made:
        yield made


@pytest.fixture
def bloom(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A maker of filters over a client: each driver in turn."""
    driver = DRIVERS[request.param]()
    yield driver
    if hasattr(driver, "close"):
        driver.close()


def emptied(server: Server) -> Server:
    """Remove every key and every script."""
    with server.client() as client:
        client.flushall()
        client.script_flush()
    return server
