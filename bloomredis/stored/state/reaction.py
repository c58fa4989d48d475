"""The reaction of an object to a full filter, if the filter has one capacity.

The scripts of a capped handle refuse the first new item that the filter has no room for.  With
``on_full="raise"`` the caller gets that refusal.  Otherwise the object reads the count, warns, and uses
scripts without the limit until it has added a tenth of the capacity; the next refusal lets it read the count
again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from bloomredis.arguments import OnFull
from bloomredis.errors import FilterFullError

_log: Final = logging.getLogger("bloomredis")
_warned: Final[dict[tuple[bytes, int], object]] = {}
"""The generations and doublings of the error rate of which this process has warned."""
_MANY: Final = 10
"""The multiple of `error_rate` from which on a warning becomes an error."""


class Reaction:
    """The reaction of one object to the capacity of its filter.

    :param error: makes the error for a full filter.
    :ivar passed: the generation whose capacity may be passed.
    :ivar left: the number of items that this object may add to it before it reads the count again.
    """

    def __init__(self, on_full: OnFull, error: Callable[[], FilterFullError]) -> None:
        self.refuses = on_full == "raise"
        self.error = error
        self.passed, self.left = b"", 1

    def limits(self, generation: bytes) -> bool:
        """Return whether calls must stop at the capacity of a generation."""
        return generation != self.passed or self.left <= 0

    def warn(self, generation: bytes, times: float, passed: str) -> None:
        """Warn, once in this process for each doubling of the error rate.

        :param times: the error rate to expect, as a multiple of that at the capacity.
        :param passed: what is wrong, after the first doubling.
        """
        error, mine, doublings = self.error(), object(), int(max(times, 1)).bit_length() - 1
        if _warned.setdefault((generation, doublings), mine) is mine:  # one step for threads
            if doublings:
                error = FilterFullError(passed, advice=error.advice, command=error.command)
            _log.log(logging.ERROR if times >= _MANY else logging.WARNING, "%s", error)
