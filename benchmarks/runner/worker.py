"""Worker of `benchmarks.compare`: runs rounds with the bloomredis of its interpreter.

It is started by path, under the interpreter of any checkout, so it imports nothing from this one. It reads
a workload and a round from each line of its standard input and replies with a line of JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import platform
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import redis
import redis.asyncio

import bloomredis.asyncio
from bloomredis import BloomFilter, ShardedBloomFilter

SIZE: Final[dict[str, Any]] = {"capacity": 1_000_000, "error_rate": 0.001}
Items = Sequence[str]
Run = Callable[[Items], int]
"""Makes the calls of a round, and returns how many items were new, absent or committed."""


def _slices(items: Items, size: int) -> list[Items]:
    return [items[start : start + size] for start in range(0, len(items), size)]


class Synchronous:
    """Calls of one client."""

    def __init__(self, path: str, tag: str) -> None:
        self._client = redis.Redis(unix_socket_path=path)
        self._one = BloomFilter(self._client, f"{tag} one", **SIZE)
        self._one.create()  # a test creates no filter
        self._sharded = ShardedBloomFilter(self._client, f"{tag} sharded", shards=16, **SIZE)
        self._loaded = f"{tag} loaded"
        self._threads = ThreadPoolExecutor(16)

    def add(self, items: Items) -> int:
        """Add items one by one."""
        add = self._one.add
        return sum([add(item) for item in items])

    def contains(self, items: Items) -> int:
        """Test absent items."""
        contains = self._one.contains
        return len(items) - sum([contains(item) for item in items])

    def batches(self, size: int, *, sharded: bool = False) -> Run:
        """Return a function that adds items in batches."""
        add_many = (self._sharded if sharded else self._one).add_many
        return lambda items: sum([sum(add_many(each)) for each in _slices(items, size)])

    def sharded_add(self, items: Items) -> int:
        """Add items one by one to a sharded filter."""
        add = self._sharded.add
        return sum([add(item) for item in items])

    def claims(self, items: Items) -> int:
        """Claim and commit items one by one."""
        for item in items:
            self._one.claim(item).commit()
        return len(items)

    def threads(self, items: Items) -> int:
        """Add items from 16 threads."""
        return sum(self._threads.map(self.add, [items[first::16] for first in range(16)]))

    def load(self, items: Items) -> int:
        """Load items into an empty filter."""
        self._client.delete(self._loaded)
        filter_ = BloomFilter(self._client, self._loaded, **SIZE)
        filter_.update(items)
        return filter_.info().count

    def dedupe(self, items: Items) -> int:
        """Deduplicate a stream that yields an item a microsecond."""
        return sum([1 for _ in self._one.dedupe(_paced(items, 1e-6))])


class Asynchronous:
    """Calls of one asyncio client in one loop."""

    def __init__(self, path: str, tag: str) -> None:
        self._runner = asyncio.Runner()
        self._client = redis.asyncio.Redis(unix_socket_path=path)
        self._one = bloomredis.asyncio.BloomFilter(self._client, f"{tag} asyncio", **SIZE)
        self._runner.run(self._one.create())
        self._once = self._one.once(None, renew=False)(_nothing)

    def by_tasks(self, count: int, verb: str) -> Run:
        """Return a function that makes a call for each item in that many tasks."""
        call: Callable[[str], Awaitable[Any]] = getattr(self, verb)

        async def work(items: Items) -> int:
            return sum([int(await call(item)) for item in items])

        async def together(items: Items) -> int:
            return sum(await asyncio.gather(*[work(items[first::count]) for first in range(count)]))

        return lambda items: self._runner.run(together(items) if count > 1 else work(items))

    def batches(self, size: int) -> Run:
        """Return a function that adds items in batches."""

        async def work(items: Items) -> int:
            return sum([sum(await self._one.add_many(each)) for each in _slices(items, size)])

        return lambda items: self._runner.run(work(items))

    async def add(self, item: str) -> bool:
        """Add an item."""
        return await self._one.add(item)

    async def contains(self, item: str) -> bool:
        """Test an absent item."""
        return not await self._one.contains(item)

    async def claim(self, item: str) -> bool:
        """Claim and commit an item."""
        await (await self._one.claim(item)).commit()
        return True

    async def once(self, item: str) -> bool:
        """Run a function once for an item."""
        return await self._once(item) is True


def _paced(items: Items, seconds: float) -> Iterator[str]:
    """Yield items at a pace; one that is late comes at once."""
    due = time.perf_counter()
    for item in items:
        due += seconds
        while time.perf_counter() < due:
            pass
        yield item


async def _nothing(_: str) -> bool:
    return True


def workloads(path: str, tag: str) -> dict[str, Run]:
    """Return the function of each workload."""
    sync, tasks = Synchronous(path, tag), Asynchronous(path, tag)
    return {
        "add": sync.add,
        "contains": sync.contains,
        "add_many of 10": sync.batches(10),
        "add_many of 1,000": sync.batches(1_000),
        "16 threads": sync.threads,
        "sharded add": sync.sharded_add,
        "sharded add_many of 100": sync.batches(100, sharded=True),
        "claim and commit": sync.claims,
        "asyncio add": tasks.by_tasks(1, "add"),
        "asyncio contains": tasks.by_tasks(1, "contains"),
        "asyncio add_many of 10": tasks.batches(10),
        "8 tasks": tasks.by_tasks(8, "add"),
        "64 tasks": tasks.by_tasks(64, "add"),
        "256 tasks": tasks.by_tasks(256, "add"),
        "asyncio claim and commit": tasks.by_tasks(1, "claim"),
        "64 tasks in once": tasks.by_tasks(64, "once"),
        "load of 100,000": sync.load,
        "dedupe of an item a µs": sync.dedupe,
    }


COUNTS: Final = {
    "add": 1_000,
    "contains": 1_000,
    "add_many of 10": 2_000,
    "add_many of 1,000": 20_000,
    "16 threads": 4_000,
    "sharded add": 1_000,
    "sharded add_many of 100": 5_000,
    "claim and commit": 500,
    "asyncio add": 1_000,
    "asyncio contains": 1_000,
    "asyncio add_many of 10": 2_000,
    "8 tasks": 4_000,
    "64 tasks": 8_000,
    "256 tasks": 12_800,
    "asyncio claim and commit": 500,
    "64 tasks in once": 1_280,
    "load of 100,000": 100_000,
    "dedupe of an item a µs": 20_000,
}
"""The number of items in a round, by workload."""


def main(path: str, tag: str) -> None:
    """Run rounds until the standard input ends; the keys begin with `tag`."""
    runs = workloads(path, tag)
    _reply(
        python=platform.python_version(), redis=redis.__version__, path=str(Path(bloomredis.__file__).parent)
    )
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        workload, round_ = json.loads(line)
        begin = list(COUNTS).index(workload)
        items = [f"{begin}-{round_:05}-{i:014}" for i in range(COUNTS[workload])]
        _reply(**_timed(runs[workload], items))


def _timed(run: Run, items: Items) -> dict[str, float]:
    gc.collect()
    cpu, begin = time.process_time(), time.perf_counter()
    new = run(items)
    wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
    return {"wall": wall / len(items), "client": cpu / len(items), "new": new / len(items)}


def _reply(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
