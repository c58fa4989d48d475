"""Calls take a short way through the package (`python -m benchmarks.profile.walks -v` lists it)."""

from __future__ import annotations

import pytest

from benchmarks.profile import walks


@pytest.fixture(scope="module")
def figures() -> dict[str, dict[str, int]]:
    return {name: walk.figures for name, walk in walks.walks().items()}


@pytest.mark.parametrize(
    ("name", "figure", "limit"),
    [(name, *target) for name, targets in walks.TARGETS.items() for target in targets.items()],
)
def test_a_walk_stays_within_its_target(
    figures: dict[str, dict[str, int]], name: str, figure: str, limit: int
) -> None:
    """No call passes many more functions, files or changes of file than it did when its target was set."""
    assert figures[name][figure] <= 1.3 * limit
