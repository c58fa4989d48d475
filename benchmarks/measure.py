"""How a ratio is measured: both sides in turns, many short rounds, on the same server and client."""

from __future__ import annotations

import asyncio
import platform
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import version

import redis

ROUNDS = 15


@dataclass(frozen=True)
class Ratio:
    """How two ways of doing the same compare: medians over the rounds, in microseconds an operation."""

    what: str
    ours: float
    theirs: float
    wanted: str
    faster: bool  # whether the ratio says how much faster we are, or how much more we cost

    def __str__(self) -> str:
        ratio = self.theirs / self.ours if self.faster else self.ours / self.theirs
        return f"{self.what:<58} {self.ours:8.2f} {self.theirs:8.2f} {ratio:6.2f}x   {self.wanted}"


HEADING = f"{'microseconds an operation (median)':<58} {'ours':>8} {'theirs':>8} {'ratio':>7}   wanted"


def compare(
    what: str,
    ours: Callable[[int], int],
    theirs: Callable[[int], int],
    *,
    wanted: str,
    faster: bool = False,
    rounds: int = ROUNDS,
) -> Ratio:
    """Run both sides in turns; each is given the number of the round and returns its operations."""
    times: tuple[list[float], list[float]] = ([], [])
    for round_ in range(-2, rounds):  # the first two rounds warm up
        for side, kept in zip((ours, theirs), times, strict=True):
            begin = time.perf_counter()
            operations = side(round_)
            if round_ >= 0:
                kept.append((time.perf_counter() - begin) / operations * 1e6)
    return Ratio(what, statistics.median(times[0]), statistics.median(times[1]), wanted, faster)


async def compare_async(
    what: str,
    ours: Callable[[int], Awaitable[int]],
    theirs: Callable[[int], Awaitable[int]],
    *,
    wanted: str,
    faster: bool = False,
) -> Ratio:
    """Do what `compare` does with coroutines."""
    loop = asyncio.get_running_loop()

    def waited(side: Callable[[int], Awaitable[int]]) -> Callable[[int], int]:
        return lambda round_: asyncio.run_coroutine_threadsafe(_as_coroutine(side(round_)), loop).result()

    return await asyncio.to_thread(compare, what, waited(ours), waited(theirs), wanted=wanted, faster=faster)


async def _as_coroutine(awaitable: Awaitable[int]) -> int:
    return await awaitable


def versions(client: redis.Redis) -> str:
    """Return a line that says what was measured."""
    info = client.info("server")
    server = (
        f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {info['redis_version']}"
    )
    packages = ", ".join(f"{name} {version(name)}" for name in ("redis", "hiredis", "mmh3", "numpy"))
    return f"{server}, Python {platform.python_version()}, {packages}"
