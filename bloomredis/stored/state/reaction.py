"""The reaction of an object to a full filter, if the filter has one capacity.

The scripts of a capped handle refuse the first new item that the filter has no room for.  With
``on_full="raise"`` the caller gets that refusal.  Otherwise the object uses scripts without the limit from
then on; the first object of the process that does so for a generation warns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from bloomredis.arguments import OnFull
from bloomredis.errors import FilterFullError

_log: Final = logging.getLogger("bloomredis")
_warned: Final[dict[bytes, object]] = {}
"""The generations of whose capacity this process has warned."""


class Reaction:
    """The reaction of one object to the capacity of its filter.

    :param error: makes the error for a full filter.
    """

    def __init__(self, on_full: OnFull, error: Callable[[], FilterFullError]) -> None:
        self.refuses = on_full == "raise"
        self._error = error
        self._passed: set[bytes] = set()  # the generations whose capacity may be passed

    def limits(self, generation: bytes) -> bool:
        """Return whether calls must stop at the capacity of a generation."""
        return generation not in self._passed

    def let_pass(self, generation: bytes) -> None:
        """Let the capacity of a generation be passed, with one warning; or raise the error."""
        error = self._error()
        if self.refuses:
            raise error
        self._passed.add(generation)
        mine = object()
        if _warned.setdefault(generation, mine) is mine:  # one step for threads
            _log.warning("%s", error)
