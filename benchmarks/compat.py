"""Client-side hashing cost of each layout of another system, compared with the classic layout.

`python -m benchmarks.compat`: 1,000 items, the same number of hashes on both sides, in turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from bloomredis import compat
from bloomredis.bits import encoding
from bloomredis.bits.classic import Classic

ROUNDS = 60
NUMPY_LAYOUTS = {"go_zero", "guava", "jedis", "redis_bitmaps"}
"""Layouts whose hash numpy can compute; their target is at most 3 times the classic layout's time."""

ITEMS = [f"https://example.org/{i:06}" for i in range(1000)]


def main() -> None:
    """Print a line for each layout."""
    print(f"{'1,000 items of 26 characters':<28} {'us':>8} {'classic':>8} {'ratio':>7}   target")
    layouts: list[tuple[str, Any]] = [
        ("go_zero", compat.go_zero(60_000_000)),
        ("guava", compat.guava(1_000_000, 0.001)),
        ("guava MITZ_32", compat.guava(1_000_000, 0.001, strategy="MITZ_32")),
        ("jedis", compat.jedis(1_000_000, 0.001)),
        ("redis_bitmaps", compat.redis_bitmaps(1_000_000, 0.001)),
        ("redis_template", compat.redis_template(1_000_000, 0.001)),
        ("redisson", compat.redisson(1_000_000, 0.001)),
        ("php_bkdr", compat.php_bkdr(60_000_000, 10)),
    ]
    for name, layout in layouts:
        classic = Classic(num_bits=layout.num_bits, num_hashes=layout.num_hashes)
        ours, theirs = fastest(
            lambda layout=layout: layout.pack(layout.encode_all(ITEMS)),  # type: ignore[misc]  # of this round
            lambda classic=classic: classic.pack(encoding.encode_all(ITEMS)),  # type: ignore[misc]  # as above
        )
        target = "<= 3" if name.split()[0] in NUMPY_LAYOUTS else ""
        print(f"{name:<28} {ours:8.0f} {theirs:8.0f} {ours / theirs:6.2f}x   {target}")


def fastest(*sides: Callable[[], object]) -> Sequence[float]:
    """Return the shortest time of each side in microseconds; longer ones are noise."""
    times: list[list[float]] = [[] for _ in sides]
    for _ in range(ROUNDS):
        for side, kept in zip(sides, times, strict=True):
            begin = time.perf_counter()
            side()
            kept.append((time.perf_counter() - begin) * 1e6)
    return [min(kept) for kept in times]


if __name__ == "__main__":
    main()
