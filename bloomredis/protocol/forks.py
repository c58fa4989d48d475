"""State that a forked child must not share with its parent: lanes, pending answers, locks.

`os.register_at_fork` replaces it before any other code of the child runs.  A program that forks in C, such as
uWSGI, does not call that, so each public call begins with `check()`.
"""

from __future__ import annotations

import os
import threading
from os import getpid
from typing import Protocol
from weakref import WeakSet


class Forked(Protocol):
    """An object with such state."""

    def renew(self) -> None:
        """Replace the state by that of a new process."""


_forked: WeakSet[Forked] = WeakSet()
_process = getpid()
_locks: dict[int, threading.Lock] = {}
"""That of each process: a parent's thread may hold the parent's."""


def renewed_after_fork(forked: Forked) -> None:
    """Call `forked.renew()` in each forked child, for as long as the object lives."""
    _forked.add(forked)


def check() -> None:
    """Replace the state of a parent process, before a call takes any of it."""
    if getpid() != _process:
        with _locks.setdefault(getpid(), threading.Lock()):
            if getpid() != _process:
                _renew_all()


def _renew_all() -> None:
    global _process  # noqa: PLW0603 - there is one
    for forked in list(_forked):
        forked.renew()
    _process = getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
