"""What threads, tasks, processes and forked children are answered on real servers keeps the rules."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from tests.conftest import ANY, REAL
from tests.history.rounds import Crew, Rounds, crew
from tests.history.series import WAYS, series
from tests.support.servers import Server

SHORT = pytest.param(ANY, 3.0, id=f"{ANY}-short")
LONG = [pytest.param(name, 12.0, id=f"{name}-long", marks=pytest.mark.faults) for name in REAL]


@pytest.fixture(scope="module")
def workers() -> Iterator[Crew]:
    """The worker processes, which have started."""
    with crew() as made:
        made.ready()
        yield made


@pytest.fixture
def seed() -> int:
    """A new seed, which a failure prints."""
    return random.SystemRandom().randrange(2**32)


@pytest.mark.parametrize(("name", "seconds"), [SHORT, *LONG])
def test_answers_keep_the_rules(
    servers: Callable[[str], Server], workers: Crew, seed: int, name: str, seconds: float
) -> None:
    """One winner an item, nothing lost, one commit a claim, every call counts once."""
    found = Rounds(servers(name), workers, seed).check(seconds)
    replay = f"python -m tests.history --seed {seed} --server {name}"
    assert not found.wrong, "\n".join([replay, str(found), *found.wrong])
    assert found.calls["answered"] > 100 * found.rounds
    assert found.faults["lost"] > 0
    assert found.faults["re-sent call refused"] > 0


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
