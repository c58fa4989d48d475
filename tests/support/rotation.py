"""The rotation of what each test could meet: the server, say, on which it runs this time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar
from zlib import crc32

ROTATE: Final = "rotate"
ALL: Final = "all"
T = TypeVar("T")


@dataclass(frozen=True)
class Rotation:
    """A choice by the test's id and a seed, unless one value or all of them are asked for."""

    asked: str
    seed: int

    def turn(self, test: str, values: Sequence[T]) -> Sequence[T]:
        """Return those of some values that a test meets: one, or all if so asked."""
        if self.asked == ALL:
            return values
        asked = [value for value in values if value == self.asked]
        return asked[:1] or [values[self.number(test) % len(values)]]

    def number(self, test: str) -> int:
        """Return a number below 2**32 for a test, another one with each seed."""
        return crc32(f"{self.seed} {test}".encode())
