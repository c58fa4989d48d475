"""Interface of a side: the four calls that every filter in the comparison has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import util
from typing import Any, ClassVar, Final

from benchmarks.runner.bench import Bench

CAPACITY: Final = 1_000_000
RATE: Final = 0.01


class Peer(ABC):
    """A filter, empty at first; by default for a million items."""

    name: ClassVar[str]

    @classmethod
    def missing(cls, bench: Bench) -> str | None:
        """Return the reason why this side cannot run here, or None."""
        return bench.missing.get(cls.name)

    @abstractmethod
    def __init__(
        self, bench: Bench, *, capacity: int = CAPACITY, error_rate: float = RATE, suffix: str = ""
    ) -> None:
        """Create the filter under a key that no other side uses."""

    @abstractmethod
    def add_each(self, items: Sequence[str]) -> Sequence[Any]:
        """Add items, one call each; return for each whether it was new."""

    @abstractmethod
    def contains_each(self, items: Sequence[str]) -> Sequence[Any]:
        """Test items, one call each; return for each whether it is in the filter."""

    @abstractmethod
    def add_many(self, items: Sequence[str]) -> Sequence[Any]:
        """Do the same as `add_each` in one call, or in the fewest that the side allows."""

    @abstractmethod
    def contains_many(self, items: Sequence[str]) -> Sequence[Any]:
        """Do the same as `contains_each` in one call, or in the fewest that the side allows."""


def present(bench: Bench, *kinds: type[Peer]) -> list[type[Peer]]:
    """Return the sides that can run here."""
    return [kind for kind in kinds if kind.missing(bench) is None]


def not_installed(package: str) -> str | None:
    """Return a reason for `Peer.missing` if a package is not installed, else None."""
    return None if util.find_spec(package) else f"the package {package} is not installed"
