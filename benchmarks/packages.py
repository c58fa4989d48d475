"""Other packages for Bloom filters in Redis; both test and add in separate steps."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib import import_module, util
from typing import Any

import redis

from benchmarks.bench import Bench
from benchmarks.peers import CAPACITY, RATE, Peer


class Pottery(Peer):
    """The package pottery.  Its `add` tells nothing back, so whoever has to know tests first."""

    name = "pottery"

    @classmethod
    def missing(cls, bench: Bench) -> str | None:
        """Return why it cannot take part."""
        return _not_installed("pottery") or super().missing(bench)

    def __init__(
        self, bench: Bench, *, capacity: int = CAPACITY, error_rate: float = RATE, suffix: str = ""
    ) -> None:
        pottery = import_module("pottery")
        warnings.filterwarnings("ignore", category=pottery.InefficientAccessWarning)
        self.filter = pottery.BloomFilter(
            num_elements=capacity,
            false_positives=error_rate,
            key=f"pottery{suffix}",
            redis=redis.Redis(connection_pool=_named_pool(bench)),
        )

    def add_each(self, items: Sequence[str]) -> list[bool]:
        return [self._add(item) for item in items]

    def _add(self, item: str) -> bool:
        if item in self.filter:
            return False
        self.filter.add(item)
        return True

    def has_each(self, items: Sequence[str]) -> list[bool]:
        return [item in self.filter for item in items]

    def add_many(self, items: Sequence[str]) -> list[bool]:
        there = self.has_many(items)
        self.filter.update(items)
        return [not found for found in there]

    def has_many(self, items: Sequence[str]) -> list[bool]:
        return list(self.filter.contains_many(*items))


class Valbloom(Peer):
    """The package valbloom, which is for asyncio.  Its `add` tells nothing back either."""

    name = "valbloom"

    @classmethod
    def missing(cls, bench: Bench) -> str | None:
        """Return why it cannot take part."""
        return _not_installed("valbloom") or super().missing(bench)

    def __init__(
        self, bench: Bench, *, capacity: int = CAPACITY, error_rate: float = RATE, suffix: str = ""
    ) -> None:
        self.run = bench.runner.run
        self.filter = import_module("valbloom").BloomFilter(
            bench.aio, f"valbloom{suffix}", capacity=capacity, error_rate=error_rate
        )

    def add_each(self, items: Sequence[str]) -> list[bool]:
        async def work() -> list[bool]:
            return [await self.add(item) for item in items]

        return self.run(work())

    async def add(self, item: str) -> bool:
        """Test, then add."""
        if await self.filter.exists(item):
            return False
        await self.filter.add(item)
        return True

    def has_each(self, items: Sequence[str]) -> list[bool]:
        async def work() -> list[bool]:
            return [await self.filter.exists(item) for item in items]

        return self.run(work())

    def add_many(self, items: Sequence[str]) -> list[bool]:
        async def work() -> list[bool]:
            there = await self.filter.exists_many(items)
            await self.filter.add_many(items)
            return [not there[item] for item in items]

        return self.run(work())

    def has_many(self, items: Sequence[str]) -> list[bool]:
        found = self.run(self.filter.exists_many(items))
        return [found[item] for item in items]


def _not_installed(package: str) -> str | None:
    return None if util.find_spec(package) else f"the package {package} is not installed"


class _NamedSocket(redis.UnixDomainSocketConnection):
    """A connection by unix socket whose pool has a host and a port, which pottery reads."""

    def __init__(self, *, host: str, port: int, **options: Any) -> None:
        del host, port
        super().__init__(**options)  # type: ignore[no-untyped-call]  # redis-py has it so


def _named_pool(bench: Bench) -> redis.ConnectionPool:
    return redis.ConnectionPool(
        connection_class=_NamedSocket, host="bench", port=0, db=0, path=bench.server.socket
    )
