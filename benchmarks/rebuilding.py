"""Server time of an add during a rebuild of its filter, in microseconds for an item, by INFO commandstats."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from benchmarks.runner.servers import DEFAULT
from bloomredis import BloomFilter
from tests.support.servers import binaries, running

ITEMS: Final = 20_000
CAPACITY: Final = 1_000_000
_HEAD: Final = "layout   one alone  rebuilt   in a batch  rebuilt"


def main() -> None:
    """Add new items alone and in batches, before a rebuild and during it, on the servers named."""
    for name in sys.argv[1:] or DEFAULT:
        print(f"\n{name}\n{_HEAD}")
        for layout in ("blocked", "classic"):
            with running(binaries()[name]) as server, server.client() as client:
                print(_line(client, layout), flush=True)


def _line(client: Any, layout: Any) -> str:
    filter_ = BloomFilter(client, "seen", capacity=CAPACITY, error_rate=0.01, layout=layout)
    alone, batch = _costs(client, filter_, "before")
    with filter_.rebuild(capacity=2 * CAPACITY):
        alone_meanwhile, batch_meanwhile = _costs(client, filter_, "meanwhile")
    return f"{layout:<8} {alone:9.1f} {alone_meanwhile:8.1f} {batch:12.1f} {batch_meanwhile:8.1f}"


def _costs(client: Any, filter_: BloomFilter, prefix: str) -> tuple[float, float]:
    def one_by_one(items: Sequence[str]) -> None:
        for item in items:
            filter_.add(item)

    filter_.add_many([prefix, f"{prefix} too"])  # loads the scripts
    return _cost(client, one_by_one, f"{prefix} alone"), _cost(client, filter_.add_many, f"{prefix} batch")


def _cost(client: Any, add: Callable[[Sequence[str]], object], prefix: str) -> float:
    items = [f"{prefix} {number}" for number in range(ITEMS)]
    client.config_resetstat()
    add(items)
    spent: float = client.info("commandstats")["cmdstat_evalsha"]["usec"]
    return spent / ITEMS


if __name__ == "__main__":
    main()
