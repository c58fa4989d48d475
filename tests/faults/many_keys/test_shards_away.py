"""Batches over shards of which some are on a server that is away: no answer is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
import redis
import redis.asyncio

import bloomredis.asyncio
from bloomredis import BatchInterruptedError, BloomError, ShardedBloomFilter
from tests.support.servers import Server
from tests.support.sharding import ITEMS, OPTIONS
from tests.support.shards_away import AsyncShardsAway, ShardsAway, shard_of
from tests.support.values import for_each

HALF = range(8)
"""The shards of one of two servers."""


def test_a_batch_that_is_interrupted_again_and_again(any_client: redis.Redis) -> None:
    """An answer known from the first attempt is returned whenever its item gets an answer."""
    client: Any = ShardsAway(any_client)
    f = ShardedBloomFilter(client, "seen", **OPTIONS)
    f.add_many(ITEMS)
    fresh = {shard_of(item): item for item in map(str, range(1000, 1200))}
    batch = [fresh[1], fresh[0], fresh[2]]
    told: list[bool] = []
    for away in ([1, 2], [2], []):
        client.away = away
        try:
            told += f.add_many(batch[len(told) :])
        except BatchInterruptedError as error:
            told += error.results
    assert told == [True] * 3
    assert f.add_many(batch) == [False] * 3


def test_an_interrupted_batch_hands_out_a_claim_once(any_client: redis.Redis) -> None:
    """An item of the rest is busy if a claim so far has an equal item, else it is claimed."""
    client: Any = ShardsAway(any_client)
    f = ShardedBloomFilter(client, "seen", **OPTIONS)
    f.add_many(ITEMS)
    fresh = [str(i) for i in range(1000, 1100)]
    first, later = [each for each in fresh if shard_of(each) not in HALF][:2]
    away = next(each for each in fresh if shard_of(each) in HALF)
    client.away.update(HALF)
    with pytest.raises(BatchInterruptedError) as caught:
        f.claim_many([first, away, first, later])
    client.away.clear()
    assert [claim.state for claim in caught.value.results] == ["claimed"]
    assert caught.value.rest == [away, first, later]
    assert [claim.state for claim in f.claim_many(caught.value.rest)] == ["claimed", "busy", "claimed"]


@for_each("count", [5_000, 40_000])
def test_a_load_that_is_interrupted(any_client: redis.Redis, count: int) -> None:
    """A few items are kept for a retry; of many, the error says how many are in."""
    client: Any = ShardsAway(any_client)
    f = ShardedBloomFilter(client, f"load-{count}", **{**OPTIONS, "capacity": 100_000})
    items = [f"{i}" for i in range(count)]
    f.add_many(items[:500])
    client.away.update(HALF)
    with pytest.raises(BloomError) as caught:
        f.update(iter(items))
    client.away.clear()
    if isinstance(caught.value, BatchInterruptedError):
        assert caught.value.results == []
        known = caught.value.done
        assert f.contains_many(items[:known]) == [True] * known
    if isinstance(caught.value, BatchInterruptedError) and caught.value.rest:
        assert 0 < len(caught.value.rest) < count
        f.update(caught.value.rest)
    else:
        f.update(items)
    assert all(f.contains_many(items))


class Failing(ShardsAway):
    """A client that raises an error in place of one of the commands about a shard.

    :ivar errors: for a shard an error, and the number of the command.
    """

    def __init__(self, client: redis.Redis) -> None:
        super().__init__(client)
        self.errors: dict[int, tuple[BaseException, int]] = {}
        self._sent = Counter[int]()

    def error_of(self, command: Any) -> Exception | None:
        for number, (error, at) in self.errors.items():
            if b":%d:" % number in command[3]:
                self._sent[number] += 1
                if self._sent[number] == at:
                    if isinstance(error, Exception):
                        return error
                    raise error
        return None


def test_claims_of_a_shard_that_stopped_before_an_interrupt(any_client: redis.Redis) -> None:
    """A retry also gets the claims that were made on a shard before its server stopped."""
    client: Any = Failing(any_client)
    f = ShardedBloomFilter(client, "seen", **{**OPTIONS, "shards": 2})
    items = [f"claim-{i}" for i in range(1600)]
    f.add_many(ITEMS)
    f.release_many(f.claim_many(items[:20]))
    client.errors = {0: (redis.ConnectionError("gone"), 2), 1: (KeyboardInterrupt(), 3)}
    with pytest.raises(KeyboardInterrupt):
        f.claim_many(items, lease=3600)
    assert Counter(claim.state for claim in f.claim_many(items)) == {"claimed": 1600}


def test_a_server_that_stops_interrupts_and_loses_nothing(bloom: Any, any_client: redis.Redis) -> None:
    """The answers of the other shards are returned when the rest is retried."""
    client = ShardsAway(any_client)
    f = bloom.sharded(client, "seen", **OPTIONS)
    assert all(f.add_many(ITEMS[:100]))
    client.away.update(HALF)
    with pytest.raises(BatchInterruptedError) as caught:
        f.add_many(ITEMS)
    client.away.clear()
    told = [*caught.value.results, *f.add_many(caught.value.rest)]
    assert told == [False] * 100 + [True] * 300
    assert f.add_many(ITEMS) == [False] * 400
    client.away.update(HALF)
    with pytest.raises(BatchInterruptedError) as claimed:
        f.claim_many([f"c{i}" for i in range(50)])
    client.away.clear()
    states = [claim.state for claim in (*claimed.value.results, *f.claim_many(claimed.value.rest))]
    assert states == ["claimed"] * 50


def test_a_server_that_stops_fails_only_its_own_callers(any_server: Server) -> None:
    """Tasks that share round trips get answers from the other shards; the rest is new once it is back."""

    async def main() -> None:
        async with redis.asyncio.Redis(unix_socket_path=any_server.socket) as own:
            client: Any = AsyncShardsAway(own)
            f = bloomredis.asyncio.ShardedBloomFilter(client, "seen", **OPTIONS)
            assert all(await asyncio.gather(*map(f.add, ITEMS[:50])))
            client.away.update(HALF)
            told = await asyncio.gather(*map(f.add, ITEMS[50:]), return_exceptions=True)
            left = [i for i, each in zip(ITEMS[50:], told, strict=True) if isinstance(each, BloomError)]
            assert left == [i for i in ITEMS[50:] if shard_of(i) in HALF]
            assert {each for each in told if isinstance(each, bool)} == {True}
            client.away.clear()
            assert all(await asyncio.gather(*map(f.add, left)))

    asyncio.run(main())


def test_commits_do_not_wait_for_another_server(any_client: redis.Redis) -> None:
    """Not even the first batch, whose first commit goes alone."""
    client: Any = ShardsAway(any_client)
    f = ShardedBloomFilter(client, "seen", **OPTIONS)
    items = sorted(ITEMS[:40], key=lambda item: shard_of(item) not in HALF)
    claims = f.claim_many(items, lease=3)
    client.away.update(HALF)
    with pytest.raises(BatchInterruptedError):
        f.commit_many(claims)
    done = Counter(claim.state for claim in claims)["done"]
    assert done == sum(shard_of(item) not in HALF for item in items)
    assert 0 < done < 40


@pytest.mark.long
def test_a_server_that_is_away_during_a_large_batch(any_client: redis.Redis) -> None:
    """Every item of the batch is reported new once: in the error's answers, or on retry of the rest."""
    count, client = 300_000, ShardsAway(any_client)
    f = ShardedBloomFilter[Any](client, "seen", capacity=count, error_rate=1e-6)  # type: ignore[arg-type]  # like a client
    f.add_many([f"warm-{i}" for i in range(200)])
    client.away.update(HALF)
    with pytest.raises(BatchInterruptedError) as caught:
        f.add_many([f"item-{i}" for i in range(count)])
    client.away.clear()
    told = [*caught.value.results, *f.add_many(caught.value.rest)]
    assert len(told) == count
    assert told.count(False) <= 3, "false positives; 0.3 are to be expected"
