"""Servers and clients for tests: each test runs on one of this machine's servers, on another in the next run.

`server`, `client`: the server chosen by the test's id and a seed that the run prints. With the marker
`every_server`, or with `--server all`, the test runs on each server. `any_server`, `any_client`: always the
same server, for facts about this side of the connection. `bloom`: a driver chosen in the same way, for each
server anew; with `--driver all`, the test runs with both.
"""

from __future__ import annotations

import gc
import importlib.metadata
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from typing import Any

import fakeredis
import pytest
import redis

import bloomredis
from tests.support.clock import Clock, patched
from tests.support.clusters import SERVERS as OF_CLUSTERS
from tests.support.drivers import DRIVERS
from tests.support.rotation import ALL, ROTATE, Rotation
from tests.support.servers import IN_MEMORY, Server, binaries, module_options, running

BINARIES = binaries()
REAL = sorted(BINARIES)
FAKE = "fakeredis"
ANY = "valkey-9"
TURNS: dict[str, Sequence[str]] = {
    **dict.fromkeys(("server", "server_name", "client"), REAL),
    "formed": OF_CLUSTERS,
}
"""The servers for each fixture."""
ON_REQUEST = TURNS | {"client": [*REAL, FAKE]}
"""The same with fakeredis, whose scripts take ten times as long: for all servers, or one by its name."""

with suppress(ImportError):  # hypothesis is missing where only the adapters are tested
    import hypothesis

    hypothesis.settings.register_profile(
        "busy machines", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    hypothesis.settings.load_profile("busy machines")

importlib.metadata.version = cache(importlib.metadata.version)
"""Each new client asks for the version of redis-py, which reads a file."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run choose its servers."""
    choices = [ROTATE, ALL, *REAL, FAKE]
    parser.addoption("--server", choices=choices, default=ROTATE, help="rotate, all, or the name of one")
    drivers = [ROTATE, ALL, *DRIVERS]
    parser.addoption("--driver", choices=drivers, default=ROTATE, help="rotate, all, or the name of one")
    parser.addoption("--seed", type=int, help="the seed of the rotation, and of tests of chance")
    parser.addoption("--one-in", type=int, default=1, help="run one test in so many, others in another run")


def pytest_configure(config: pytest.Config) -> None:
    """Draw a seed; a worker of pytest-xdist takes the seed of the run."""
    drawn = random.SystemRandom().randrange(10_000)
    if config.option.seed is None:
        config.option.seed = getattr(config, "workerinput", {}).get("seed", drawn)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give a worker of pytest-xdist the seed."""
    node.workerinput["seed"] = node.config.option.seed


def pytest_report_header(config: pytest.Config) -> str:
    """Say which servers the run covers, and how to repeat it."""
    chosen = " ".join(f"--{name} {config.getoption(name)}" for name in ("server", "driver", "seed"))
    return f"servers: {', '.join([*REAL, FAKE])}; {chosen}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep tests that share a slow set-up on one worker."""
    from tests.support.scheduling import Scheduling  # a single test needs no pytest-xdist

    return Scheduling(config, log)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on the servers, and with the drivers, chosen for it."""
    option, test = metafunc.config.option, metafunc.definition
    asked = ALL if test.get_closest_marker("every_server") else option.server
    servers, drivers = Rotation(asked, option.seed), Rotation(option.driver, option.seed)

    def turn(fixture: str) -> Sequence[str]:
        values = (TURNS if asked == ROTATE else ON_REQUEST)[fixture]
        # A cluster takes seconds to form, so all tests of clusters are chosen by the same number.
        return servers.turn(fixture if fixture == "formed" else test.nodeid, values)

    def driven(server: str = "") -> Sequence[str]:
        return drivers.turn(f"{test.nodeid} {server} driver", [*DRIVERS])

    fixtures = {*metafunc.fixturenames}
    if {"bloom", "client"} <= fixtures:
        pairs = [(driver, name) for name in turn("client") for driver in driven(name)]
        metafunc.parametrize(("bloom", "client"), pairs, indirect=True, ids=map("-".join, pairs))
        return
    if "bloom" in fixtures:
        metafunc.parametrize("bloom", driven(), indirect=True)
    for name in filter(fixtures.__contains__, TURNS):
        metafunc.parametrize(name, turn(name), indirect=True, scope="session" if name == "formed" else None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests chosen for this run; a run on all servers, or of named tests, has all with a lot."""
    rotation = Rotation("", config.option.seed)
    has_lots = config.option.server != ALL and not any("::" in each for each in config.args)

    def parts(item: pytest.Item) -> int:
        lot = item.get_closest_marker("one_in") if has_lots else None
        return int(config.option.one_in * (lot.args[0] if lot else 1))

    turn = [item for item in items if rotation.number(item.nodeid) % parts(item) == 0]
    if turn != items:
        config.hook.pytest_deselected(items=[item for item in items if item not in turn])
        items[:] = turn


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection, which took a tenth of the run to scan them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def servers() -> Iterator[Callable[[str], Server]]:
    """Start each server when the first test asks for it; later tests share it."""
    started: dict[str, Server] = {}
    with ExitStack() as stack:

        def get(name: str) -> Server:
            if name not in started:
                options = (*IN_MEMORY, *module_options(BINARIES[name]))
                started[name] = stack.enter_context(running(BINARIES[name], *options))
            return started[name]

        yield get


@pytest.fixture
def set_hook() -> Iterator[Callable[[Any], None]]:
    """A function that sets the hook of the process; the end of the test removes it."""
    yield bloomredis.instrument
    bloomredis.instrument(None)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of a random test: different in each run, unless the run is given one."""
    return Rotation("", request.config.option.seed).number(request.node.nodeid)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clocks of bloomredis, which a test can advance; a real server has a clock of its own."""
    return patched(monkeypatch)


@pytest.fixture
def server_name(request: pytest.FixtureRequest) -> str:
    """The name of a real server, for tests that start their own."""
    return str(request.param)


@pytest.fixture
def server(request: pytest.FixtureRequest, servers: Callable[[str], Server]) -> Server:
    """A real server, empty and without cached scripts."""
    return emptied(servers(request.param))


@pytest.fixture
def client(request: pytest.FixtureRequest, servers: Callable[[str], Server]) -> Iterator[redis.Redis]:
    """A client of a server or of fakeredis, which is empty and has no cached scripts."""
    made: Any = (
        fakeredis.FakeRedis(server=fakeredis.FakeServer())
        if request.param == FAKE
        else emptied(servers(request.param)).client()
    )
    with made:
        yield made


@pytest.fixture
def any_server(servers: Callable[[str], Server]) -> Server:
    """One real server, empty, for facts that do not depend on the server."""
    return emptied(servers(ANY))


@pytest.fixture
def any_client(any_server: Server) -> Iterator[redis.Redis]:
    """A client of that server."""
    with any_server.client() as made:
        yield made


@pytest.fixture
def losses(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The warnings so far of filters that were made anew after a loss."""
    caplog.set_level(logging.WARNING, "bloomredis")
    return lambda: [
        text for each in caplog.records if "is forgotten; going on" in (text := each.getMessage())
    ]


@pytest.fixture
def bloom(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A function that makes filters over a client, for each driver."""
    driver = DRIVERS[request.param]()
    yield driver
    if hasattr(driver, "close"):
        driver.close()


def emptied(server: Server) -> Server:
    """Return the server without its keys and scripts."""
    server.empty()
    return server
