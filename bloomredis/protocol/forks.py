"""State that a forked child must not share with its parent: sessions, pending answers, locks.

The hook of `os.register_at_fork` replaces this state before any other code of the child runs.  A program that
forks in C, such as uWSGI, does not run the hook, so each public call begins with `detect_fork()`.
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
    """An object with state that a forked child must not share."""

    def after_fork(self) -> None:
        """Replace the state with that of a new process."""


class Mark(Protocol):
    """A byte that is 0 in a forked child until the child sets it."""

    def __getitem__(self, index: int, /) -> int: ...

    def __setitem__(self, index: int, value: int, /) -> None: ...


class MarkByProcess:
    """A mark that compares process ids, which takes ten times as long as reading memory."""

    _process = 0

    def __getitem__(self, _: int, /) -> int:
        return int(getpid() == self._process)

    def __setitem__(self, _: int, value: int, /) -> None:
        self._process = getpid()


_WIPE_ON_FORK: Final = 18
"""MADV_WIPEONFORK of Linux 4.14 and later: any forked child finds zeros in this memory (madvise(2))."""


def _mark_in_memory() -> Mark | None:
    """Return a mark that the system clears in each child; None if the system cannot."""
    if sys.platform != "linux":
        return None
    page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):
        page.madvise(_WIPE_ON_FORK)
        try:
            page.madvise(-1)  # an emulator may accept any advice and ignore it
        except OSError:
            return page
    return None


_forked: WeakSet[Forked] = WeakSet()
_mark: Final[Mark] = _mark_in_memory() or MarkByProcess()
_mark[0] = 1
_processes: Final = [object()]
"""The object that stands for this process."""
_locks: dict[int, threading.Lock] = {}
"""One lock for each process id: a thread of the parent may have held the parent's lock at the fork."""
_replacing: set[tuple[int, int]] = set()
"""The process and thread that replaces the state; the finalisers that it runs meanwhile must not wait."""


def register_after_fork(forked: Forked) -> None:
    """Call `forked.after_fork()` in each forked child while the object lives."""
    _forked.add(forked)


def detect_fork() -> None:
    """Replace the state that a forked child inherited, before a call uses it."""
    if not _mark[0] and (getpid(), threading.get_ident()) not in _replacing:
        with _locks.setdefault(getpid(), threading.Lock()):
            if not _mark[0]:
                _after_fork()


def process() -> object:
    """Return an object that stands for this process; a forked child has another one."""
    if not _mark[0]:
        detect_fork()
    return _processes[0]


def _after_fork() -> None:
    own = getpid(), threading.get_ident()
    _replacing.add(own)
    try:
        _processes[0] = object()
        for forked in list(_forked):
            forked.after_fork()
        _mark[0] = 1
    finally:
        _replacing.discard(own)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
