"""The answers of a cluster whose nodes freeze, die, fail over and move slots keep the rules."""

from __future__ import annotations

import pytest

from tests.history.plans import Kind
from tests.history.rounds import Found, crew
from tests.history.storms import KINDS, Storms
from tests.support.clusters import SERVERS, cluster
from tests.support.servers import binaries

pytestmark = pytest.mark.faults


def stormed(
    name: str, seed: int, kind: Kind, answers: int, lasting: float, *, retry_safe: bool = True
) -> Found:
    """Run rounds on a new cluster."""
    with cluster(binaries()[name]) as nodes, crew() as workers:
        workers.ready()
        rounds = Storms(nodes, workers, seed, [kind], retry_safe=retry_safe)
        found = rounds.check(answers, lasting=lasting)
    assert found.disturbances["kill"] + found.disturbances["fail_over"] >= found.rounds
    assert min(found.disturbances["move"], found.disturbances["freeze"]) > 0
    assert found.calls["unknown"] > 0
    return found


@pytest.mark.timeout(900)  # on a busy machine
@pytest.mark.parametrize(
    ("answers", "lasting"), [(2000, 4.0), pytest.param(200_000, 15.0, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("kind", KINDS)
def test_storms_mislead_nobody(seed: int, kind: Kind, answers: int, lasting: float) -> None:
    """Threads and tasks of two processes, with few connections or many: no answer is wrong."""
    name = SERVERS[(seed + KINDS.index(kind)) % len(SERVERS)]
    found = stormed(name, seed, kind, answers, lasting)
    replay = f"python -m tests.history --cluster --seed {seed} --server {name} --kind {kind}"
    assert not found.wrong, "\n".join([replay, str(found), *found.wrong])


@pytest.mark.long
def test_storms_mislead_those_without_receipts(seed: int) -> None:
    """The faults are real: without safe retries, some items are reported new to nobody."""
    found = stormed("valkey-9", seed, "items", 200_000, 6.0, retry_safe=False)
    assert any("no winner" in each or "already there" in each for each in found.wrong)
