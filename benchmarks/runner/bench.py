"""Environment of a workload: a server, its clients, and the options of the run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import redis
import redis.asyncio

from benchmarks.runner.servers import started
from bloomredis import BloomFilter
from tests.support.servers import Server
from tests.support.wrapping import wrapped


@dataclass(frozen=True)
class Bench:
    """One server process and its clients; all sides use the same kind of connection, parsed by hiredis."""

    name: str
    server: Server
    client: redis.Redis
    aio: redis.asyncio.Redis
    runner: asyncio.Runner
    quick: bool = False
    layout: Any = None
    missing: dict[str, str] = field(default_factory=dict)
    extra: ExitStack = field(default_factory=ExitStack)
    """The servers and clients that a workload opens for itself; they are closed at its end."""

    @property
    def pids(self) -> list[int]:
        """The process ids of the server."""
        assert self.server.process is not None
        return [self.server.process.pid]

    def filter(
        self, name: str, *, capacity: int, error_rate: float, client: Any = None, **options: Any
    ) -> BloomFilter:
        """Create a filter of this library on the server and return it."""
        own: dict[str, Any] = {"layout": self.layout, **options}
        made = BloomFilter(client or self.client, name, capacity=capacity, error_rate=error_rate, **own)
        made.create()
        return made

    def wrapped_client(self) -> Any:
        """Return a client with a wrapped method, so that all calls go through its own methods."""
        return wrapped(self.extra.enter_context(self.server.client()))

    def clean(self) -> None:
        """Delete all keys, synchronously; the script cache stays."""
        self.client.flushall(asynchronous=False)


@contextmanager
def open_bench(name: str, binary: str, *, quick: bool, layout: str | None) -> Iterator[Bench]:
    """Start a server and connect to it; stop it at the end."""
    missing: dict[str, str] = {}
    with (
        started(binary, missing) as server,
        server.client() as client,
        asyncio.Runner() as runner,
    ):
        aio = redis.asyncio.Redis(unix_socket_path=server.socket, max_connections=1000)
        try:
            yield Bench(name, server, client, aio, runner, quick, layout, missing)
        finally:
            runner.run(aio.aclose())
