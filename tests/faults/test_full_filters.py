"""Items of a filter that fills up while replies and requests are lost: each is told to its caller once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

import bloomredis.asyncio
from bloomredis import (
    BatchInterruptedError,
    BloomFilter,
    ConnectionFailedError,
    FilterFullError,
    OutcomeUnknownError,
)
from tests.support.modules import needs_module
from tests.support.proxy import Exchange, Proxy, dropped, lost, passed, proxied
from tests.support.racing import race_threads
from tests.support.servers import Server

CAPACITY = 60
ITEMS = [f"item {number}" for number in range(100)]
OPTIONS: dict[str, Any] = {"capacity": CAPACITY, "error_rate": 1e-9, "on_full": "raise"}


def losing(draw: random.Random) -> Any:
    """Return a fate that loses a twelfth of the replies and a sixteenth of the requests."""

    def fate(exchange: Exchange) -> bool:
        drawn = draw.random()
        return lost(exchange) if drawn < 0.08 else dropped(exchange) if drawn < 0.14 else passed(exchange)

    return fate


async def _adds(f: Any, item: str, wins: Counter[str]) -> None:
    """Add an item until there is an answer."""
    token = None
    while True:
        try:
            is_new = await f.add(item, token=token)
        except FilterFullError:
            return
        except OutcomeUnknownError as error:
            token = error.token
        except ConnectionFailedError:
            pass
        else:
            wins[item] += is_new
            return


async def _adds_many(f: Any, items: Sequence[str], wins: Counter[str]) -> None:
    """Add items until each has an answer; go on behind one that is refused."""
    while items:
        try:
            answers = await f.add_many(items)
        except BatchInterruptedError as error:
            answers = error.results
            behind = error.rest[isinstance(error.__cause__, FilterFullError) :]
        except (ConnectionFailedError, OutcomeUnknownError):
            answers, behind = [], items
        else:
            behind = []
        wins.update(item for item, is_new in zip(items, answers, strict=False) if is_new)
        items = behind


async def _fills(proxy: Proxy, layout: Any, draw: random.Random) -> Counter[str]:
    """Add all items, one by one and in batches, from tasks that share calls."""
    wins: Counter[str] = Counter()
    async with proxy.asyncio_client(retries=draw.randrange(3)) as client:
        f = bloomredis.asyncio.BloomFilter(client, "f", layout=layout, **OPTIONS)
        calls = [_adds(f, item, wins) for item in ITEMS]
        calls += [_adds_many(f, draw.sample(ITEMS, 20), wins) for _ in range(6)]
        draw.shuffle(calls)
        await asyncio.gather(*calls)
    return wins


def _program(proxy: Proxy, layout: Any, seed: int, worker: int) -> list[bool]:
    """Return for each item whether it was new for this program."""
    wins = asyncio.run(_fills(proxy, layout, random.Random(f"{seed} {worker}")))
    assert set(wins.values()) <= {0, 1}
    return [wins[item] > 0 for item in ITEMS]


@pytest.mark.parametrize("layout", ["blocked", "classic", "module"])
def test_tasks_of_a_full_filter_lose_no_answer(any_server: Server, layout: Any) -> None:
    """Three programs fill a filter from tasks that share calls; each item in it was new once."""
    client = any_server.client()
    if layout == "module":
        needs_module(client)
    for seed in range(4):
        client.flushall()
        f = BloomFilter(client, "f", layout=layout, **OPTIONS)
        f.create()
        with proxied(any_server.socket, losing(random.Random(seed))) as proxy:
            told = race_threads(partial(_program, proxy, layout, seed), 3)
        there = f.contains_many(ITEMS)
        assert [sum(wins) for wins in zip(*told, strict=True)] == there, seed
        assert f.info().count == sum(there) == CAPACITY
