"""Restarts of the filter's server in the middle of some work, its calls, and the processes of workers."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bloomredis import BloomFilter, WorkItem
from tests.support.servers import Server
from tests.support.waiting import wait_until

KEPT: Final = ("--appendonly", "yes", "--save", "")
"""Options of a server that keeps its data over an orderly restart."""


def restart(server: Server, seconds: float = 1.0, meanwhile: Callable[[], object] | None = None) -> None:
    """Stop a server, and start it again after so many seconds."""
    server.stop()
    if meanwhile is not None:
        meanwhile()
    time.sleep(seconds)  # the outage
    server.start()


@contextmanager
def restarting(server: Server, when: Callable[[], object], seconds: float = 1.0) -> Iterator[None]:
    """Restart a server during the block, once a condition is true; the block ends after the restart."""
    failures: list[BaseException] = []

    def work() -> None:
        try:
            wait_until("the restart is due", when)
            restart(server, seconds)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    assert not failures, failures


def calls(server: Server) -> int:
    """Return the number of script calls that a server has executed."""
    with server.client(decode_responses=True) as client:
        stats: Any = client.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {"calls": 0})["calls"])


def children(process: int) -> list[int]:
    """Return the ids of the child processes of a process."""
    try:
        return [int(each) for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except FileNotFoundError:
        return []


def descendants(process: int) -> list[int]:
    """Return the ids of the child processes of a process, and of theirs."""
    return [found for child in children(process) for found in (child, *descendants(child))]


def lose(server: Server, name: str, item: str | WorkItem) -> None:
    """Lose all filters of a server, once an item is in a filter."""
    with server.client() as client:
        seen = BloomFilter.open(client, name)
        wait_until("the item is committed", lambda: item in seen)
        client.flushall()


def acknowledge(server: Server, name: str, *size: str) -> None:
    """Create a lost filter again, and let all programs go on with it, as an operator does."""
    for command in (["create", name, *size], ["acknowledge", name]):
        subprocess.run(
            [sys.executable, "-m", "bloomredis", *command, "--url", server.url],
            check=True,
            capture_output=True,
        )
