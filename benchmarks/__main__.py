"""Print the ratios that the README claims, for each server found: `python -m benchmarks [SERVER…]`."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import redis
import redis.asyncio

import bloomredis.asyncio
from benchmarks.measure import HEADING, Ratio, compare, compare_async, versions
from bloomredis import BloomFilter
from tests.servers import Server, binaries, running

RETURN_1 = "return 1"
LONE = 200
"""One-item calls in a round."""


def main() -> None:
    """Measure on the servers named, or on all found."""
    found = binaries()
    for name in sys.argv[1:] or sorted(found):
        with running(found[name]) as server, server.client() as client:
            print(f"\n{versions(client)}\n{HEADING}")
            for ratio in (*_sync(client), *asyncio.run(_asyncio(server))):
                print(ratio, flush=True)


def _filter(client: redis.Redis, name: str, **options: Any) -> BloomFilter:
    made = BloomFilter(client, name, capacity=1_000_000, error_rate=0.01, **options)
    made.reserve()
    return made


def _sync(client: redis.Redis) -> Iterator[Ratio]:
    safe, unsafe = _filter(client, "safe"), _filter(client, "unsafe", retry_safe=False)
    sha = client.script_load(RETURN_1)

    def evalsha(_: int) -> int:
        for _ in range(LONE):
            client.evalsha(sha, 0)
        return LONE

    yield compare(
        "add() of one new item, against EVALSHA 'return 1'", _adds(safe, "a"), evalsha, wanted="<= 1.35"
    )
    yield compare(
        "add() of one new item, retry_safe or not", _adds(safe, "b"), _adds(unsafe, "b"), wanted="<= 1.10"
    )
    yield compare(
        "add_many() of 1,000, against one pipelined SETBIT a bit",
        _add_many(safe),
        _setbits(client, safe),
        wanted=">= 4",
        faster=True,
    )
    shared, alone = _filter(client, "threads", coalesce=True), _filter(client, "threads", coalesce=False)
    yield compare(
        "16 threads in add(), coalesce or not",
        _in_threads(shared, "c"),
        _in_threads(alone, "d"),
        wanted=">= 4",
        faster=True,
    )


def _adds(f: BloomFilter, prefix: str) -> Callable[[int], int]:
    def side(round_: int) -> int:
        for i in range(LONE):
            f.add(f"{prefix}-{round_}-{i}")
        return LONE

    return side


def _items(round_: int) -> list[str]:
    return [f"{round_:08}-{i:011}" for i in range(1000)]  # 20 characters each


def _add_many(f: BloomFilter) -> Callable[[int], int]:
    return lambda round_: len(f.add_many(_items(round_)))


def _setbits(client: redis.Redis, f: BloomFilter) -> Callable[[int], int]:
    layout = f._operations._stored.opened.layout  # type: ignore[union-attr]  # noqa: SLF001 - it is open, and the same layout is wanted

    def side(round_: int) -> int:
        pipe = client.pipeline(transaction=False)
        for item in _items(round_):
            for offset in layout.offsets(item):
                pipe.setbit("bits", offset, 1)
        replies = pipe.execute()
        return sum(1 for start in range(0, len(replies), layout.num_hashes) if replies[start] in (0, 1))

    return side


def _in_threads(f: BloomFilter, prefix: str, threads: int = 16, calls: int = 50) -> Callable[[int], int]:
    def side(round_: int) -> int:
        def work(worker: int) -> None:
            for i in range(calls):
                f.add(f"{prefix}-{round_}-{worker}-{i}")

        started = [threading.Thread(target=work, args=(worker,)) for worker in range(threads)]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()
        return threads * calls

    return side


async def _asyncio(server: Server) -> list[Ratio]:
    async with redis.asyncio.Redis(unix_socket_path=server.socket, max_connections=1000) as client:
        f = bloomredis.asyncio.BloomFilter(client, "async", capacity=1_000_000, error_rate=0.01)
        sha = await client.script_load(RETURN_1)

        async def evalsha(_: int) -> int:
            for _ in range(LONE):
                await client.evalsha(sha, 0)
            return LONE

        async def adds(round_: int) -> int:
            for i in range(LONE):
                await f.add(f"lone-{round_}-{i}")
            return LONE

        lone = "one task in add(), against EVALSHA 'return 1'"
        ratios = [await compare_async(lone, adds, evalsha, wanted="<= 1.35")]
        for tasks, wanted in ((64, ">= 6"), (256, ">= 9")):
            ratios.append(
                await compare_async(
                    f"{tasks} tasks in add(), against as many in SET",
                    _in_tasks(tasks, f.add),
                    _in_tasks(tasks, lambda item: client.set(item, "1")),
                    wanted=wanted,
                    faster=True,
                )
            )
        return ratios


def _in_tasks(
    tasks: int, call: Callable[[str], Awaitable[Any]], calls: int = 12
) -> Callable[[int], Awaitable[int]]:
    async def side(round_: int) -> int:
        async def work(worker: int) -> None:
            for i in range(calls):
                await call(f"{tasks}-{round_}-{worker}-{i}")

        await asyncio.gather(*(work(worker) for worker in range(tasks)))
        return tasks * calls

    return side


main()
