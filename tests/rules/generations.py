"""Losses of a filter, and the generations that a call may be about.

A loss begins a generation. A call is about a generation that existed at some time during the call; after a
loss during the call there may be two.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Loss:
    """A loss between two times.

    :ivar sure: the loss certainly happened.
    :ivar shard: only this shard's items are lost.
    :ivar lasts: whoever opens the filter finds it damaged, until it is cleared.
    """

    start: float
    end: float
    what: str = "loss"
    sure: bool = True
    shard: int | None = None
    lasts: bool = False

    def __str__(self) -> str:
        return f"{self.what} at {self.start:.4f}-{self.end:.4f}"


class Generations:
    """The generations of a filter, or of an item's shard."""

    def __init__(self, losses: Iterable[Loss]) -> None:
        self.losses: Sequence[Loss] = sorted(losses, key=lambda loss: loss.start)
        self._starts = [loss.start for loss in self.losses]
        self._ends = sorted(loss.end for loss in self.losses)

    @property
    def last(self) -> int:
        """The generation at the end."""
        return len(self.losses)

    def between(self, start: float, end: float) -> range:
        """Return the generations that may have existed between two times."""
        return range(bisect_right(self._ends, start), bisect_left(self._starts, end) + 1)

    def same(self, generation: int) -> range:
        """Return the generations equal to this one if uncertain losses did not happen."""
        since = generation
        while since and not self.losses[since - 1].sure:
            since -= 1
        return range(since, generation + 1)


def meet(first: range, second: range) -> bool:
    """Return whether two ranges have a number in common."""
    return first.start < second.stop and second.start < first.stop
