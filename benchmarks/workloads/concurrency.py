"""Workloads of many concurrent callers: asyncio tasks, and threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import bloomredis.asyncio
from benchmarks.runner.bench import Bench
from benchmarks.runner.measure import Answers, Side, Workload
from benchmarks.sides.ours import Ours, OursByModule
from benchmarks.sides.peer import CAPACITY, RATE
from benchmarks.sides.redisbloom import RedisBloom
from benchmarks.sides.valbloom import Valbloom
from benchmarks.workloads import checks
from benchmarks.workloads.items import strings
from benchmarks.workloads.single import RETURN_1, WRAPPED

THREADS: Final = "16 threads, one new item a call"
SET: Final = "SET, redis.asyncio"


def tasks_of(number: int) -> str:
    """Return the name of the workload."""
    return f"{number} asyncio task{'s' * (number > 1)}, one new item a call"


def workloads(*, quick: bool) -> Iterator[Workload]:
    """Yield the workloads."""
    for number, calls in ((1, 200), (8, 200), (64, 100), (256, 40)):
        yield Workload(
            name=tasks_of(number),
            items=partial(_items, count=number * (calls // 4 if quick else calls)),
            sides=partial(_task_sides, number=number),
            separate_cpus=number == 1,
            rounds=3 if quick else 15,
        )
    yield Workload(
        name=THREADS,
        items=partial(_items, count=16 * (20 if quick else 100)),
        sides=_thread_sides,
        rounds=3 if quick else 15,
    )


def _items(round_: int, *, count: int) -> list[str]:
    return strings("tasks", round_, count)


def _task_sides(bench: Bench, *, number: int) -> Iterator[Side]:
    aio, new = bench.aio, checks.mostly_new(RATE)
    ours = bloomredis.asyncio.BloomFilter(
        aio, Ours.name, capacity=CAPACITY, error_rate=RATE, layout=bench.layout
    )
    yield Side(name=Ours.name, run=by_tasks(bench, number, ours.add), check=new)
    if RedisBloom.missing(bench) is None:
        by_module = bloomredis.asyncio.BloomFilter(
            aio, OursByModule.name, capacity=CAPACITY, error_rate=RATE, layout="module"
        )
        yield Side(name=OursByModule.name, run=by_tasks(bench, number, by_module.add), check=new)
        key = RedisBloom(bench).key
        add = partial(aio.execute_command, "BF.ADD", key)
        yield Side(name=RedisBloom.name, run=by_tasks(bench, number, add), check=new)
    if Valbloom.missing(bench) is None and not (bench.quick and number > 8):
        valbloom = Valbloom(bench)
        yield Side(name=Valbloom.name, run=by_tasks(bench, number, valbloom.add), check=new)
    set_it = partial(_set, bench)
    yield Side(name=SET, run=by_tasks(bench, number, set_it), check=checks.all_there)
    if number == 1:
        sha = bench.client.script_load("return 1")
        yield Side(
            name=RETURN_1,
            run=by_tasks(bench, number, lambda _: aio.evalsha(sha, 0)),
            check=checks.all_there,
        )


async def _set(bench: Bench, item: str) -> Any:
    return await bench.aio.set(item, "1")


def by_tasks(
    bench: Bench, number: int, call: Callable[[str], Awaitable[Any]]
) -> Callable[[Sequence[str]], Answers]:
    """Return a function that shares items among that many tasks, each with one call at a time."""

    async def work(items: Sequence[str]) -> list[Any]:
        return [await call(item) for item in items]

    async def together(items: Sequence[str]) -> list[Any]:
        shares = await asyncio.gather(*(work(items[first::number]) for first in range(number)))
        return [answer for share in shares for answer in share]

    return lambda items: bench.runner.run(together(items))


def _thread_sides(bench: Bench) -> Iterator[Side]:
    new = checks.mostly_new(RATE)
    for name, options in ((Ours.name, {}), (WRAPPED, {"client": bench.wrapped_client()})):
        ours = Ours(bench, suffix=name, **options)
        yield Side(name=name, run=partial(_by_threads, 16, ours.add_each), check=new)
    if RedisBloom.missing(bench) is None:
        native = RedisBloom(bench)
        yield Side(name=native.name, run=partial(_by_threads, 16, native.add_each), check=new)


def _by_threads(number: int, call: Callable[[Sequence[str]], Sequence[Any]], items: Sequence[str]) -> Answers:
    answers: list[Any] = []

    def work(share: Sequence[str]) -> None:
        answers.extend(call(share))

    threads = [threading.Thread(target=work, args=(items[first::number],)) for first in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers
