"""Sharded filters: clients that arrive during another client's call."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from bloomredis import ShardedBloomFilter
from tests.support.dying import Died, MortalClient
from tests.support.servers import Server, binaries, running
from tests.support.sharding import OPTIONS
from tests.support.values import for_each


@for_each("commands", range(3))
def test_who_comes_while_clear_makes_the_filter_misses_nothing(any_server: Server, commands: int) -> None:
    """After a `clear` that died, whoever opens the filter completes its creation."""
    with running(binaries()["valkey-9"]) as second:
        mortal: Any = MortalClient(second.client(), commands)
        with suppress(Died):
            ShardedBloomFilter([any_server.client(), mortal], "made", **OPTIONS).clear()
        f = ShardedBloomFilter([any_server.client(), second.client()], "made", **OPTIONS)
        assert f.add("x") is True
