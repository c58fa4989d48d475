"""The answers to threads, tasks, processes and forked children on real servers keep the rules."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Final

import pytest

from tests.conftest import ANY
from tests.history.disturbing import DISTURBANCES
from tests.history.plans import KINDS, Kind
from tests.history.rounds import Crew, Rounds, crew
from tests.history.series import WAYS, series
from tests.support.modules import needs_module
from tests.support.servers import Server
from tests.support.sizes import long, short

ONE_KEY: Final[tuple[Kind, ...]] = ("items", "claims", "counting")
MANY_KEYS: Final = tuple(kind for kind in KINDS if kind not in (*ONE_KEY, "module"))

SHOWN: Final = {
    "stale-drops": ("sharded", "flush_all"),
    "damage-cleared-again": ("scaling", "evict_layer"),
    "sweeps-too-far": ("sharded", "delete"),
    "record-revived": ("rotating", "idle"),
}
"""Holes of filters of many keys, with the kind of filter and the disturbance that show each soonest."""


@pytest.fixture(scope="module")
def workers() -> Iterator[Crew]:
    """The started worker processes."""
    with crew() as made:
        made.ready()
        yield made


@pytest.mark.faults
@pytest.mark.parametrize(("answers", "lasting"), [short(3_000, 1.0), long(30_000, 1.5)])
def test_answers_keep_the_rules(
    server: Server, workers: Crew, seed: int, answers: int, lasting: float
) -> None:
    """Each item has one winner, none is lost, each claim has one commit, and every call counts once."""
    found = Rounds(server, workers, seed, kinds=ONE_KEY).check(answers, lasting=lasting)
    replay = f"python -m tests.history --seed {seed} --server {server.name} --kind {','.join(ONE_KEY)}"
    assert not found.wrong, "\n".join([replay, str(found), *found.wrong])
    assert found.faults["lost"] > 0
    assert found.faults["re-sent call refused"] > 0


@pytest.mark.faults
def test_filters_of_the_module_keep_the_rules(server: Server, workers: Crew, seed: int) -> None:
    """The same rules hold for the server's module, when its key is flushed, evicted, cleared and deleted."""
    with server.client() as client:
        needs_module(client)
    found = Rounds(server, workers, seed, kinds=["module"]).check(10_000)
    replay = f"python -m tests.history --seed {seed} --server {server.name} --kind module"
    assert not found.wrong, "\n".join([replay, str(found), *found.wrong])
    assert found.faults["lost"] > 0


@pytest.mark.faults
@pytest.mark.parametrize("kind", MANY_KEYS)
def test_filters_of_many_keys_keep_the_rules(server: Server, workers: Crew, seed: int, kind: Kind) -> None:
    """After evictions and half-done clears: one winner, no wrong answer, no key left behind."""
    replay = f"python -m tests.history --seed {seed} --server {server.name} --kind {kind}"
    print(replay)  # noqa: T201 - shown if the test fails, and with -s
    found = Rounds(server, workers, seed, kinds=[kind]).check(8_000)
    assert not found.wrong, "\n".join([replay, str(found), *found.wrong])


@pytest.mark.faults
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("hole", SHOWN)
def test_holes_of_filters_of_many_keys_are_found(hole: str) -> None:
    """With one fix removed, in a separate process, the rules are broken, on a busy machine after minutes.

    The simulator finds each hole in seconds, in tests/simulation/test_holes.py.
    """
    kind, disturbance = SHOWN[hole]
    without = ",".join(set(DISTURBANCES) - {disturbance})
    options = ["--kind", kind, "--without", without, "--hole", hole, "--server", ANY, "--answers", "1000000"]
    command = [sys.executable, "-m", "tests.history", *options]
    found = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    assert found.returncode == 1, found.stdout + found.stderr
    assert "--round" in found.stdout


@pytest.mark.faults
@pytest.mark.parametrize("way", WAYS)
def test_lost_replies_with_refusals_between(
    any_server: Server, seed: int, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 20,000 new items none gets a wrong answer."""
    wrong, figures = series(any_server, seed, 20_000, way)
    with capsys.disabled():
        print(f"\n{figures}")  # noqa: T201 - the figures to report
    assert not wrong, "\n".join(wrong[:5])
