"""Runs of the simulator break no rule, and faulty servers are detected."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, Final

import pytest

from tests.simulation.__main__ import FAULTS, calls, main, report
from tests.simulation.actions import Action, Scenario
from tests.simulation.database import what_is
from tests.simulation.kinds import KINDS
from tests.simulation.many.kinds import KINDS as KINDS_OF_MANY
from tests.simulation.module import Items
from tests.simulation.network import Exchange, Network
from tests.simulation.processes import Setup
from tests.simulation.running import WAYS, Failure, Simulator
from tests.simulation.server import Server
from tests.simulation.shrinking import shrunk

ALL: Final = frozenset(FAULTS) | calls()


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    """A simulator in its environment."""
    simulator = Simulator()
    with simulator.installed():
        yield simulator


def first_failure(
    simulator: Simulator, kind: str, names: frozenset[str], steps: int, first: int = 0
) -> Failure | None:
    """Run schedules, from a first seed on, until one fails or that many steps were taken."""
    most = simulator.steps + steps
    for seed in range(steps):
        failure = simulator.draw(first + seed, kind, names)
        if failure is not None or simulator.steps >= most:
            return failure
    return None


@pytest.mark.parametrize("kind", KINDS)
def test_no_rule_is_broken(simulator: Simulator, kind: str) -> None:
    """6,000 steps of each kind of filter break no rule."""
    failure = first_failure(simulator, kind, ALL, 6_000)
    assert failure is None, report(simulator, failure)


@pytest.mark.parametrize("kind", KINDS_OF_MANY)
def test_no_rule_is_broken_by_filters_of_many_keys(simulator: Simulator, kind: str) -> None:
    """2,000 steps of each of those kinds break no rule."""
    failure = first_failure(simulator, kind, ALL, 2_000)
    assert failure is None, report(simulator, failure)


@pytest.mark.long
@pytest.mark.parametrize("kind", WAYS)
def test_no_rule_is_broken_in_many_steps(simulator: Simulator, kind: str, seed: int) -> None:
    """100,000 steps of each kind of filter break no rule, with other schedules in each run."""
    failure = first_failure(simulator, kind, ALL, 100_000, seed)
    assert failure is None, report(simulator, failure)


@pytest.mark.parametrize("kind", WAYS)
def test_a_seed_is_a_schedule(simulator: Simulator, kind: str) -> None:
    """A seed gives the same schedule every time, and the same outcome."""
    drawn = [trace_of(simulator, kind) for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) > 40


def trace_of(simulator: Simulator, kind: str) -> list[str]:
    """Return all that happens in one run."""
    lines: list[str] = []
    simulator.draw(3, kind, ALL, lines=lines)
    return lines


def forgets(*what: str) -> Callable[[Any, Server], None]:
    """Return a server fault: some kinds of keys vanish after each command."""

    def forget(_: Any, server: Server) -> None:
        for key in server.data.alive():
            if what_is(key) in what:
                server.data.remove(key)

    return forget


def loses_bits(command: Sequence[Any], server: Server) -> None:
    """Clear all bits of the filter now and then."""
    value = server.data.values.get(b"f")
    if isinstance(value, Items) and server.data.now % 7 == 0:
        server.data.values[b"f"] = value._replace(
            items=frozenset(each for each in value.items if len(each) > 2)
        )
    elif value and server.data.now % 7 == 0:
        server.data.values[b"f"] = value[:64] + bytes(len(value) - 64)


@pytest.mark.parametrize(
    ("wrong", "fault", "rules"),
    [
        (
            forgets("receipt"),
            "lost_reply",
            {
                *("own work", "owed", "counted twice", "counted again", "nothing written", "no token"),
                "commit denied",
            },
        ),
        (forgets("claim"), "script_flush", {"two holders", "two commits", "lost while held"}),
        (loses_bits, "script_flush", {"bits lost", "nothing written"}),
    ],
    ids=["receipts", "claims", "bits"],
)
def test_a_server_that_does_wrong_is_found_out(
    simulator: Simulator,
    monkeypatch: pytest.MonkeyPatch,
    wrong: Callable[[Any, Server], None],
    fault: str,
    rules: set[str],
) -> None:
    """A server that loses or changes its data breaks a rule within 40,000 steps."""
    execute = Server.execute

    def executed(server: Server, command: Sequence[Any]) -> Any:
        try:
            return execute(server, command)
        finally:
            wrong(command, server)

    monkeypatch.setattr(Server, "execute", executed)
    names = frozenset({fault}) | calls() - {"clear", "delete", "create"}
    failures = [first_failure(simulator, kind, names, 40_000) for kind in KINDS]
    found = {failure.violation.rule for failure in failures if failure}
    assert found
    assert found <= rules


def test_a_failure_is_shrunk() -> None:
    """Unnecessary actions are left out, and necessary ones stay in order."""
    needed = [3, 17, 41]
    tried: list[int] = []

    def fails(numbers: Sequence[int]) -> bool:
        tried.append(len(numbers))
        return [number for number in numbers if number in needed] == needed

    assert shrunk(range(100), fails) == needed
    assert len(tried) < 200


def test_a_failure_is_printed_with_its_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line prints seed, rule and the shortest schedule of a failure; a seed replays it."""
    execute = Server.execute

    def executed(server: Server, command: Sequence[Any]) -> Any:
        reply = execute(server, command)
        forgets("claim")(command, server)
        return reply

    monkeypatch.setattr(Server, "execute", executed)
    options = ["--kind", "BloomFilter", "--faults", "script_flush", "--without", "clear,delete,create"]
    assert main(["--steps", "40000", *options]) == 1
    printed = capsys.readouterr().out.split("\n")
    headline = next(line for line in printed if line.startswith("--seed"))
    assert "two holders" in headline or "lost while held" in headline
    assert len([line for line in printed if line.startswith("    ")]) < 40
    assert main(["--seed", headline.split()[1], *options]) == 1
    assert headline in capsys.readouterr().out


