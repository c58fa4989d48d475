"""Sharded filters: what a late reply says."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from bloomredis import FilterLostError, ShardedBloomFilter
from tests.support.clock import Clock
from tests.support.dying import MortalClient
from tests.support.sharding import OPTIONS


def test_a_late_look_at_the_record_is_an_old_one(any_client: redis.Redis, clock: Clock) -> None:
    """What an object knows of the record is as old as its question, not as the answer."""
    late: Any = Late(any_client, clock)
    f = ShardedBloomFilter(late, "seen", **OPTIONS)
    f.add("x")
    clock.advance(1)
    late.seconds = 2
    assert f.add("x") is False
    any_client.delete("seen")
    late.seconds = 0
    with pytest.raises(FilterLostError):
        f.add("x")


class Late(MortalClient):
    """A client whose replies take some seconds."""

    seconds = 0

    def __init__(self, client: redis.Redis, clock: Clock) -> None:
        super().__init__(client, -1)
        self._clock = clock

    def _live(self) -> None:
        self._clock.advance(self.seconds)
