"""A primary and a replica on loopback."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.support.servers import Server, binaries, running
from tests.support.waiting import wait_until


def primary_options() -> tuple[str, ...]:
    """Return options for a server that replicas can reach, on a free loopback port."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    return ("--bind", "127.0.0.1", "--port", port, "--save", "", "--repl-diskless-sync-delay", "0")


def attach(primary: Server, replica: Server) -> None:
    """Make a server the replica of another one, and wait until it has all data."""
    with replica.client() as client:
        client.replicaof("127.0.0.1", primary.options[3])
        wait_until(
            "the replica reaches its primary",
            lambda: client.info("replication")["master_link_status"] == "up",
        )


@contextmanager
def replicated() -> Iterator[tuple[Server, Server]]:
    """Start a primary, and a server that can become its replica."""
    binary = binaries()["redis-8"]
    with running(binary, *primary_options()) as primary, running(binary) as replica:
        yield primary, replica


class Pair:
    """A primary and its replica, which takes over when the primary is killed."""

    def __init__(self, binary: str, stack: ExitStack) -> None:
        self._binary = binary
        self._stack = stack
        self.primary = self._start()
        self.attach()

    def _start(self) -> Server:
        return self._stack.enter_context(running(self._binary, *primary_options()))

    def attach(self) -> None:
        """Give the primary a new replica, and wait until it has all data."""
        self.replica = self._start()
        attach(self.primary, self.replica)

    def fail_over(self) -> None:
        """Kill the primary; the replica remains."""
        self.primary.stop(signal.SIGKILL)
        self.primary = self.replica
        with self.primary.client() as client:
            client.execute_command("REPLICAOF", "NO", "ONE")
