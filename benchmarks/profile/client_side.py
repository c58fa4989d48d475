"""Client-side profile of a batch with `local_cache`, and of asyncio tasks that share round trips."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import numpy as np

import bloomredis.asyncio
from benchmarks.profile.calls import Recorded, stages_table
from benchmarks.profile.raw import seconds
from benchmarks.runner.bench import Bench
from benchmarks.runner.counters import Counters
from benchmarks.sides.peer import CAPACITY, RATE
from benchmarks.workloads.items import strings
from bloomredis.bits import batch, encoding, hashing
from bloomredis.bits.bitmap import Bits

_BATCH: Final = 1_000
_UNKNOWN: Final = np.arange(0, _BATCH, 20)
_CALLS: Final = 50


def cached(bench: Bench, _: Counters) -> Iterator[str]:
    """Profile a batch with `local_cache` in which 5% of the items are new."""
    items, layout = strings("cached", 0, _BATCH), Recorded(bench, "cached").layout
    bits, hashed = Bits(layout), batch.hashed(layout, items)
    asked = hashed.take(_UNKNOWN)
    stages: dict[str, Callable[[], object]] = {
        "encode the items": lambda: encoding.encode_all(items),
        "hash them": lambda: hashing.digests(items),
        "hash them, and compute their bit addresses": lambda: layout.hashed(items),
        "the same as bytes and masks of a copy": lambda: batch.hashed(layout, items),
        "look them up": lambda: hashed.addresses.missing(bits.array),
        "select those to send": lambda: hashed.take(_UNKNOWN),
        "pack those": asked.probes.packed,
        "set their bits in the copy": lambda: asked.addresses.set(bits.array),
    }
    yield "### A batch of 1,000 with local_cache, 50 of them new: of the whole batch"
    yield stages_table({name: seconds(stage, 100) for name, stage in stages.items()})


def tasks(bench: Bench, _: Counters) -> Iterator[str]:
    """Profile tasks that add one item a call: client CPU time for an item."""
    yield "### Tasks, one new item a call: client CPU of an item"
    ours = bloomredis.asyncio.BloomFilter(
        bench.aio, "tasks", capacity=CAPACITY, error_rate=RATE, layout=bench.layout
    )
    calls: dict[str, Callable[[str], Awaitable[Any]]] = {
        "add()": ours.add,
        "lower bound: a future each, all woken together": _LowerBound().wait,
    }
    stages = {
        f"{number} task{'s' * (number > 1)}: {what}": min(
            _cpu(bench, call, number, round_) for round_ in range(15)
        )
        for number in (1, 8, 64, 256)
        for what, call in calls.items()
    }
    yield stages_table(stages)


def _cpu(bench: Bench, call: Callable[[str], Awaitable[Any]], number: int, round_: int) -> float:
    items = strings(f"task{number}-", round_, number * _CALLS)

    async def work(share: list[str]) -> None:
        for item in share:
            await call(item)

    async def together() -> float:
        begin = time.process_time()
        await asyncio.gather(*(work(items[first::number]) for first in range(number)))
        return time.process_time() - begin

    return bench.runner.run(together()) / len(items)


class _LowerBound:
    """The least cost of sharing: a task sleeps, and is woken with the others in the loop's next iteration."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[bool]] = []

    async def wait(self, _: str) -> bool:
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._wake)
        future: asyncio.Future[bool] = loop.create_future()
        self._waiting.append(future)
        return await future

    def _wake(self) -> None:
        woken, self._waiting = self._waiting, []
        for future in woken:
            future.set_result(True)
