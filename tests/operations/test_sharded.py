"""A sharded filter answers as one filter."""

from __future__ import annotations

import math
import pickle
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

import bloomredis.asyncio
from bloomredis import (
    BatchInterruptedError,
    BloomFilter,
    FilterMismatchError,
    FilterNotFoundError,
    OutcomeUnknownError,
    ShardedBloomFilter,
)
from bloomredis.stored.shards import record as shard_record
from tests.support.losing import losing
from tests.support.retries import retrying
from tests.support.servers import Server
from tests.support.sharding import ITEMS, OPTIONS, shard_keys
from tests.support.values import for_each


@for_each(
    ("options", "error", "seen"),
    [
        ({"shards": 0}, ValueError, "1 to 4096, not 0"),
        ({"shards": 4097}, ValueError, "4097"),
        ({"shards": True}, TypeError, "True"),
        ({"shards": 2.0}, TypeError, "float 2.0"),
        ({"seed": 0}, ValueError, "not 0"),
        ({"seed": 1 << 32}, ValueError, "4294967296"),
        ({"layout": "fancy"}, ValueError, "fancy"),
        ({"capacity": 10**12, "shards": 16}, ValueError, "with 16 shards"),
        ({"capacity": 10**16}, ValueError, "4096 shards"),
        ({"error_rate": None}, ValueError, "error_rate is missing"),
        ({"ttl": 0}, ValueError, "not 0"),
        ({"on_lost": "ignore"}, ValueError, "ignore"),
    ],
)
def test_bad_parameters(options: dict[str, Any], error: type[Exception], seen: str) -> None:
    """The error names the value, before any I/O."""
    with pytest.raises(error, match=seen):
        ShardedBloomFilter(redis.Redis(port=1), "f", **{**OPTIONS, **options})


def test_bad_names_and_clients() -> None:
    """A name must not end the hash tags; there must be one client, of the right kind."""
    with pytest.raises(ValueError, match="must not contain '}'"):
        ShardedBloomFilter(redis.Redis(), "{a}b", **OPTIONS)
    for clients in ([], [redis.Redis()], (redis.Redis(), redis.Redis())):
        with pytest.raises(TypeError, match=r"takes one client, not a (list|tuple); .* redis\+cluster://"):
            ShardedBloomFilter(clients, "f", **OPTIONS)  # type: ignore[arg-type]  # the point
    with pytest.raises(TypeError, match=r"asyncio\.ShardedBloomFilter"):
        ShardedBloomFilter(redis.asyncio.Redis(), "f", **OPTIONS)  # type: ignore[arg-type]  # the point
    with pytest.raises(TypeError, match=r"bloomredis\.ShardedBloomFilter"):
        bloomredis.asyncio.ShardedBloomFilter(redis.Redis(), "f", **OPTIONS)  # type: ignore[arg-type]  # the point


def test_same_answers_as_a_set(bloom: Any, client: redis.Redis) -> None:
    """Single calls and batches, with repeats, answer as a set of the added items would."""
    dice, known = random.Random(1), set[str]()
    f = bloom.sharded(client, "seen", **OPTIONS)
    for _ in range(30):
        batch = [f"item-{dice.randrange(300)}" for _ in range(dice.randrange(1, 40))]
        assert f.contains_many(batch) == [item in known for item in batch]
        expected = [item not in known and item not in batch[:i] for i, item in enumerate(batch)]
        assert f.add_many(batch) == expected
        known.update(batch)
        item = f"item-{dice.randrange(300)}"
        assert (item in f, f.add(item)) == (item in known, item not in known)
        known.add(item)
    assert f.info().count == len(known)


def test_the_estimate_is_that_of_the_bits(bloom: Any, client: redis.Redis) -> None:
    """The estimate uses the bits of all shards: a count that is too low does not change it."""
    f = bloom.sharded(client, "seen", **OPTIONS)
    f.update(range(5000))
    for key in shard_keys(client):
        client.setrange(key, 56, bytes(8))
    info = f.info()
    assert info.count == 0
    assert info.approximate_count == pytest.approx(5000, rel=0.05)


def test_a_load_beside_an_acknowledgement(any_client: redis.Redis) -> None:
    """A load in another thread on the object sends each batch once, and its items are counted."""
    f: Any = ShardedBloomFilter(any_client, "seen", capacity=100_000, error_rate=1e-6, shards=2)
    is_over = threading.Event()

    def acknowledge() -> None:
        while not is_over.is_set():
            f.acknowledge()

    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(acknowledge)
        try:
            assert f.update(range(100_000)) == 100_000
        finally:
            is_over.set()
        beside.result()
    assert f.info().count == pytest.approx(100_000, rel=0.001)


