"""State that a forked child must not share with its parent: lanes, pending answers, locks.

`os.register_at_fork` replaces it before any other code of the child runs.  A program that forks in C, such as
uWSGI, does not call that, so each public call begins with `check()`.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
from contextlib import suppress
from os import getpid
from typing import Final, Protocol
from weakref import WeakSet


class Forked(Protocol):
    """An object with such state."""

    def renew(self) -> None:
        """Replace the state by that of a new process."""


class Mark(Protocol):
    """A byte that is 0 in a forked child, until it is set there."""

    def __getitem__(self, index: int, /) -> int: ...

    def __setitem__(self, index: int, value: int, /) -> None: ...


class MarkByProcess:
    """A mark that asks for the process's id, which takes ten times as long as to read memory."""

    _process = 0

    def __getitem__(self, _: int, /) -> int:
        return int(getpid() == self._process)

    def __setitem__(self, _: int, value: int, /) -> None:
        self._process = getpid()


_WIPE_ON_FORK: Final = 18
"""Advice to Linux (4.14 and later) about memory: a child finds zeros there, whoever forks (madvise(2))."""


def _mark_in_memory() -> Mark | None:
    """Return a mark that the system clears in each child; None where it cannot."""
    if sys.platform != "linux":
        return None
    page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):
        page.madvise(_WIPE_ON_FORK)
        try:
            page.madvise(-1)  # an emulator may accept any advice, and heed none
        except OSError:
            return page
    return None


_forked: WeakSet[Forked] = WeakSet()
_mark: Final[Mark] = _mark_in_memory() or MarkByProcess()
_mark[0] = 1
_locks: dict[int, threading.Lock] = {}
"""That of each process: a parent's thread may hold the parent's."""


def renewed_after_fork(forked: Forked) -> None:
    """Call `forked.renew()` in each forked child, for as long as the object lives."""
    _forked.add(forked)


def check() -> None:
    """Replace the state of a parent process, before a call takes any of it."""
    if not _mark[0]:
        with _locks.setdefault(getpid(), threading.Lock()):
            if not _mark[0]:
                _renew_all()


def _renew_all() -> None:
    for forked in list(_forked):
        forked.renew()
    _mark[0] = 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
