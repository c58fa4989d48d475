"""What hashing a batch costs the client in each layout of another system, against the classic one.

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
WANTED = {"go_zero", "guava", "jedis", "redis_bitmaps"}
"""Those whose hash allows numpy: at most 3 times the classic layout's time."""

ITEMS = [f"https://example.org/{i:06}" for i in range(1000)]


def main() -> None:
    """Print a line for each layout."""
    print(f"{'1,000 items of 26 characters':<28} {'us':>8} {'classic':>8} {'ratio':>7}   wanted")
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
        wanted = "<= 3" if name.split()[0] in WANTED else ""
        print(f"{name:<28} {ours:8.0f} {theirs:8.0f} {ours / theirs:6.2f}x   {wanted}")


def fastest(*sides: Callable[[], object]) -> Sequence[float]:
    """Return the shortest time of each side in microseconds; what is longer is the machine's other work."""
    times: list[list[float]] = [[] for _ in sides]
    for _ in range(ROUNDS):
        for side, kept in zip(sides, times, strict=True):
            begin = time.perf_counter()
            side()
            kept.append((time.perf_counter() - begin) * 1e6)
    return [min(kept) for kept in times]


if __name__ == "__main__":
    main()