def test_all_calls(bloom: Any, client: redis.Redis) -> None:
    """Dedupe, load, claims, pipelines, info and clear act on all shards."""
    f = bloom.sharded(client, "seen", **OPTIONS)
    assert list(f.dedupe([1, 2, 2, 3])) == [1, 2, 3]
    assert f.update(range(5000)) == 5000
    assert f.info().count == 5000
    assert f.info().approximate_count == pytest.approx(5000, rel=0.05)
    claim = f.claim("claimed")
    bloom.wait(claim.commit())
    assert [each.state for each in f.claim_many(["x", "claimed", "x", "y"])] == [
        "claimed",
        "done",
        "claimed",
        "claimed",
    ]
    pipe = client.pipeline()
    for item in ("q", "q", "r"):
        f.queue_add(pipe, item)
    f.queue_contains(pipe, "r")
    f.queue_contains(pipe, "absent")
    if bloom.__class__.__name__ == "Sync":
        assert pipe.execute() == [1, 0, 1, 1, 0]
    f.clear()
    assert f.info().count == 0
    assert not any(f.contains_many(["claimed", 7]))
    assert {client.strlen(key) for key in shard_keys(client)} == {64}, "the first item makes a shard's bits"


def test_dense_loads_are_segments(client: redis.Redis) -> None:
    """A load that is dense in each shard is counted exactly and found, also when repeated."""
    f = ShardedBloomFilter(client, "seen", capacity=100_000, error_rate=0.001, shards=4)
    for _ in range(2):
        assert f.update(range(60_000)) == 60_000
        assert f.info().count == pytest.approx(60_000, rel=0.001)
    assert all(f.contains_many(range(60_000)))


def test_info_is_of_the_whole(bloom: Any, client: redis.Redis) -> None:
    """It has the configured capacity and rate, the bits of all shards, and the stored size."""
    f = bloom.sharded(client, "seen", **OPTIONS, ttl=100)
    f.create()
    before = f.info()
    assert (before.capacity, before.error_rate, before.count) == (10_000, 1e-6, 0)
    assert before.size_bytes == client.strlen("seen") + 16 * 64
    f.add_many(ITEMS)
    after = f.info()
    assert after.count == 400
    assert after.num_bits == before.num_bits == 16 * shard_record.plan_record(10_000, 1e-6).head.num_bits
    assert after.size_bytes == sum(client.strlen(key) for key in ["seen", *shard_keys(client)])
    assert after.generation == before.generation
    assert 90 < after.ttl <= 100


def test_the_rate_is_the_configured_one(any_server: Server) -> None:
    """At capacity the rate is at most the configured one, within chance."""
    with any_server.client() as client:
        f = ShardedBloomFilter(client, "seen", capacity=20_000, error_rate=0.02)
        f.update(range(20_000))
        wrong = sum(f.contains_many([f"absent-{i}" for i in range(50_000)]))
    assert wrong <= 1000 + 5 * math.sqrt(1000)
    assert wrong > 400  # nor far below it at the cost of memory


def test_open_reads_everything(bloom: Any, client: redis.Redis) -> None:
    """Shards, seed and layout are found; a missing filter cannot be opened."""
    with pytest.raises(FilterNotFoundError):
        bloom.open(client, "seen", "ShardedBloomFilter")
    f = bloom.sharded(client, "seen", **OPTIONS, shards=5, seed=77, layout="classic")
    f.add_many(ITEMS)
    g = bloom.open(client, "seen", "ShardedBloomFilter")
    assert not any(g.add_many(ITEMS))
    assert g.info() == f.info()
    assert bloom.sharded(client, "seen", **OPTIONS).contains_many(ITEMS) == [True] * 400


@for_each(
    "other",
    [{"shards": 6}, {"seed": 78}, {"capacity": 9999}, {"error_rate": 1e-5}, {"layout": "blocked"}],
)
def test_other_parameters_are_refused(bloom: Any, any_client: redis.Redis, other: dict[str, Any]) -> None:
    """No item is touched, and the message has both values."""
    stored = {**OPTIONS, "shards": 5, "seed": 77, "layout": "classic"}
    bloom.sharded(any_client, "seen", **stored).add("a")
    with pytest.raises(FilterMismatchError) as caught:
        bloom.sharded(any_client, "seen", **stored | other).add("b")
    (field,) = other
    assert str(stored[field]) in str(caught.value)
    assert str(other[field]) in str(caught.value)
    assert bloom.sharded(any_client, "seen", **stored).info().count == 1