def test_the_command_line_runs_the_scripts() -> None:
    """It runs in a separate process, whose Lua may differ from that of the tests."""
    command = [sys.executable, "-m", "tests.simulation", "--steps", "3000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def played(
    simulator: Simulator, kind: str, *schedule: tuple[Any, ...], objects: Sequence[Any] = ((),)
) -> list[str]:
    """Carry out a schedule with objects of one process, which breaks no rule; return its events."""
    setup = Setup("p0", tuple(objects), retries=1)
    begun = Scenario(kind, (), (setup,), frozenset(), frozenset(calls()), is_warm=True)
    lines: list[str] = []
    assert simulator.replay(begun, [Action(name, tuple(args)) for name, *args in schedule], lines) is None
    return lines


def step(ref: str, times: int = 1) -> list[tuple[str, str]]:
    """Return the execution of a call's next commands, each with its reply."""
    return [(what, ref) for _ in range(times) for what in ("execute", "reply")]


@pytest.mark.parametrize("kind", ["BloomFilter", "module"])
def test_info_beside_a_clear_of_the_same_object(simulator: Simulator, kind: str) -> None:
    """Its reading of the earlier filter is no loss for the next caller."""
    looks = 1 if kind == "BloomFilter" else 2
    lines = played(
        simulator,
        kind,
        *(("start", "c1", "p0.a", "add", (0,), None), *step("c1", 3)),
        *(("start", "c2", "p0.a", "info", (), None), *step("c2", looks - 1), ("execute", "c2")),
        *(("start", "c3", "p0.a", "clear", (), None), *step("c3", looks + 1)),
        *(("reply", "c2"), *step("c2", 2)),
        *(("start", "c4", "p0.a", "info", (), None), *step("c4", 3)),
    )
    first, second = (line for line in lines if "FilterInfo" in line)
    assert "count=1" in first
    assert "count=0" in second


def test_a_load_beside_one_that_opens_the_filter_anew(simulator: Simulator) -> None:
    """Its segments are sent once, and its items are counted."""
    lines = played(
        simulator,
        "BloomFilter",
        *(("start", "c1", "p0.a", "update", (0, 1, 2), None), *step("c1")),
        *(("start", "c2", "p0.a", "create", (), None), *step("c2")),
        *step("c1", 3),
    )
    assert sum("or_segment ->" in line for line in lines) == 1


def test_a_load_beside_one_that_opens_the_filter_that_was_cleared(simulator: Simulator) -> None:
    """Its segments go to the current filter."""
    lines = played(
        simulator,
        "BloomFilter",
        *(("start", "c1", "p0.a", "update", (0, 1, 2), None), *step("c1")),
        *(("start", "c2", "p0.a", "create", (), None), ("execute", "c2")),
        *(("start", "c3", "p0.b", "clear", (), None), *step("c3", 3)),
        *(("execute", "c1"), ("reply", "c2"), *step("c1", 6)),
        objects=((("on_lost", "recreate"),), ()),
    )
    assert "    c1 3" in lines


def test_a_commit_that_was_denied_stays_undone(simulator: Simulator) -> None:
    """Late copies of the claim and of an earlier commit change nothing."""
    lines = played(
        simulator,
        "BloomFilter",
        *(("start", "c0", "p0.a", "create", (), None), ("execute", "c0"), ("reply", "c0")),
        ("start", "c1", "p0.a", "claim", (0,), None),
        *(("lose", "c1", "connection", True), ("execute", "c1"), ("reply", "c1")),
        *(("start", "c2", "p0.a", "commit", (), "c1"), ("cancel", "c2"), ("wait", 2.5)),
        *(("start", "c3", "p0.a", "commit", (), "c1"), ("execute", "c3"), ("reply", "c3")),
        *(("execute", "c3"), ("execute", "c3"), ("reply", "c3")),
        *(("stray", "c1.1"), ("stray", "c2.1")),
    )
    assert any("ClaimLostError" in line for line in lines)
    assert sum("commit -> 0" in line for line in lines) == 2


def test_a_caller_that_leaves_takes_no_other_message() -> None:
    """An answered exchange may be abandoned later, when another one has its name: that one goes on."""
    network, owner = Network(), SimpleNamespace(process=SimpleNamespace(retries=0))
    answered, later = (Exchange("c1", owner, [("GET", "x")], (), is_single=True) for _ in range(2))
    network.send(answered, 0)
    del network.exchanges["c1"]
    network.send(later, 0)
    network.abandon(answered)
    assert network.exchanges == {"c1": later}
    network.abandon(later)
    assert network.exchanges == {}
