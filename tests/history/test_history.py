"""What threads, tasks, processes and forked children are answered on real servers keeps the rules."""

from __future__ import annotations

import os
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
from tests.support.servers import Server, running
from tests.support.sizes import long, short

ONE_KEY: Final[tuple[Kind, ...]] = ("items", "claims", "counting")
MANY_KEYS: Final = tuple(kind for kind in KINDS if kind not in (*ONE_KEY, "module"))

SHOWN: Final = {
    "stale-drops": ("sharded", "flush_all"),
    "damage-cleared-again": ("scaling", "evict_layer"),
    "sweeps-too-far": ("sharded", "two_clears"),
    "record-revived": ("rotating", "idle"),
}
"""Holes of filters of many keys, with the kind of filter and the disturbance that show them soonest."""


@pytest.fixture(scope="module")
def workers() -> Iterator[Crew]:
    """The worker processes, which have started."""
    with crew() as made:
        made.ready()
        yield made


@pytest.mark.faults
@pytest.mark.parametrize(("answers", "lasting"), [short(3_000, 1.0), long(30_000, 1.5)])
def test_answers_keep_the_rules(
    server: Server, workers: Crew, seed: int, answers: int, lasting: float
) -> None:
    """One winner an item, nothing lost, one commit a claim, every call counts once."""
    found = Rounds(server, workers, seed, kinds=ONE_KEY).check(answers, lasting=lasting)
    replay = f"python -m tests.history --seed {seed} --server {server.name} --kind {','.join(ONE_KEY)}"
    assert not found.wrong, "\n".join([replay, str(found), *found.wrong])
    assert found.faults["lost"] > 0
    assert found.faults["re-sent call refused"] > 0


@pytest.mark.faults
def test_rebuilds_under_load(server: Server, seed: int) -> None:
    """Eight processes add, test and claim meanwhile: no error, no second winner, no item missed."""
    others = set(DISTURBANCES) - {"rebuild"}
    replay = f"python -m tests.history --seed {seed} --server {server.name} --kind items,claims"
    with crew(processes=8) as many:
        many.ready()
        found = Rounds(server, many, seed, kinds=("items", "claims"), without=others).check(20_000)
    print(f"{replay}: {found}")  # noqa: T201 - shown if it fails, and with -s
    assert not found.wrong, "\n".join([replay, str(found), *found.wrong])
    assert found.disturbances["rebuild"] > 10
    assert found.calls["lost"] == 0


@pytest.mark.faults
def test_filters_of_the_module_keep_the_rules(server: Server, workers: Crew, seed: int) -> None:
    """The same over a key of the server's module, which is flushed, evicted, cleared and deleted too."""
    with server.client() as client:
        needs_module(client)
    found = Rounds(server, workers, seed, kinds=["module"]).check(30_000)
    replay = f"python -m tests.history --seed {seed} --server {server.name} --kind module"
    assert not found.wrong, "\n".join([replay, str(found), *found.wrong])
    assert found.faults["lost"] > 0


@pytest.mark.faults
@pytest.mark.parametrize("kind", MANY_KEYS)
def test_filters_of_many_keys_keep_the_rules(server: Server, workers: Crew, seed: int, kind: Kind) -> None:
    """Whatever is evicted, cleared or left half done: one winner, nobody misled, nothing left behind."""
    replay = f"python -m tests.history --seed {seed} --server {server.name} --kind {kind}"
    print(replay)  # noqa: T201 - shown if it fails, and with -s
    with running(server.binary) as other:
        found = Rounds(server, workers, seed, other=other, kinds=[kind]).check(20_000)
    assert not found.wrong, "\n".join([replay, str(found), *found.wrong])


@pytest.mark.faults
@pytest.mark.parametrize("hole", SHOWN)
def test_holes_of_filters_of_many_keys_are_found(hole: str) -> None:
    """With one fix taken out, in a process of its own, the rules are broken: mostly in seconds."""
    kind, disturbance = SHOWN[hole]
    without = ",".join(set(DISTURBANCES) - {disturbance})
    options = ["--kind", kind, "--without", without, "--hole", hole, "--server", ANY, "--answers", "1000000"]
    command = [sys.executable, "-m", "tests.history", *options]
    found = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert found.returncode == 1, found.stdout + found.stderr
    assert "--round" in found.stdout


@pytest.mark.faults
def test_a_record_that_is_not_looked_at_is_noticed() -> None:
    """A history may take minutes to meet this hole; a test that makes for it fails at once."""
    files = "tests/faults/many_keys/test_sharded_generations.py", "-k", "the_loss_of_the_record"
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "faults", "--exitfirst", *files],
        env=outside | {"BLOOMREDIS_HOLE": "record-not-looked-at"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert found.returncode == 1, found.stdout + found.stderr
    assert "FAILED tests/faults/many_keys/test_sharded_generations.py" in found.stdout


@pytest.mark.faults
@pytest.mark.parametrize("way", WAYS)
def test_lost_replies_with_refusals_between(
    any_server: Server, seed: int, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 20,000 new items none is answered wrong."""
    wrong, figures = series(any_server, seed, 20_000, way)
    with capsys.disabled():
        print(f"\n{figures}")  # noqa: T201 - the figures that are asked for
    assert not wrong, "\n".join(wrong[:5])
