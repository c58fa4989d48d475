"""Commands that replace a filter are detected, in this process and in one that is killed there."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from typing import Any, Final, get_args

import pytest
import redis

import bloomredis
from tests.history import crashing
from tests.history.calls import Ask, Work
from tests.history.crashing import Crash
from tests.history.disturbing import DISTURBANCES, Disturber
from tests.history.faults import Faults, Rates
from tests.history.plans import MADE, Kind, Plan
from tests.history.rounds import PATIENCE
from tests.history.seats import Seat
from tests.history.watching import REPLACED, Watch, Watched
from tests.rules.answers import History
from tests.rules.calls import Call
from tests.rules.losses import loss_violations
from tests.support.servers import Server
from tests.support.values import for_each

KINDS: Final[tuple[Kind, ...]] = ("items", "scaling", "rotating", "sharded")
ITEMS: Final = [f"item {number}" for number in range(40)]
_SPAWN: Final = multiprocessing.get_context("spawn")


def made(kind: Kind, client: Any, name: str = "seen", **options: Any) -> Any:
    """Return a filter as a round makes it."""
    return getattr(bloomredis, MADE[kind].called)(client, name, **MADE[kind].options | options)


@for_each("kind", KINDS)
@for_each("verb", ["clear", "delete"])
def test_what_replaces_a_filter(any_client: redis.Redis, kind: Kind, verb: str) -> None:
    """Only a command of clear() or delete() replaces a filter, no command that creates it or adds to it."""
    stopped: list[str] = []
    watch = Watch(b"seen", stop=lambda: stopped.append("here"), at=[REPLACED])
    f = made(kind, Watched(any_client, watch))
    f.add_many(ITEMS)
    assert not watch.replaced
    getattr(f, verb)()
    assert watch.replaced
    assert stopped == ["here"]


@pytest.fixture(scope="module")
def crashes() -> Iterator[Any]:
    """A pipe to the process that runs and kills other processes."""
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=crashing.serve, args=(theirs, ()), daemon=True)
    process.start()
    yield ours
    ours.send(None)
    process.join(PATIENCE)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_process_that_is_killed(any_server: Server, crashes: Any, kind: Kind) -> None:
    """A killed clear() has cleared the filter and done no more; a killed add has added some items."""
    options: dict[str, Any] = (
        {"window": 3600} if kind == "rotating" else {}
    )  # the process may take long to begin
    work: crashing.Work
    for work in get_args(crashing.Work):
        with any_server.client() as client:
            client.flushall()
            made(kind, client, **options).add_many(ITEMS)
            crashes.send(
                Crash(Plan("seen", kind, 0, 0.0, 0.0), any_server.socket, work, 1, 0, (*options.items(),))
            )
            assert crashes.poll(PATIENCE), "a process that should be killed hangs"
            assert len(crashes.recv()) == (work == "clear")
            added = [f"crash 0/{number}" for number in range(crashing.ITEMS)]
            assert not all(made(kind, client, **options).contains_many(added))


CLEARS: Final[list[tuple[Kind, str]]] = [
    *(("items", "clear"), ("scaling", "clear"), ("sharded", "clear")),
    ("scaling", "crash_clear"),
]


@for_each(("kind", "disturbance"), CLEARS)
def test_what_a_clear_has_made(any_server: Server, crashes: Any, kind: Kind, disturbance: str) -> None:
    """The rules let an object that has raised the loss go on with it, though the process was killed.

    An object that has not raised it is found.
    """

    def crash(what: Crash) -> Any:
        crashes.send(what)
        assert crashes.poll(PATIENCE), "a process that should be killed hangs"
        return crashes.recv()

    def work() -> Work:
        yield Ask("add", ["before"])
        DISTURBANCES[disturbance](disturber)
        for _ in range(3):
            yield Ask("add", ["after"])

    plan = Plan("seen", kind, 0, 0.0, 0.0)
    with any_server.client() as client:
        client.flushall()
        disturber = Disturber(client, plan, crash, Faults("", Rates()))
        seat = Seat("worker", "object", made(kind, client))
        seat.run(work())
    assert [call.state for call in seat.records] == ["answered", "lost", "answered", "answered"]
    assert [call.answer for call in seat.records if call.state == "answered"] == [True, True, False]

    def wrong(calls: list[Call]) -> list[str]:
        return [*loss_violations(History(plan.terms, [*calls, *disturber.calls], disturber.losses))]

    assert not wrong(seat.records)
    assert any("silent loss" in each for each in wrong([seat.records[0], *seat.records[2:]]))
