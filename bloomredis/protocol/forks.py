"""State that a forked child must not share with its parent: lanes, pending answers, locks.

It is replaced by `os.register_at_fork` before any other code of the child runs.  Where that function is
missing there is no fork().
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Forked(Protocol):
    """An object with such state."""

    def renew(self) -> None:
        """Replace the state by that of a new process."""


_forked: WeakSet[Forked] = WeakSet()


def renewed_after_fork(forked: Forked) -> None:
    """Call `forked.renew()` in each forked child, for as long as the object lives."""
    _forked.add(forked)


def _renew_all() -> None:
    for forked in list(_forked):
        forked.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
