"""Servers and clients: a test runs on one of the servers that this machine has, on another in another run.

`server`, `client`: the server whose turn it is, chosen by the test's id and a seed that the run prints.
With the marker `every_server`, and with `--server all`, each of them.
`any_server`, `any_client`: always the same one; for facts about this side of the connection.
`bloom`: both drivers.  With `client`, each has a turn of its own.
"""

from __future__ import annotations

import gc
import importlib.metadata
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from typing import Any

import fakeredis
import pytest
import redis

from tests.support.clusters import SERVERS as OF_CLUSTERS
from tests.support.drivers import DRIVERS
from tests.support.rotation import ALL, ROTATE, Rotation
from tests.support.servers import IN_MEMORY, Server, binaries, module_options, running

BINARIES = binaries()
REAL = sorted(BINARIES)
FAKE = "fakeredis"
ANY = "valkey-9"
TURNS: dict[str, Sequence[str]] = {
    **dict.fromkeys(("server", "server_name"), REAL),
    "client": [*REAL * 3, FAKE],  # its scripts take ten times as long
    "formed": OF_CLUSTERS,
}
"""The servers that a fixture can be of, in the proportion of their turns."""

with suppress(ImportError):  # the environment of contrib has none
    import hypothesis

    hypothesis.settings.register_profile(
        "busy machines", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    hypothesis.settings.load_profile("busy machines")

importlib.metadata.version = cache(importlib.metadata.version)
"""Each client that is made asks for the version of redis-py, which reads a file."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run choose the servers."""
    choices = [ROTATE, ALL, *REAL, FAKE]
    parser.addoption("--server", choices=choices, default=ROTATE, help="rotate, all, or the name of one")
    parser.addoption("--seed", type=int, help="the seed of the rotation, and of tests of chance")
    parser.addoption("--one-in", type=int, default=1, help="run one test in so many, others in another run")


def pytest_configure(config: pytest.Config) -> None:
    """Draw a seed; a worker of pytest-xdist has that of the run."""
    drawn = random.SystemRandom().randrange(10_000)
    if config.option.seed is None:
        config.option.seed = getattr(config, "workerinput", {}).get("seed", drawn)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give a worker the seed."""
    node.workerinput["seed"] = node.config.option.seed


def pytest_report_header(config: pytest.Config) -> str:
    """Say which servers the run covers, and how to have the same again."""
    return f"servers: {', '.join([*REAL, FAKE])}; --server {config.option.server} --seed {config.option.seed}"


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
    """Run a test with each driver, and on the servers whose turn it is."""
    option, test = metafunc.config.option, metafunc.definition
    asked = ALL if test.get_closest_marker("every_server") else option.server
    rotation = Rotation(asked, option.seed)

    def turn(fixture: str, driver: str = "") -> Sequence[str]:
        # A cluster takes seconds to form, so that all tests of clusters have the same turn.
        turns = [*rotation.turn(fixture if fixture == "formed" else test.nodeid + driver, TURNS[fixture])]
        return [*dict.fromkeys(turns)]

    fixtures = {*metafunc.fixturenames}
    if {"bloom", "client"} <= fixtures:
        pairs = [(driver, name) for driver in DRIVERS for name in turn("client", driver)]
        metafunc.parametrize(("bloom", "client"), pairs, indirect=True, ids=map("-".join, pairs))
        return
    if "bloom" in fixtures:
        metafunc.parametrize("bloom", DRIVERS, indirect=True)
    for name in filter(fixtures.__contains__, TURNS):
        metafunc.parametrize(name, turn(name), indirect=True, scope="session" if name == "formed" else None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests whose turn it is."""
    rotation, parts = Rotation("", config.option.seed), config.option.one_in
    turn = [item for item in items if rotation.number(item.nodeid) % parts == 0]
    if turn != items:
        config.hook.pytest_deselected(items=[item for item in items if item not in turn])
        items[:] = turn


def pytest_collection_finish() -> None:
    """Spare the collector of garbage the tests themselves, which took it a tenth of the run."""
    gc.collect()
    gc.freeze()


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


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of a test of chance: another one in each run, unless the run is given one."""
    return Rotation("", request.config.option.seed).number(request.node.nodeid)


@pytest.fixture
def server_name(request: pytest.FixtureRequest) -> str:
    """The name of a real server, for tests that start one of their own."""
    return str(request.param)


@pytest.fixture
def server(request: pytest.FixtureRequest, servers: Callable[[str], Server]) -> Server:
    """A real server, empty, with no script known."""
    return emptied(servers(request.param))


@pytest.fixture
def client(request: pytest.FixtureRequest, servers: Callable[[str], Server]) -> Iterator[redis.Redis]:
    """A client of a server, or fakeredis; it is empty and knows no script."""
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
    """A maker of filters over a client: of each driver."""
    driver = DRIVERS[request.param]()
    yield driver
    if hasattr(driver, "close"):
        driver.close()


def emptied(server: Server) -> Server:
    """Return the server without its keys and scripts."""
    server.empty()
    return server
