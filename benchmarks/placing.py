"""On which processors the server and the client run, where that decides the figures.

A round trip takes a third of the time when the scheduler happens to put both on one processor, where neither
sleeps: 20 µs for 60 or 100.  It may do either, for minutes on end.  So one-item calls are measured with a
processor for the server and the others for the client, which is how they are used.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


@contextmanager
def apart(pids: Iterable[int]) -> Iterator[None]:
    """Keep servers off the processors of this thread, as far as the system can (Linux, two or more)."""
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
    if len(usable) < 2:
        yield
        return
    servers = list(pids)
    try:
        os.sched_setaffinity(0, usable[:-1])
        for pid in servers:
            os.sched_setaffinity(pid, usable[-1:])
        yield
    finally:
        for pid in (0, *servers):
            os.sched_setaffinity(pid, usable)
