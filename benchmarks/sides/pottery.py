"""The package pottery: a Bloom filter that tests and adds in separate commands."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import redis

from benchmarks.runner.bench import Bench
from benchmarks.sides.peer import CAPACITY, RATE, Peer, not_installed


class Pottery(Peer):
    """The package pottery. Its `add` returns nothing, so a caller who needs an answer tests first."""

    name = "pottery"

    @classmethod
    def missing(cls, bench: Bench) -> str | None:
        """Return the reason why this side cannot run here, or None."""
        return not_installed("pottery") or super().missing(bench)

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

    def contains_each(self, items: Sequence[str]) -> list[bool]:
        return [item in self.filter for item in items]

    def add_many(self, items: Sequence[str]) -> list[bool]:
        there = self.contains_many(items)
        self.filter.update(items)
        return [not found for found in there]

    def contains_many(self, items: Sequence[str]) -> list[bool]:
        return list(self.filter.contains_many(*items))


class _NamedSocket(redis.UnixDomainSocketConnection):
    """A unix socket connection whose pool has a host and a port, because pottery reads them."""

    def __init__(self, *, host: str, port: int, **options: Any) -> None:
        del host, port
        super().__init__(**options)  # type: ignore[no-untyped-call]  # redis-py leaves it untyped


def _named_pool(bench: Bench) -> redis.ConnectionPool:
    return redis.ConnectionPool(
        connection_class=_NamedSocket, host="bench", port=0, db=0, path=bench.server.socket
    )
