"""Who is compared: this library and RedisBloom, with the four calls that every peer has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final, cast

from benchmarks.bench import Bench

CAPACITY: Final = 1_000_000
RATE: Final = 0.01


class Peer(ABC):
    """A filter of a million items or so; it is empty at first."""

    name: ClassVar[str]

    @classmethod
    def missing(cls, bench: Bench) -> str | None:
        """Return why this one cannot take part, None if it can."""
        return bench.missing.get(cls.name)

    @abstractmethod
    def __init__(
        self, bench: Bench, *, capacity: int = CAPACITY, error_rate: float = RATE, suffix: str = ""
    ) -> None:
        """Create the filter, under a key that no other peer uses."""

    @abstractmethod
    def add_each(self, items: Sequence[str]) -> Sequence[Any]:
        """Add items, a call each; say of each whether it was new."""

    @abstractmethod
    def has_each(self, items: Sequence[str]) -> Sequence[Any]:
        """Say of each item whether it is there, a call each."""

    @abstractmethod
    def add_many(self, items: Sequence[str]) -> Sequence[Any]:
        """Do what `add_each` does with one call, or the nearest thing to it."""

    @abstractmethod
    def has_many(self, items: Sequence[str]) -> Sequence[Any]:
        """Do what `has_each` does with one call, or the nearest thing to it."""


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

    def has_each(self, items: Sequence[str]) -> list[bool]:
        contains = self.filter.contains
        return [contains(item) for item in items]

    def add_many(self, items: Sequence[str]) -> list[bool]:
        return self.filter.add_many(items)

    def has_many(self, items: Sequence[str]) -> list[bool]:
        return self.filter.contains_many(items)


class RedisBloom(Peer):
    """The native module, by `execute_command`, which is the fastest way that redis-py has."""

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

    def has_each(self, items: Sequence[str]) -> list[bool]:
        execute, key = self.client.execute_command, self.key
        return [execute("BF.EXISTS", key, item) for item in items]

    def add_many(self, items: Sequence[str]) -> Sequence[Any]:
        added: list[Any] = self.client.execute_command("BF.MADD", self.key, *items)
        return added

    def has_many(self, items: Sequence[str]) -> Sequence[Any]:
        found: list[Any] = self.client.execute_command("BF.MEXISTS", self.key, *items)
        return found


def present(bench: Bench, *kinds: type[Peer]) -> list[type[Peer]]:
    """Return those of the peers that can take part here."""
    return [kind for kind in kinds if kind.missing(bench) is None]
