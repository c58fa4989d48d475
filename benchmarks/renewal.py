"""Cost of renewal: claims and their commits with it and without, in turns, and 100,000 renewed claims."""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import Any, Final

import redis
import redis.asyncio

import bloomredis.asyncio
from bloomredis import BloomFilter
from tests.support.servers import Server, binaries, running

SIZE: Final[dict[str, Any]] = {"capacity": 10_000_000, "error_rate": 0.001}
TASKS: Final = 64

Round = Callable[[int, bool], Awaitable[None]]
"""Makes so many claims and commits, with or without renewal."""


def main() -> None:
    """Measure on one server, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server", nargs="?", default=min(binaries()), choices=sorted(binaries()))
    parser.add_argument("--rounds", type=int, default=201, help="rounds of each, of which the median counts")
    parser.add_argument("--claims", type=int, default=64, help="claims of a round")
    parser.add_argument("--held", type=int, default=100_000, help="claims that are renewed at the same time")
    options = parser.parse_args()
    with running(binaries()[options.server]) as server:
        print(f"{options.server}; load {', '.join(f'{each:.1f}' for each in os.getloadavg())}")
        asyncio.run(_compared(server, options.rounds, options.claims))
        if options.held:
            _held(server, options.held)


async def _compared(server: Server, rounds: int, claims: int) -> None:
    async with redis.asyncio.Redis(unix_socket_path=server.socket) as client:
        for name, one in _kinds(server, client).items():
            await one(claims, True)
            await one(claims, False)
            wall: dict[bool, list[float]] = {True: [], False: []}
            cpu: dict[bool, list[float]] = {True: [], False: []}
            for number in range(rounds):
                for renew in (True, False) if number % 2 else (False, True):
                    began = time.perf_counter(), time.process_time()
                    await one(claims, renew)
                    wall[renew].append(time.perf_counter() - began[0])
                    cpu[renew].append(time.process_time() - began[1])
            print(f"{name:16} {_line('wall', wall, claims)}   {_line('CPU', cpu, claims)}", flush=True)


def _line(what: str, seconds: dict[bool, list[float]], claims: int) -> str:
    own, without = (statistics.median(seconds[renew]) / claims * 1e6 for renew in (True, False))
    ratios = [a / b for a, b in zip(seconds[True], seconds[False], strict=True)]
    return f"{what} {own:6.1f} µs, without renewal {without:6.1f}, ratio {statistics.median(ratios):.3f}"


def _kinds(server: Server, client: Any) -> dict[str, Round]:
    numbers = count()
    seen = BloomFilter(server.client(), "sync", **SIZE)
    pages = bloomredis.asyncio.BloomFilter(client, "asyncio", **SIZE)

    async def sync(claims: int, renew: bool) -> None:  # noqa: FBT001 - in turns
        for number in _next(numbers, claims):
            with seen.claim(number, renew=renew) as claim:
                assert claim

    async def lone(claims: int, renew: bool) -> None:  # noqa: FBT001 - in turns
        for number in _next(numbers, claims):
            async with pages.claim(number, renew=renew) as claim:
                assert claim

    async def tasks(claims: int, renew: bool) -> None:  # noqa: FBT001 - in turns
        async def work() -> None:
            for number in _next(numbers, claims // TASKS):
                async with pages.claim(number, renew=renew) as claim:
                    assert claim

        await asyncio.gather(*(work() for _ in range(TASKS)))

    return {"one thread": sync, "one task": lone, f"{TASKS} tasks": tasks}


def _next(numbers: Iterator[int], claims: int) -> list[int]:
    return [next(numbers) for _ in range(claims)]


def _held(server: Server, held: int) -> None:
    """Hold claims for two leases; print the CPU time of both sides for one renewal of each."""
    with server.client() as client:
        seen = BloomFilter(client, "held", **SIZE)
        lease = 30
        claims = [seen.claim(f"held {i}", lease=lease, renew=True) for i in range(held)]
        time.sleep(lease / 3)  # all have been renewed
        began = time.perf_counter(), time.process_time(), _server(client)
        time.sleep(lease)
        wall, own, theirs = time.perf_counter() - began[0], time.process_time() - began[1], _server(client)
        calls, cpu, extend = (after - before for after, before in zip(theirs, began[2], strict=True))
        lost = sum(claim.lost for claim in claims)
        print(
            f"{held} claims renewed for {wall:.0f} s, {lost} lost: client {own / wall:.1%} of a CPU, "
            f"server {cpu / wall:.1%}, {extend / 1e4 / wall:.2f}% in {calls / wall:.1f} scripts a second"
        )


def _server(client: redis.Redis) -> tuple[float, float, float]:
    """Return the number of script calls of a server, its CPU seconds, and the microseconds in scripts."""
    stats: Any = client.info("commandstats")["cmdstat_evalsha"]
    cpu: Any = client.info("cpu")
    return stats["calls"], cpu["used_cpu_sys"] + cpu["used_cpu_user"], stats["usec"]


if __name__ == "__main__":
    main()
