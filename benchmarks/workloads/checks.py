"""Checks of the answers: a benchmark must not measure a broken side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.runner.measure import Answers

Check = Callable[[Any, Answers], None]


def mostly_new(error_rate: float, fresh: float = 1.0) -> Check:
    """Return a check that the share `fresh` of the items was new, apart from false positives."""

    def check(items: Any, answers: Answers) -> None:
        new, most = _count(items, answers), round(len(items) * fresh)
        if not most * (1 - 2 * error_rate) - 5 <= new <= most:
            raise AssertionError(f"{new} of {len(items)} items were reported new, not {most}")

    return check


def none_new(items: Any, answers: Answers) -> None:
    """Check that no item was new."""
    if new := _count(items, answers):
        raise AssertionError(f"{new} of {len(items)} items were reported new; all had been added")


def all_there(items: Any, answers: Answers) -> None:
    """Check that all items were found."""
    if (found := _count(items, answers)) != len(items):
        raise AssertionError(f"{found} of {len(items)} items were found; all had been added")


def _count(items: Any, answers: Answers) -> int:
    if answers is None or len(answers) != len(items):
        raise AssertionError(f"{len(items)} items, but {answers and len(answers)} answers")
    return sum(1 for answer in answers if answer is True or answer == 1)
