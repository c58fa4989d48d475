"""Rotation of each test's choices, for example of its server, from run to run."""

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
    """A choice by the test's id and a seed, unless one value or all are requested."""

    asked: str
    seed: int

    def turn(self, test: str, values: Sequence[T]) -> Sequence[T]:
        """Return a test's choice among some values: one, or all on request."""
        if self.asked == ALL:
            return values
        asked = [value for value in values if value == self.asked]
        return asked[:1] or [values[self.number(test) % len(values)]]

    def number(self, test: str) -> int:
        """Return a number below 2**32 for a test, different for each seed."""
        return crc32(f"{self.seed} {test}".encode())
