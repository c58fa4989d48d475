"""This library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from benchmarks.runner.bench import Bench
from benchmarks.sides.peer import CAPACITY, RATE, Peer


class Ours(Peer):
    """This library."""

    name = "bloomredis"
    own: ClassVar[dict[str, Any]] = {}  # options of all its filters
    key = "bloomredis"

    def __init__(
        self,
        bench: Bench,
        *,
        capacity: int = CAPACITY,
        error_rate: float = RATE,
        suffix: str = "",
        **options: Any,
    ) -> None:
        options = self.own | options
        self.filter = bench.filter(f"{self.key}{suffix}", capacity=capacity, error_rate=error_rate, **options)

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
    own: ClassVar[dict[str, Any]] = {"layout": "module"}
    key = "bloomredis by module"

    @classmethod
    def missing(cls, bench: Bench) -> str | None:
        """Return the reason why the module is not there, or None."""
        return bench.missing.get("RedisBloom")
