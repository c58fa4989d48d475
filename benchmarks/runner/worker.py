"""Worker of `benchmarks.compare`: runs rounds with the bloomredis of the interpreter that executes it.

It is started by path, under the interpreter of any checkout, so it imports nothing of this one.  It reads a
workload and a round from each line of its standard input and replies with a line of JSON.
"""

from __future__ import annotations

import gc
import json
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import redis

import bloomredis
from bloomredis import BloomFilter

_BATCH: Final = 1_000
SIZE: Final[dict[str, Any]] = {"capacity": 1_000_000, "error_rate": 0.01}
COUNTS: Final = {"add": 200, "add_many of 1,000": 5 * _BATCH, "load of 100,000": 100_000}
"""Items a round, by workload."""


def main(path: str, tag: str) -> None:
    """Answer rounds until the standard input ends; the keys begin with `tag`."""
    client = redis.Redis(unix_socket_path=path)
    filters = {workload: BloomFilter(client, f"{tag} {workload}", **SIZE) for workload in COUNTS}
    _reply(
        python=platform.python_version(), redis=redis.__version__, path=str(Path(bloomredis.__file__).parent)
    )
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        workload, round_ = json.loads(line)
        items = [f"{round_:05}-{i:014}" for i in range(COUNTS[workload])]
        if workload.startswith("load"):
            client.delete(f"{tag} {workload}")
            filters[workload] = BloomFilter(client, f"{tag} {workload}", **SIZE)
            filters[workload].reserve()
        _reply(**_timed(_run(filters[workload], workload), items))


def _run(filter_: BloomFilter, workload: str) -> Callable[[Sequence[str]], int]:
    """Return a function that adds items and returns how many were new."""
    if workload == "add":
        return lambda items: sum([filter_.add(item) for item in items])
    if workload.startswith("add_many"):
        starts = range(0, COUNTS[workload], _BATCH)
        return lambda items: sum([sum(filter_.add_many(items[start : start + _BATCH])) for start in starts])

    def load(items: Sequence[str]) -> int:
        filter_.load(items)
        return filter_.info().count

    return load


def _timed(run: Callable[[Sequence[str]], int], items: Sequence[str]) -> dict[str, float]:
    gc.collect()
    cpu, begin = time.process_time(), time.perf_counter()
    new = run(items)
    wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
    return {"wall": wall / len(items), "client": cpu / len(items), "new": new / len(items)}


def _reply(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
