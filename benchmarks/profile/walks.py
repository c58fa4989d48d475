"""Functions and files that one call passes through: `python -m benchmarks.profile.walks`.

`sys.setprofile` records a walk in the calling thread. A function of the package counts each time it is
called; a generator or coroutine counts once, when it first runs, however often it is resumed. Lambdas
count, and comprehensions do where the interpreter calls them as functions (before Python 3.12).

`files` are the distinct files of these calls. `changes` are the pairs of consecutive calls in different
files; returns do not count. The figures do not depend on the speed of the machine.

All filters are open before their walk, and the adds are warm: the server has their scripts. The first
`update` is the first one on its server, so its walk includes the repetition after NOSCRIPT.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, Self

import redis
import redis.asyncio

import bloomredis.asyncio
from bloomredis import BloomFilter, ShardedBloomFilter, connect

PACKAGE: Final = str(Path(bloomredis.__file__).parent)
SIZE: Final[dict[str, Any]] = {"capacity": 100_000, "error_rate": 0.01}

TARGETS: Final = {
    "constructor": {"calls": 47},
    "add": {"calls": 19, "files": 12},
    "asyncio add": {"calls": 28, "files": 14},
    "sharded add": {"calls": 31, "files": 16},
    "load of 1,000": {"changes": 47},  # 46 before the pools were a file of their own
    "claim": {"calls": 30},  # 28 before a claim was renewed by default
    "commit": {"calls": 28},
    "asyncio claim": {"calls": 42},
    "asyncio commit": {"calls": 42},
}
"""Figures of each walk when its target was set; a test allows 30% more."""


@dataclass
class Walk:
    """The functions of the package that a call passed, in order."""

    steps: list[CodeType] = field(default_factory=list)
    _frames: set[FrameType] = field(default_factory=set)  # kept alive: no id is used twice

    def __enter__(self) -> Self:
        gc.disable()  # a collection is no part of the call
        sys.setprofile(self._record)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        gc.enable()
        self._frames.clear()

    def _record(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame not in self._frames and _is_ours(frame.f_code.co_filename):
            self._frames.add(frame)
            self.steps.append(frame.f_code)

    @property
    def figures(self) -> dict[str, int]:
        """The numbers of calls, of distinct files, and of changes of file."""
        files = [step.co_filename for step in self.steps]
        changes = sum(file != following for file, following in pairwise(files))
        return {"calls": len(files), "files": len(set(files)), "changes": changes}

    def __str__(self) -> str:
        return "\n".join(f"    {_short(step.co_filename)}: {step.co_name}" for step in self.steps)


def walks() -> dict[str, Walk]:
    """Record each call once, on a private embedded server, and return the walks by name."""
    with connect("embedded://") as client:
        _load(client, 999)  # imports numpy
        client.script_flush()
        return {
            "load of 1,000": _load(client, 1_000),  # first: the server does not have its scripts
            "load of 20,000": _load(client, 20_000),
            "constructor": _construct(client),
            "add": _add(BloomFilter(client, "one", **SIZE)),
            "sharded add": _add(ShardedBloomFilter(client, "sharded", **SIZE)),
            "asyncio add": asyncio.run(_asyncio_add(client)),
            **_claim(BloomFilter(client, "claims", **SIZE)),
            **asyncio.run(_asyncio_claim(client)),
        }


def _add(filter_: BloomFilter | ShardedBloomFilter) -> Walk:
    filter_.add_many(f"warm-{i}" for i in range(1_000))  # opens every shard
    for i in range(100):
        filter_.add(f"warm too-{i}")
    with Walk() as walk:
        assert filter_.add("new")
    return walk


def _construct(client: redis.Redis) -> Walk:
    first = BloomFilter(client, "first", **SIZE)
    with Walk() as walk:
        assert BloomFilter(client, "second", **SIZE).name != first.name
    return walk


def _load(client: redis.Redis, count: int) -> Walk:
    filter_ = BloomFilter(client, f"load-{count}", **SIZE)
    filter_.add("opens the filter")
    with Walk() as walk:
        filter_.update(f"item-{i}" for i in range(count))
    return walk


def _claim(filter_: BloomFilter) -> dict[str, Walk]:
    for i in range(100):
        filter_.claim(f"warm-{i}").commit()
    with Walk() as made:
        claim = filter_.claim("new")
    with Walk() as committed:
        claim.commit()
    assert claim.state == "done"
    return {"claim": made, "commit": committed}


async def _asyncio_claim(client: redis.Redis) -> dict[str, Walk]:
    path = client.connection_pool.connection_kwargs["path"]
    async with redis.asyncio.Redis(unix_socket_path=path) as other:
        filter_ = bloomredis.asyncio.BloomFilter(other, "asyncio claims", **SIZE)
        for i in range(100):
            await (await filter_.claim(f"warm-{i}")).commit()
        with Walk() as made:
            claim = await filter_.claim("new")
        with Walk() as committed:
            await claim.commit()
        assert claim.state == "done"
        return {"asyncio claim": made, "asyncio commit": committed}


async def _asyncio_add(client: redis.Redis) -> Walk:
    path = client.connection_pool.connection_kwargs["path"]
    async with redis.asyncio.Redis(unix_socket_path=path) as other:
        filter_ = bloomredis.asyncio.BloomFilter(other, "asyncio", **SIZE)
        for i in range(100):
            await filter_.add(f"warm-{i}")
        with Walk() as walk:
            assert await filter_.add("new")
        return walk


def table(found: dict[str, Walk]) -> Iterator[str]:
    """Yield the lines of a table of the walks, with targets in brackets."""
    yield f"{'':<16}" + "".join(f"{figure:>14}" for figure in ("calls", "files", "changes"))
    for name, walk in found.items():
        limits = TARGETS.get(name, {})
        cells = (
            f"{value} (<= {limits[figure]})" if figure in limits else str(value)
            for figure, value in walk.figures.items()
        )
        yield f"{name:<16}" + "".join(f"{cell:>14}" for cell in cells)


def main() -> None:
    """Print the table; with `-v` also the functions of each walk, in order."""
    found = walks()
    for line in table(found):
        print(line)
    if "-v" in sys.argv[1:]:
        for name, walk in found.items():
            print(f"\n{name}\n{walk}")


def _is_ours(path: str) -> bool:
    return path.startswith(PACKAGE + os.sep)


def _short(path: str) -> str:
    return str(Path(path).relative_to(PACKAGE))


if __name__ == "__main__":
    main()
