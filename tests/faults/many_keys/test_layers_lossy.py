"""New layers while replies are lost: one winner for each item."""

from __future__ import annotations

import random
from typing import Any

import pytest

from bloomredis import (
    BatchInterruptedError,
    ConnectionFailedError,
    OutcomeUnknownError,
    RotatingBloomFilter,
    ScalingBloomFilter,
)
from tests.support.losing import losing
from tests.support.racing import race_threads, winners
from tests.support.servers import Server
from tests.support.sizes import long, short
from tests.support.values import for_each

FILTERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "scaling": (ScalingBloomFilter, {"capacity": 20}),
    "rotating": (RotatingBloomFilter, {"capacity": 100, "window": 3600}),
    "rotating, in many slices": (RotatingBloomFilter, {"capacity": 3000, "window": 20, "slices": 60}),
}


def add_all(f: Any, items: list[str], worker: int) -> list[bool]:
    """Add every item in a random order, in batches of any size, until each has an answer."""
    dice = random.Random(worker)
    order = random.Random(worker).sample(range(len(items)), len(items))
    told = [False] * len(items)
    while order:
        cut = dice.choice([1, 1, 2, 5, 40])
        places, order = order[:cut], order[cut:]
        while places:
            try:
                some = f.add_many([items[place] for place in places])
            except BatchInterruptedError as stopped:
                some = stopped.results
            except (ConnectionFailedError, OutcomeUnknownError):
                some = []
            for place, new in zip(places, some, strict=False):
                told[place] = new
            places = places[len(some) :]
    return told


@for_each("kind", FILTERS)
@pytest.mark.parametrize("count", [short(150), long(700)])
def test_one_winner_however_many_replies_are_lost(any_server: Server, kind: str, count: int) -> None:
    """Six threads have one winner for each item, though each client loses every seventh reply."""
    cls, own = FILTERS[kind]
    items = [f"item-{number}" for number in range(count)]
    with losing(any_server.socket, 0.15) as proxy:
        filters = [cls(proxy.client(retries=1), "seen", error_rate=1e-9, **own) for _ in range(6)]
        told = race_threads(lambda worker: add_all(filters[worker], items, worker), 6)
        assert proxy.lost > 10
    assert winners(told, items) == {1: count}
