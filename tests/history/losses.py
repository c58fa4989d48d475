"""Losses of a filter, and what a call may be about that ran while there were some.

A loss begins a generation.  A call is about a generation that stood at some time while it ran; where there
was a loss meanwhile that may be one of two.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

NOTICED: Final = 1.3
"""Seconds in which a process notices that the record of a sharded filter is lost and its shards are not."""


@dataclass(frozen=True)
class Loss:
    """A loss between two times.

    :ivar sure: it happened.
    :ivar shard: only the items of this shard are lost.
    :ivar slow: seconds for which answers may come from what was lost.
    :ivar lasts: whoever opens the filter finds it damaged, until it is cleared.
    """

    start: float
    end: float
    what: str = "loss"
    sure: bool = True
    shard: int | None = None
    slow: float = 0.0
    lasts: bool = False

    @property
    def settled(self) -> float:
        """When no answer comes from what was lost any more."""
        return self.end + self.slow

    def __str__(self) -> str:
        return f"{self.what} at {self.start:.4f}-{self.end:.4f}"


class Generations:
    """The generations of a filter, or of the shard of an item."""

    def __init__(self, losses: Iterable[Loss]) -> None:
        self.losses: Sequence[Loss] = sorted(losses, key=lambda loss: loss.start)
        self._starts = [loss.start for loss in self.losses]
        self._ends = sorted(loss.settled for loss in self.losses)

    @property
    def last(self) -> int:
        """The generation that stands at the end."""
        return len(self.losses)

    def between(self, start: float, end: float) -> range:
        """Return the generations that may have stood at some time between two others."""
        return range(bisect_right(self._ends, start), bisect_left(self._starts, end) + 1)

    def same(self, generation: int) -> range:
        """Return the generations that may be this one, if losses that are not sure did not happen."""
        since = generation
        while since and not self.losses[since - 1].sure:
            since -= 1
        return range(since, generation + 1)


def meet(first: range, second: range) -> bool:
    """Return whether two ranges have a number in common."""
    return first.start < second.stop and second.start < first.stop
