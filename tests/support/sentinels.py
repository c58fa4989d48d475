"""A primary, its replica, and the Sentinel that names the primary."""

from __future__ import annotations

import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from tests.support.replicas import attach, primary_options
from tests.support.servers import Server, binaries, running
from tests.support.waiting import wait_until

NAME = "mymaster"


@dataclass
class Sentinel:
    """A Sentinel, the primary that it watches at first, and the replica of that primary."""

    port: int
    password: str
    primary: Server
    replica: Server

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    def ask(self, *command: str) -> Any:
        """Return a reply of the Sentinel."""
        with redis.Redis(port=self.port, password=self.password or None, decode_responses=True) as client:
            return client.execute_command(*command)

    def fail_over(self) -> None:
        """Make the replica the primary, and wait until the Sentinel names it."""
        wait_until("the replica can take over", lambda: self._accepts("SENTINEL FAILOVER", NAME))
        port = int(self.replica.options[3])
        named = "SENTINEL GET-MASTER-ADDR-BY-NAME"
        wait_until("it names the replica", lambda: int(self.ask(named, NAME)[1]) == port)

    def _accepts(self, *command: str) -> bool:
        with suppress(redis.ResponseError):
            return bool(self.ask(*command))
        return False


@contextmanager
def watched(password: str = "", sentinel_password: str = "") -> Iterator[Sentinel]:
    """Start the servers and the Sentinel, each with a password if one is given."""
    binary = binaries()["redis-8"]
    with ExitStack() as stack:
        primary, replica = (stack.enter_context(running(binary, *primary_options())) for _ in range(2))
        attach(primary, replica)
        for server in (primary, replica):
            with server.client() as client:
                client.config_set("masterauth", password)
                client.config_set("requirepass", password)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bloomredis-")))
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        lines = [
            *("bind 127.0.0.1", f"port {port}", f"dir {folder}"),
            f"sentinel monitor {NAME} 127.0.0.1 {primary.options[3]} 1",
        ]
        lines += [f"sentinel auth-pass {NAME} {password}"] if password else []
        lines += [f"requirepass {sentinel_password}"] if sentinel_password else []
        (folder / "sentinel.conf").write_text("\n".join(lines))
        found = Sentinel(port, sentinel_password, primary, replica)
        stack.enter_context(_running([binary, str(folder / "sentinel.conf"), "--sentinel"], folder / "log"))
        wait_until("the Sentinel answers", lambda: _answers(found))
        yield found


def _answers(sentinel: Sentinel) -> bool:
    with suppress(redis.ConnectionError):
        return bool(sentinel.ask("PING"))
    return False


@contextmanager
def _running(command: list[str], path: Path) -> Iterator[None]:
    """Run a process, and end it by its own id."""
    with path.open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGKILL)
