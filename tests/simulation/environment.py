"""The environment of simulated processes: clocks, process ids, random bytes, locks, and fork().

The modules of bloomredis get stand-ins for `time`, `os` and `threading`, so that a run depends only on its
seed and its schedule.
"""

from __future__ import annotations

import importlib
import logging
import os
import pkgutil
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final
from unittest import mock

import bloomredis
from bloomredis.bits import batch
from bloomredis.bits.blocked import Blocked
from bloomredis.bits.classic import Classic, Counting
from bloomredis.operations.claims.requests import ClaimRequest
from bloomredis.operations.kinds.verbs import ItemOperations
from bloomredis.operations.whole import loading
from bloomredis.protocol import clock, forks

WALL_CLOCK: Final = 1.8e9
"""The wall clock at the start, in seconds."""

WALL_SECONDS: Final = 20.0
"""Seconds after which wall clocks jump."""

FEW_BITS: Final = 70
"""Bits above which a load sends a batch as segments: some three items or more."""

MOST_HASHED: Final = 4096
"""The most items whose hashes are cached: hashing a small batch takes longer than executing it."""


class Deadlock(Exception):  # noqa: N818 - not an error for callers
    """A held lock was requested: in one thread nobody else can release it."""


class Lock:
    """A lock without waiting."""

    def __init__(self) -> None:
        self.held = 0
        self.most = 1

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002 - as in threading
        if self.held < self.most:
            self.held += 1
            return True
        if not blocking:
            return False
        raise Deadlock

    def release(self) -> None:
        self.held -= 1

    def locked(self) -> bool:
        return self.held > 0

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class RLock(Lock):
    """A lock that its holder may acquire again."""

    def __init__(self) -> None:
        super().__init__()
        self.most = sys.maxsize


class _Instead:
    """A module with some names replaced."""

    def __init__(self, module: Any, **names: Any) -> None:
        self.__dict__.update(names)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class Environment:
    """Clocks in seconds, the id of the running process, and random bytes."""

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, seed: int) -> None:
        """Start over."""
        self.note: Callable[[ClaimRequest], None] | None = None  # receives each request about a claim
        self.note_batch: Callable[[Sequence[ClaimRequest]], None] | None = None  # those that share a batch
        self.now = 1000.0
        self._nanoseconds = 0
        self.pid = 100
        self._processes: dict[int, object] = {}
        self.walls: dict[int, Sequence[float]] = {}  # errors of wall clocks, by the id of the process
        self._random = random.Random(seed)

    def monotonic(self) -> float:
        """Return the clients' clock."""
        return self.now

    def wall(self) -> float:
        """Return the wall clock of the running process."""
        return WALL_CLOCK + self.now + self.wall_error(self.pid)

    def wall_error(self, pid: int) -> float:
        """Return the seconds by which a process's wall clock is wrong; it jumps between its values."""
        errors = self.walls.get(pid, (0.0,))
        return errors[(int(self.now / WALL_SECONDS) + pid) % len(errors)]

    def nanoseconds(self) -> int:
        """Return the clients' clock, at least a nanosecond later each time."""
        self._nanoseconds += 1
        return int(self.now * 1e9) + self._nanoseconds

    def getpid(self) -> int:
        """Return the id of the running process."""
        return self.pid

    def process(self) -> object:
        """Return the object that stands for the running process."""
        return self._processes.setdefault(self.pid, object())

    def urandom(self, size: int) -> bytes:
        """Return random bytes."""
        return self._random.randbytes(size)

    def _names(self) -> dict[Any, Any]:
        """Return the replacement of each object, wherever a module refers to it."""
        times: dict[str, Any] = dict.fromkeys(("monotonic", "perf_counter"), self.monotonic)
        times["time"] = self.wall
        process = {"getpid": self.getpid, "urandom": self.urandom}
        instead = {
            time: _Instead(time, **times),
            os: _Instead(os, **process),
            threading: _Instead(threading, Lock=Lock, RLock=RLock),
            threading.Lock: Lock,
        }
        return (
            instead
            | {getattr(os, name): new for name, new in process.items()}
            | {time.monotonic: self.monotonic, clock.now: self.monotonic, time.time_ns: self.nanoseconds}
            # all simulated processes are in one
            | {forks.detect_fork: lambda: None, forks.process: self.process}
        )

    def _noted(self, init: Callable[..., None]) -> Callable[..., None]:
        """Return the constructor of requests, which passes each to `note`."""

        def noted(request: ClaimRequest, *arguments: Any, **options: Any) -> None:
            init(request, *arguments, **options)
            if self.note is not None:
                self.note(request)

        return noted

    def _noted_batch(self, attempt: Callable[..., Any]) -> Callable[..., Any]:
        """Return the operation for shared requests, which passes them to `note_batch` when it begins."""

        def noted(operations: Any, requests: Sequence[ClaimRequest]) -> Any:
            if self.note_batch is not None:
                self.note_batch(requests)
            return (yield from attempt(operations, requests))

        return noted

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Give the modules of bloomredis this environment."""
        instead = {id(thing): new for thing, new in self._names().items()}
        patches: list[Any] = []
        for module in modules():
            for name, value in list(vars(module).items()):
                if id(value) in instead:
                    patches.append(mock.patch.object(module, name, instead[id(value)]))
        patches += _remembered()
        patches.append(mock.patch.object(ClaimRequest, "__init__", self._noted(ClaimRequest.__init__)))
        shared = self._noted_batch(ItemOperations.attempt_shared)
        patches.append(mock.patch.object(ItemOperations, "attempt_shared", shared))
        patches.append(mock.patch.object(logging.getLogger("bloomredis"), "disabled", True))
        for patch in patches:
            patch.start()
        try:
            yield
        finally:
            for patch in reversed(patches):
                patch.stop()


def modules() -> list[Any]:
    """Return the modules of bloomredis that can be imported without optional packages."""
    names = [info.name for info in pkgutil.walk_packages(bloomredis.__path__, "bloomredis.")]
    others = ("bloomredis.cli", "bloomredis.compat", "bloomredis.contrib", "bloomredis.embedded")
    return [importlib.import_module(name) for name in names if not name.startswith(others)]


def _remembered() -> Iterator[Any]:
    """Yield patches that cache the results of hashing, which depends on nothing else."""
    for layout in (Blocked, Classic, Counting):
        for name in ("pack_one", "pack", "probes"):
            yield mock.patch.object(layout, name, _remembering(getattr(layout, name)))
    yield mock.patch.object(batch, "hashed", _remembering(batch.hashed))
    yield mock.patch.object(loading, "DENSE", FEW_BITS)


def _remembering(function: Callable[..., Any]) -> Callable[..., Any]:
    remembered = lru_cache(MOST_HASHED)(lambda first, *rest: function(first, *map(_thawed, rest)))
    return lambda first, given: remembered(first, tuple(given) if isinstance(given, list) else given)


def _thawed(given: Any) -> Any:
    return list(given) if isinstance(given, tuple) else given
