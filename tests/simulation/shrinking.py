"""The shortest schedule found that still fails: delta debugging over the list of actions.

A. Zeller and R. Hildebrandt, Simplifying and isolating failure-inducing input, 2002.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def shrunk(actions: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """Return a shortest failing part of the actions, given that all of them fail."""
    best = list(actions)
    size = max(1, len(best) // 2)
    while True:
        left = _without_pieces(best, size, fails)
        if size == 1 and len(left) == len(best):
            return best
        size = max(1, min(size // 2, len(left) // 2))
        best = left


def _without_pieces(actions: list[T], size: int, fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """Leave out each piece of that size that is not needed, the last first."""
    best = actions
    for start in range((len(actions) - 1) // size * size, -1, -size):
        fewer = best[:start] + best[start + size :]
        if fails(fewer):
            best = fewer
    return best
