"""RedisBloom, the native module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from benchmarks.runner.bench import Bench
from benchmarks.sides.peer import CAPACITY, RATE, Peer


class RedisBloom(Peer):
    """The native module through `execute_command`, the fastest way in redis-py."""

    name = "RedisBloom"

    def __init__(
        self, bench: Bench, *, capacity: int = CAPACITY, error_rate: float = RATE, suffix: str = ""
    ) -> None:
        self.client = cast("Any", bench.client)
        self.key = f"redisbloom{suffix}"
        self.client.execute_command("BF.RESERVE", self.key, error_rate, capacity, "NONSCALING")

    def add_each(self, items: Sequence[str]) -> list[bool]:
        execute, key = self.client.execute_command, self.key
        return [execute("BF.ADD", key, item) for item in items]

    def contains_each(self, items: Sequence[str]) -> list[bool]:
        execute, key = self.client.execute_command, self.key
        return [execute("BF.EXISTS", key, item) for item in items]

    def add_many(self, items: Sequence[str]) -> Sequence[Any]:
        added: list[Any] = self.client.execute_command("BF.MADD", self.key, *items)
        return added

    def contains_many(self, items: Sequence[str]) -> Sequence[Any]:
        found: list[Any] = self.client.execute_command("BF.MEXISTS", self.key, *items)
        return found
