"""The partitions of the PHP class."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from bloomredis import BatchInterruptedError, BloomFilter, compat
from tests.support.systems import InPipeline
from tests.support.vectors import element, vectors

PARTITIONED = [
    (element(case), case["offsets"], case["key_suffix"])
    for case in vectors("php_bkdr")["extra_v3_partitioned"]
    if max(case["offsets"]) < 1 << 24  # longer items take 256 MB a key
]


def test_phps_partitions_are_shared(bloom: Any, client: redis.Redis) -> None:
    """Each item is in the key that PHP uses for it; items that PHP wrote are found, in batches too."""
    layout = compat.php_bkdr(50_000_000_000, 16, servers=["only"])
    assert len({suffix for _, _, suffix in PARTITIONED}) > 1
    theirs, ours = PARTITIONED[::2], PARTITIONED[1::2]
    for _, offsets, suffix in theirs:
        InPipeline("seen" + suffix).put(client, offsets)
    f = bloom(client, "seen", layout=layout)
    assert all(f.contains_many([item for item, _, _ in theirs]))
    assert not any(f.add_many([item for item, _, _ in theirs]))
    assert any(f.add_many([item for item, _, _ in ours]))
    assert not any(f.add(item) for item, _, _ in ours)
    assert all(InPipeline("seen" + suffix).has(client, offsets) for _, offsets, suffix in PARTITIONED)


def test_phps_v3_as_revised_is_shared(bloom: Any, client: redis.Redis) -> None:
    """PHP's revised v3 is shared on one server or several, with one key on each."""
    cases = [case for case in vectors("php_bkdr_v3")["cases"] if case["num_bits"] < 1 << 24]
    second = bloom_twin(client)
    layout = compat.php_bkdr(1_000_003, 8, ["a", "b", "c"], revised=True)
    f = bloom([client, second, client], "seen", layout=layout)
    assert any(f.add_many([element(case) for case in cases]))
    for case in cases:
        where = second if case["server"] == 1 else client
        assert InPipeline("seen:0").has(where, case["offsets"]), case
    assert not any(f.add_many([element(case) for case in cases]))
    single = bloom(client, "single", layout=compat.php_bkdr(1000, 8, revised=True))
    assert single.add("a")
    assert client.exists("single:0")


def test_all_calls_work_over_partitions(bloom: Any, client: redis.Redis) -> None:
    """Load, claims, pipelines, info, expire, clear and delete act on all keys."""
    layout = compat.php_bkdr(100_003, 8, partitions=5)
    f = bloom(client, "seen", layout=layout)
    assert f.load([f"loaded-{i}" for i in range(50)]) == 50
    claim = f.claim("claimed")
    bloom.wait(claim.commit())
    assert f.contains_many(["claimed", "loaded-7", "neither"]) == [True, True, False]
    assert [bool(claim) for claim in f.claim_many(["x", "y", "x"])] == [True, True, True]
    assert f.info().count == pytest.approx(51, abs=8)
    f.expire(100)
    assert client.pttl("seen.3") > 90_000
    f.clear()
    assert not f.contains("claimed")
    assert f.add("a")
    assert f.delete()
    assert not f.delete()


def test_phps_servers_share_the_items(bloom: Any, client: redis.Redis) -> None:
    """A list of clients is used in the order of the servers; the checksum chooses the server."""
    second = bloom_twin(client)
    layout = compat.php_bkdr(1_000_003, 8, servers=["first", "second"], partitions=3)
    f = BloomFilter([client, second], "seen", layout=layout)
    items = [f"item-{i}" for i in range(60)]
    assert f.add_many([*items, items[0]]) == [True] * 60 + [False]
    for item in items:
        server, suffix = layout.partition(item.encode())
        one = (client, second)[server]
        assert InPipeline("seen" + suffix).has(one, layout.offsets(item))
    assert client.dbsize() > 3
    assert second.dbsize() > 3


def bloom_twin(client: redis.Redis) -> redis.Redis:
    """Return a client of another database of the same server, as a second server."""
    import fakeredis

    other: redis.Redis
    if isinstance(client, fakeredis.FakeRedis):
        other = fakeredis.FakeRedis(server=fakeredis.FakeServer())
    else:
        other = redis.Redis(unix_socket_path=client.connection_pool.connection_kwargs["path"], db=1)
    other.flushdb()
    return other


def test_an_interrupted_batch_over_shards_loses_no_answer(client: redis.Redis) -> None:
    """A retry of an interrupted batch repeats the answers that other shards have given."""
    second = bloom_twin(client)
    layout = compat.php_bkdr(1_000_000, 8, servers=["first", "second"], partitions=2)
    f = BloomFilter([client, second], "seen", layout=layout)
    items = [f"item-{i}" for i in range(40)]
    second.rpush("seen.1", "x")
    with pytest.raises(BatchInterruptedError) as caught:
        f.add_many(items)
    second.delete("seen.1")
    told = [*caught.value.results, *f.add_many(caught.value.rest)]
    assert told == [True] * 40
    assert f.add_many(items) == [False] * 40


def test_the_number_of_clients_has_to_fit() -> None:
    """There must be one client for each server, and a single client for a single server."""
    layout = compat.php_bkdr(1_000_000, 8, servers=["first", "second"])
    for clients in (redis.Redis(), [redis.Redis()], [redis.Redis()] * 3):
        with pytest.raises(ValueError, match="2 servers"):
            BloomFilter(clients, "f", layout=layout)
