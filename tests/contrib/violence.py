"""Restarts of the filter's server in the middle of some work, without a loss of data."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

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
