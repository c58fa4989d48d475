"""Sharded filters: others who come in the midst of a call, late replies, and forks."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import pytest
import redis

from bloomredis import FilterLostError, ShardedBloomFilter
from tests.support.clock import Clock
from tests.support.dying import Died, MortalClient
from tests.support.servers import Server, binaries, running
from tests.support.sharding import OPTIONS
from tests.support.values import for_each


@for_each("commands", range(3))
def test_who_comes_while_clear_makes_the_filter_misses_nothing(any_server: Server, commands: int) -> None:
    """Where there was no filter, its record is written when the other servers have their copies."""
    with running(binaries()["valkey-9"]) as second:
        mortal: Any = MortalClient(second.client(), commands)
        with suppress(Died):
            ShardedBloomFilter([any_server.client(), mortal], "made", **OPTIONS).clear()
        f = ShardedBloomFilter([any_server.client(), second.client()], "made", **OPTIONS)
        assert f.add("x") is True


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


def test_a_forked_child_looks_at_the_record_itself(any_client: redis.Redis, clock: Clock) -> None:
    """A look of its parent that was under way does not tell the child anything."""
    client: Any = Forking(any_client)
    f = ShardedBloomFilter(client, "seen", **OPTIONS)
    f.add("x")
    clock.advance(1)
    operations: Any = f._operations
    client.stored = operations.stored
    f.add("x")
    assert client.child_looks is True
    assert not client.stored.is_look_due()


class Forking(MortalClient):
    """A client that lets a process be forked in the midst of a round trip."""

    stored: Any = None
    child_looks: bool | None = None

    def __init__(self, client: redis.Redis) -> None:
        super().__init__(client, -1)

    def _live(self) -> None:
        if self.stored is not None and self.child_looks is None:
            pid = os.fork()
            if pid == 0:
                os._exit(self.stored.is_look_due())
            self.child_looks = bool(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
