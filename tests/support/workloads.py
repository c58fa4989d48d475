"""Ways to add items over failing connections, and a program that runs one with any redis-py.

`python -m tests.support.workloads WAY NAME PORT WORKERS COUNT` prints the answers as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import redis
import redis.asyncio

import bloomredis.asyncio
from bloomredis import BatchInterruptedError, BloomFilter, ConnectionFailedError, OutcomeUnknownError
from bloomredis.stored import planning
from tests.support.inside import inside

TASKS = 32
SIZE: dict[str, Any] = {"capacity": 50_000, "error_rate": 1e-9}
PLAIN = """
local new = 0
for i = 1, #ARGV do
  if redis.call('SETBIT', KEYS[1], ARGV[i], 1) == 0 then new = 1 end
end
return new
"""

Answers = list[bool]
Errors = Counter[str]
"""Errors by class name that a way met; any other error ends it."""


def items_of(count: int) -> list[str]:
    """Return the items to add."""
    return [f"https://example.org/{i}" for i in range(count)]


def opened(client: redis.Redis, name: str, errors: Errors) -> BloomFilter:
    """Return the opened filter; a connection lost before that leaves nothing pending."""
    f = BloomFilter(client, name, **SIZE)
    while True:
        try:
            f.create()
        except ConnectionFailedError as error:
            errors[type(error).__name__] += 1
        else:
            return f


def one_by_one(client: redis.Redis, name: str, items: Sequence[str], errors: Errors) -> Answers:
    """Add items; if the outcome is unknown retry, alternately with the token and without."""
    f = opened(client, name, errors)
    told = []
    for number, item in enumerate(items):
        token = None
        while True:
            try:
                told.append(f.add(item, token=token))
                break
            except OutcomeUnknownError as error:
                errors[type(error).__name__] += 1
                token = error.token if number % 2 else None
    return told


def in_batches(client: redis.Redis, name: str, items: Sequence[str], errors: Errors) -> Answers:
    """Add items in batches of 100; if a batch is interrupted continue with its rest."""
    f = opened(client, name, errors)
    told: Answers = []
    for start in range(0, len(items), 100):
        rest: Sequence[str] = items[start : start + 100]
        while rest:
            try:
                told += f.add_many(rest)
                rest = ()
            except BatchInterruptedError as error:
                errors[type(error).__name__] += 1
                told += error.results
                rest = error.rest
    return told


async def in_tasks(client: redis.asyncio.Redis, name: str, items: Sequence[str], errors: Errors) -> Answers:
    """Add items from 32 tasks that share batches; retry as `one_by_one` does."""
    f = bloomredis.asyncio.BloomFilter(client, name, **SIZE)
    operations: Any = inside(f)
    while not operations.stored.handle:
        try:
            await f.create()
        except ConnectionFailedError as error:
            errors[type(error).__name__] += 1

    async def work(items: Sequence[str]) -> Answers:
        return [await add(number, item) for number, item in enumerate(items)]

    async def add(number: int, item: str) -> bool:
        token = None
        while True:
            try:
                return await f.add(item, token=token)
            except OutcomeUnknownError as error:
                errors[type(error).__name__] += 1
                token = error.token if number % 2 else None

    told = await asyncio.gather(*(work(items[worker::TASKS]) for worker in range(TASKS)))
    return [answer for answers in told for answer in answers]


def without_tokens(client: redis.Redis, name: str, items: Sequence[str], errors: Errors) -> Answers:
    """Check and set with a script without receipts; retry if the connection fails."""
    layout = planning.plan_layout("classic", **SIZE)
    script = client.register_script(PLAIN)
    told = []
    for item in items:
        while True:
            try:
                told.append(bool(script(keys=[name], args=layout.offsets(item))))
                break
            except redis.ConnectionError as error:
                errors[type(error).__name__] += 1
    return told


Way = Callable[[redis.Redis, str, Sequence[str], Errors], Answers]
WAYS: dict[str, Way] = {way.__name__: way for way in (one_by_one, in_batches, without_tokens)}


def _in_threads(way: Way, name: str, port: int, shares: Sequence[Sequence[str]], errors: Errors) -> Answers:
    def work(share: Sequence[str]) -> Answers:
        with redis.Redis(port=port) as client:
            return way(client, name, share, errors)

    with ThreadPoolExecutor(len(shares)) as pool:
        return [answer for answers in pool.map(work, shares) for answer in answers]


async def _in_a_loop(name: str, port: int, every: Sequence[str], errors: Errors) -> Answers:
    client = redis.asyncio.Redis(port=port)
    try:
        return await in_tasks(client, name, every, errors)
    finally:
        await client.connection_pool.disconnect()


def _report(way: str, name: str, port: str, workers: str, count: str) -> dict[str, Any]:
    errors: Errors = Counter()
    every = items_of(int(count))
    shares = [every[worker :: int(workers)] for worker in range(int(workers))]
    if way == in_tasks.__name__:
        told = asyncio.run(_in_a_loop(name, int(port), every, errors))
    else:
        told = _in_threads(WAYS[way], name, int(port), shares, errors)
    return {"version": redis.__version__, "told": Counter(map(str, told)), "errors": errors}


if __name__ == "__main__":
    print(json.dumps(_report(*sys.argv[1:])))  # noqa: T201 - the program's output
