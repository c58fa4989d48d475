"""The package valbloom: a Bloom filter for asyncio that tests and adds in separate commands."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from benchmarks.runner.bench import Bench
from benchmarks.sides.peer import CAPACITY, RATE, Peer, not_installed


class Valbloom(Peer):
    """The package valbloom. Its `add` returns nothing, so a caller who needs an answer tests first."""

    name = "valbloom"

    @classmethod
    def missing(cls, bench: Bench) -> str | None:
        """Return the reason why this side cannot run here, or None."""
        return not_installed("valbloom") or super().missing(bench)

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

    def contains_each(self, items: Sequence[str]) -> list[bool]:
        async def work() -> list[bool]:
            return [await self.filter.exists(item) for item in items]

        return self.run(work())

    def add_many(self, items: Sequence[str]) -> list[bool]:
        async def work() -> list[bool]:
            there = await self.filter.exists_many(items)
            await self.filter.add_many(items)
            return [not there[item] for item in items]

        return self.run(work())

    def contains_many(self, items: Sequence[str]) -> list[bool]:
        found = self.run(self.filter.exists_many(items))
        return [found[item] for item in items]
