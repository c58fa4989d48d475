"""This library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.runner.bench import Bench
from benchmarks.sides.peer import CAPACITY, RATE, Peer


class Ours(Peer):
    """This library."""

    name = "bloomredis"

    def __init__(
        self,
        bench: Bench,
        *,
        capacity: int = CAPACITY,
        error_rate: float = RATE,
        suffix: str = "",
        **options: Any,
    ) -> None:
        self.filter = bench.filter(f"bloomredis{suffix}", capacity=capacity, error_rate=error_rate, **options)

    def add_each(self, items: Sequence[str]) -> list[bool]:
        add = self.filter.add
        return [add(item) for item in items]

    def contains_each(self, items: Sequence[str]) -> list[bool]:
        contains = self.filter.contains
        return [contains(item) for item in items]

    def add_many(self, items: Sequence[str]) -> list[bool]:
        return self.filter.add_many(items)

    def contains_many(self, items: Sequence[str]) -> list[bool]:
        return self.filter.contains_many(items)


class OursByModule(Ours):
    """This library over the server's own module."""

    name = "bloomredis, module"

    @classmethod
    def missing(cls, bench: Bench) -> str | None:
        """Return the reason why the module is not there, or None."""
        return bench.missing.get("RedisBloom")

    def __init__(
        self,
        bench: Bench,
        *,
        capacity: int = CAPACITY,
        error_rate: float = RATE,
        suffix: str = "",
        **options: Any,
    ) -> None:
        own = {"layout": "module"} | options
        super().__init__(bench, capacity=capacity, error_rate=error_rate, suffix=f"{suffix} by module", **own)
