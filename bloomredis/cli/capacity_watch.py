"""Warnings, while lines are read, about a filter that holds more items than its capacity."""

from __future__ import annotations

import math
import time
from typing import Any, Final

from bloomredis.cli import stderr
from bloomredis.cli.filters import kind_of
from bloomredis.cli.inputs import Reading
from bloomredis.cli.kinds import Kind
from bloomredis.errors import FilterFullError

_EVERY: Final = 30.0
"""Seconds between two checks of a filter that other programs use too."""


class CapacityWatch:
    """Checks a filter once it may have passed its capacity, and again once it holds twice as much.

    :param shared: other programs may add to the filter meanwhile.
    """

    def __init__(self, seen: Any, reading: Reading, *, shared: bool) -> None:
        stderr.print_warnings(but=FilterFullError)  # `_look` prints its own, which names options
        self._seen = seen
        self._reading = reading
        self._every = _EVERY if shared else math.inf
        self._grows = kind_of(seen) is Kind.SCALING
        self._new = self._read = 0
        self._held = 0  # items before the first line
        self._next: float = math.inf  # new lines at the next check
        self._warned = False
        if not self._grows:
            self._held = self._look()

    def added(self, read: int, new: int) -> None:
        """Count the lines read and the new lines among them; warn if the filter holds too many items."""
        self._read += read
        self._new += new
        if not self._grows and new and (self._new >= self._next or time.monotonic() >= self._due):
            self._look()

    def end(self) -> None:
        """If the filter was too small, print the capacity that would have been enough."""
        if self._warned:
            stderr.warn(
                f"{self._new:,} of {self._read:,} lines were new to a filter that is too small: "
                f"{self._way_out(self._held + self._read)}"
            )

    def _look(self) -> int:
        about = self._seen.info()
        count: int = about.approximate_count if kind_of(self._seen) is Kind.COUNTING else about.count
        self._due = time.monotonic() + self._every
        self._next = self._new + max(1, about.capacity - count + 1)
        if count > about.capacity:
            self._next, self._due, self._warned = self._new + count, math.inf, True
            expected = self._reading.expected(self._read)
            enough = 10 * count if expected is None else self._held + expected
            unless = "" if expected is not None else f", which is enough for {enough:,} different lines"
            stderr.warn(
                f"the filter is made for {about.capacity:,} items and holds {count:,}; it now drops "
                f"{about.estimated_error_rate:.2g} of new lines as repeats, not {about.error_rate:.2g}, and "
                f"more with each line: {self._way_out(enough)}{unless}"
            )
        return count

    @staticmethod
    def _way_out(enough: int) -> str:
        return (
            "start again with --kind scaling, which grows, or with "
            f"--capacity {enough} (and another name, if you gave one)"
        )
