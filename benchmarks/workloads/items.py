"""Items of the rounds: no two rounds share one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

_CHUNK: Final = 100_000


def strings(tag: str, round_: int, count: int) -> list[str]:
    """Return strings of about 20 characters."""
    return [f"{tag}{round_:05}-{i:011}" for i in range(count)]


@dataclass(frozen=True)
class Generated:
    """Strings generated on iteration, never in memory as a whole."""

    tag: str
    count: int

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[str]:
        return map((self.tag + "-%011d").__mod__, range(self.count))


@dataclass(frozen=True)
class Letters:
    """Random lower-case strings of 4 to 12 letters, generated on iteration; some occur twice."""

    seed: int
    count: int

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[str]:
        dice = np.random.default_rng(self.seed)
        for start in range(0, self.count, _CHUNK):
            size = min(_CHUNK, self.count - start)
            text = dice.integers(ord("a"), ord("z") + 1, 12 * size, dtype=np.uint8).tobytes().decode()
            lengths = dice.integers(4, 13, size).tolist()
            yield from [text[12 * i : 12 * i + length] for i, length in enumerate(lengths)]


def stream(round_: int, count: int, duplicates: float = 0.95) -> list[str]:
    """Return one round of a stream in which most items are duplicates, of this round or of earlier ones."""
    fresh = round(count * (1 - duplicates))
    dice = random.Random(round_)
    is_new = [True] * fresh + [False] * (count - fresh)
    dice.shuffle(is_new)
    is_new[is_new.index(True)], is_new[0] = is_new[0], True  # the first item cannot be a duplicate
    seen = round_ * fresh
    items = []
    for new in is_new:
        items.append(f"stream-{seen if new else dice.randrange(seen):013}")
        seen += new
    return items