def test_other_kinds_are_refused(bloom: Any, client: redis.Redis) -> None:
    """A plain filter is not sharded, nor the reverse; the message names the class to use."""
    bloom.sharded(client, "seen", **OPTIONS).add("a")
    for options in ({}, OPTIONS):
        with pytest.raises(FilterMismatchError, match="ShardedBloomFilter"):
            bloom(client, "seen", **options).add("b")
    bloom(client, "plain", **OPTIONS).add("a")
    for options in ({}, OPTIONS):
        with pytest.raises(FilterMismatchError, match="open it with BloomFilter"):
            bloom.sharded(client, "plain", **options).add("b")
    client.set("text", "x" * 200)
    client.rpush("list", "x")
    for name in ("text", "list"):
        with pytest.raises(FilterMismatchError):
            bloom.sharded(client, name, **OPTIONS).add("b")


def test_a_shard_is_a_plain_filter(client: redis.Redis) -> None:
    """`BloomFilter.open` reads a shard by its key."""
    f = ShardedBloomFilter(client, "seen", **OPTIONS)
    f.add_many(ITEMS)
    assert sum(BloomFilter.open(client, key).info().count for key in shard_keys(client)) == 400


def test_pickles(any_client: redis.Redis) -> None:
    """A copy works once it has a client."""
    f = ShardedBloomFilter(any_client, "seen", **OPTIONS)
    f.add_many(ITEMS)
    copy = pickle.loads(pickle.dumps(f))  # noqa: S301 - its own pickle
    with pytest.raises(RuntimeError, match="with_client"):
        copy.add("x")
    assert copy.with_client(any_client).add_many(["x", *ITEMS]) == [True] + [False] * 400


def test_a_filter_made_anew_with_other_shards(bloom: Any, client: redis.Redis) -> None:
    """An object without parameters raises the loss, and then uses the new filter."""
    bloom.sharded(client, "seen", **OPTIONS).add_many(ITEMS)
    f = bloom.open(client, "seen", "ShardedBloomFilter")
    assert all(f.contains_many(ITEMS))
    g = bloom.sharded(client, "seen", **OPTIONS, shards=3)
    with pytest.raises(FilterMismatchError, match="shards 16, not 3"):
        g.add("a")
    f.delete()
    assert all(g.add_many(ITEMS))
    assert not any(f.add_many(ITEMS))


@for_each("way", ["one by one", "in batches"])
def test_lost_replies_change_no_answer(any_server: Server, way: str) -> None:
    """One reply in twenty is lost after execution, also while shards are created."""
    with losing(any_server.socket, 0.05) as proxy:
        with redis.Redis(port=proxy.port, protocol=2, **retrying(20)) as client:
            f = ShardedBloomFilter(client, "seen", **OPTIONS)
            told = [f.add(item) for item in ITEMS] if way == "one by one" else f.add_many(ITEMS)
            assert told == [True] * 400
            f.clear()
            assert all(f.add_many(ITEMS))
            assert not any(f.add_many(ITEMS))
        assert proxy.lost


def test_a_token_answers_as_its_call_would_have(bloom: Any, server: Server) -> None:
    """Any object gets the answer by token; a batch without enough replicas loses no answer either."""
    with server.client() as client:
        f = bloom.sharded(client, "seen", **OPTIONS)
        f.add_many(ITEMS)
        waiting = bloom.sharded(client, "seen", **OPTIONS, min_replicas=1, replica_timeout=0.01)
        with pytest.raises(OutcomeUnknownError) as unknown:
            waiting.add("e")
        assert f.add("e", token=unknown.value.token)
        assert not f.add("e")
        with pytest.raises(BatchInterruptedError) as interrupted:
            waiting.add_many(["g", "h", "i"])
        assert interrupted.value.rest == ["g", "h", "i"]


def test_replies_may_be_decoded(any_server: Server) -> None:
    """A client with decode_responses works too."""
    with any_server.client(decode_responses=True) as client:
        f = ShardedBloomFilter(client, "seen", **OPTIONS)
        assert f.add_many(["a", "b", "a"]) == [True, True, False]
        assert ShardedBloomFilter.open(client, "seen").info().count == 2
