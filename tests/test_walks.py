"""Calls pass few functions of the package (`python -m benchmarks.profile.walks -v` lists them)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.profile import walks

CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"


@pytest.fixture(scope="module")
def found() -> dict[str, walks.Walk]:
    return walks.walks()


@pytest.fixture(scope="module")
def figures(found: dict[str, walks.Walk]) -> dict[str, dict[str, int]]:
    return {name: walk.figures for name, walk in found.items()}


def test_the_picture_of_an_add(found: dict[str, walks.Walk]) -> None:
    """CONTRIBUTING.md names the files that an add passes, in the order in which it reaches them."""
    picture = CONTRIBUTING.read_text().partition("## The way of one item")[2].partition("```text\n")[2]
    named = re.findall(r"^(\S+\.(?:py|lua)) ", picture.partition("```")[0], re.MULTILINE)
    *files, script = named
    paths = [str(Path(step.co_filename).relative_to(walks.PACKAGE)) for step in found["add"].steps]
    assert files == [*dict.fromkeys(paths)]
    assert (CONTRIBUTING.parent / script).exists()


@pytest.mark.parametrize(
    ("name", "figure", "limit"),
    [(name, *target) for name, targets in walks.TARGETS.items() for target in targets.items()],
)
def test_a_walk_stays_within_its_target(
    figures: dict[str, dict[str, int]], name: str, figure: str, limit: int
) -> None:
    """No call passes many more functions, files or changes of file than its target allows."""
    assert figures[name][figure] <= 1.3 * limit
