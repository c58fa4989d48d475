"""Sharded filters: clients that arrive during another client's call."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from bloomredis import ShardedBloomFilter
from tests.support.dying import Died, MortalClient
from tests.support.servers import Server
from tests.support.sharding import ITEMS, OPTIONS
from tests.support.values import for_each


@for_each("commands", range(1, 5))
def test_who_comes_while_clear_makes_the_filter_misses_nothing(any_server: Server, commands: int) -> None:
    """After a `clear` that died, whoever opens the filter completes its creation."""
    with any_server.client() as client:
        client.flushall()
        mortal: Any = MortalClient(client, commands)
        with suppress(Died):
            ShardedBloomFilter(mortal, "made", **OPTIONS).clear()
        f = ShardedBloomFilter(client, "made", **OPTIONS)
        assert f.add_many(ITEMS) == [True] * len(ITEMS)
