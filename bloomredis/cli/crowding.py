"""Warnings, while lines are read, about a filter that holds more than it was made for."""

from __future__ import annotations

import logging
import math
import time
from typing import Any, Final

import typer

from bloomredis.cli.filters import Kind, kind_of
from bloomredis.cli.inputs import Reading

_EVERY: Final = 30.0
"""Seconds after which a filter that others use too is looked at again."""


class Crowding:
    """Looks at a filter when it may have passed its capacity, and again when it holds twice as much.

    :param shared: others may add to it meanwhile.
    """

    def __init__(self, seen: Any, reading: Reading, *, shared: bool) -> None:
        logging.getLogger("bloomredis").addHandler(logging.NullHandler())  # this says it in options
        self._seen = seen
        self._reading = reading
        self._every = _EVERY if shared else math.inf
        self._grows = kind_of(seen) is Kind.SCALING
        self._new = self._read = 0
        self._held = 0  # before the first line
        self._next: float = math.inf  # new lines until the next look
        self._warned = False
        if not self._grows:
            self._held = self._look()

    def added(self, read: int, new: int) -> None:
        """Note that so many lines were read, and so many of them were new; warn if that is too much."""
        self._read += read
        self._new += new
        if not self._grows and new and (self._new >= self._next or time.monotonic() >= self._due):
            self._look()

    def end(self) -> None:
        """Say what would have been enough, if it was too much."""
        if self._warned:
            self._say(
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
            unless = (
                "" if expected is not None else f", if no more than {enough:,} different lines are to come"
            )
            self._say(
                f"the filter is made for {about.capacity:,} items and holds {count:,}; it now drops "
                f"{about.estimated_error_rate:.2g} of new lines as repeats, not {about.error_rate:.2g}, and "
                f"more with each line: {self._way_out(enough)}{unless}"
            )
        return count

    @staticmethod
    def _way_out(enough: int) -> str:
        return (
            "start again with --kind scaling, which grows, or with "
            f"--capacity {enough}; and with another name if you gave one"
        )

    @staticmethod
    def _say(what: str) -> None:
        typer.echo(f"bloomredis: warning: {what}", err=True)
