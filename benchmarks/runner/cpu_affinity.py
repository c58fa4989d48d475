"""CPU affinity: separate processors for client and server, since the scheduler's choice changes the figures.

A round trip takes a third of the time (20 µs instead of 60 or 100) when the scheduler puts both on one
processor, because neither sleeps there. It may do either for minutes. So calls of one item are measured
with one processor for the server and the others for the client, as in production.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


def can_separate() -> bool:
    """Return whether `separate_cpus` has an effect here."""
    return hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) >= 2


@contextmanager
def separate_cpus(pids: Iterable[int]) -> Iterator[None]:
    """Keep servers off the processors of this thread (Linux with two processors or more; else do nothing)."""
    if not can_separate():
        yield
        return
    usable = sorted(os.sched_getaffinity(0))
    servers = list(pids)
    try:
        os.sched_setaffinity(0, usable[:-1])
        for pid in servers:
            os.sched_setaffinity(pid, usable[-1:])
        yield
    finally:
        for pid in (0, *servers):
            os.sched_setaffinity(pid, usable)
