"""Filters shared with other systems."""

from __future__ import annotations

import inspect
import pickle
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
import redis

from bloomredis import BloomFilter, FilterMismatchError, OutcomeUnknownError, compat
from tests.support.losing import LosingClient
from tests.support.racing import race_threads
from tests.support.servers import Server
from tests.support.systems import SYSTEMS, System
from tests.support.values import for_each


@pytest.fixture(params=SYSTEMS)
def system(request: pytest.FixtureRequest) -> System:
    """Each system in turn."""
    return SYSTEMS[request.param]


def test_what_the_system_wrote_is_read(bloom: Any, client: redis.Redis, system: System) -> None:
    """Items that the system wrote are found, one by one and in batches; other items are new."""
    cases = system.cases()
    theirs, ours = cases[::2], cases[1::2]
    for _, offsets in theirs:
        system.stand_in.put(client, offsets)
    f = bloom(client, "seen", layout=system.layout())
    assert f.contains_many([item for item, _ in theirs]) == [True] * len(theirs)
    assert all(f.contains(item) for item, _ in theirs)
    assert not any(f.add_many([item for item, _ in theirs]))
    expected = [system.stand_in.has(client, offsets) for _, offsets in ours]
    assert f.contains_many([item for item, _ in ours]) == expected
    assert not all(expected)


def test_the_system_reads_what_was_written(bloom: Any, client: redis.Redis, system: System) -> None:
    """The system reads items written by add, add_many, a claim, a caller's pipeline, and load."""
    cases = system.cases()
    f = bloom(client, "seen", layout=system.layout())
    items = [item for item, _ in cases]
    f.add(items[0])
    f.add_many(items[1:8])
    claim = f.claim(items[8])
    bloom.wait(claim.commit())
    f.update(items[9:15])
    for item, offsets in cases[:15]:
        assert system.stand_in.has(client, offsets), item
    f.add_many(items)
    assert all(system.stand_in.has(client, offsets) for _, offsets in cases)
    expected = {offset for _, offsets in cases for offset in offsets}
    assert client.bitcount(system.stand_in.key) == len(expected)


def test_a_pipeline_of_the_callers(server: Server, system: System) -> None:
    """In a caller's pipeline the result is 1 or 0, and the system reads what was written."""
    with server.client() as client:
        (first, one), (second, two), *_ = system.cases()
        f = BloomFilter(client, "seen", layout=system.layout())
        pipe = client.pipeline()
        f.queue_add(pipe, first)
        f.queue_add(pipe, first)
        f.queue_contains(pipe, second)
        assert pipe.execute() == [1, 0, 0]
        assert system.stand_in.has(client, one)
        assert not system.stand_in.has(client, two)


def test_one_of_many_is_told_that_an_item_is_new(server: Server, system: System) -> None:
    """However many threads add an item at once, one is told that it is new."""
    items = list(dict.fromkeys(item for item, _ in system.cases()))

    def work(_: int) -> list[bool]:
        f = BloomFilter(server.client(), "seen", layout=system.layout())
        return [f.add(item) for item in items]

    wins = Counter(sum(answers) for answers in zip(*race_threads(work, 6), strict=True))
    assert wins[1] == wins.total() - wins[0]
    assert wins[0] <= len(items) // 10  # equal once encoded, or a false positive


SMALL = {
    "go_zero": compat.go_zero(60_000),
    "jedis": compat.jedis(10_000, 0.001),
    "redis_template": compat.redis_template(10_000, 0.001),
    "php_bkdr": compat.php_bkdr(35_000, 16),
    "redisson": compat.redisson(3000, 0.03),
}


def test_expire_before_the_first_item(bloom: Any, client: redis.Redis) -> None:
    """It holds for each key that an item creates later, of every layout."""
    layouts = [*SMALL.values(), compat.redis_bitmaps(50, 0.01)]
    for at, layout in enumerate(layouts):
        f = bloom(client, f"expiring-{at}", layout=layout)
        f.expire(100)
        assert not f.contains("item-0")
        assert sum(f.add_many([f"item-{i}" for i in range(200)])) > 190
        assert f.contains("item-0")
        assert all(0 < client.pttl(key) <= 100_000 for key in client.keys("*") if b":receipt:" not in key)
        client.flushall()


@for_each("layout", SMALL.values())
def test_info_and_the_rest(bloom: Any, client: redis.Redis, layout: Any) -> None:
    """`info` has everything that is known without a header; expire, clear and delete act on all keys."""
    f = bloom(client, "seen", layout=layout)
    f.create()
    assert (f.info().count, f.info().created_at, f.info().generation) == (0, None, "")
    f.add_many([f"item-{i}" for i in range(300)])
    info = f.info()
    assert (info.layout, info.num_bits, info.num_hashes) == (layout.name, layout.num_bits, layout.num_hashes)
    assert info.count == info.approximate_count == pytest.approx(300, rel=0.1)
    assert f.snapshot().contains("item-0")
    f.expire(100)
    assert all(client.pttl(key) > 90_000 for key in client.keys("*") if b":receipt:" not in key)
    f.clear()
    assert not f.contains("item-0")
    f.add("item-0")
    assert f.delete()
    assert not f.delete()
    assert not [key for key in client.keys("*") if b":receipt:" not in key]


@for_each(
    "layout",
    [SMALL["jedis"], SMALL["redisson"], compat.redis_bitmaps(1000, 0.01)],
)
def test_what_is_in_doubt_ends_when_the_filter_is_cleared(any_client: redis.Redis, layout: Any) -> None:
    """After a clear, an item whose reply was lost is added again, not only reported as new."""
    losing: Any = LosingClient(any_client)
    f = BloomFilter(losing, "seen", layout=layout)
    f.add("another")
    losing.lose = ["lost"]
    with pytest.raises(OutcomeUnknownError):
        f.add("a")
    f.clear()
    assert f.add("a")
    assert f.contains("a")


def test_a_key_of_another_type_is_refused(bloom: Any, client: redis.Redis, system: System) -> None:
    """A key of another type is refused at the first use, and left as it is."""
    client.rpush(system.stand_in.key, "x")
    f = bloom(client, "seen", layout=system.layout())
    for call in (lambda: f.add("a"), lambda: f.contains("a"), f.info, f.delete):
        with pytest.raises(FilterMismatchError):
            call()
    assert client.lrange(system.stand_in.key, 0, -1) == [b"x"]


@for_each(("make", "prefix"), [(compat.jedis, "bf:"), (compat.redis_template, "")])
def test_each_insert_renews_the_ttl(bloom: Any, client: redis.Redis, make: Any, prefix: str) -> None:
    """With insert_ttl every insert renews the ttl, even of a known item; else it counts from creation."""
    f = bloom(client, "seen", layout=make(10_000, 0.001, insert_ttl=100))
    g = bloom(client, "fixed", layout=make(10_000, 0.001), ttl=100)
    seen, fixed = f"{prefix}seen", f"{prefix}fixed"
    for each, key in ((f, seen), (g, fixed)):
        each.add("a")
        assert 99_000 < client.pttl(key) <= 100_000
        client.pexpire(key, 50_000)
        each.contains("a")
        assert client.pttl(key) <= 50_000
        each.add("a")
    assert client.pttl(seen) > 99_000
    g.add("b")
    assert client.pttl(fixed) <= 50_000


def test_a_pickled_filter_renews_the_ttl(client: redis.Redis) -> None:
    """Its inserts renew the ttl, as those of the original do."""
    f = BloomFilter(client, "seen", layout=compat.jedis(1000, 0.01, insert_ttl=timedelta(seconds=100)))
    f.add("a")
    client.persist("bf:seen")
    assert not pickle.loads(pickle.dumps(f)).with_client(client).add("a")  # noqa: S301 - its own pickle
    assert 99_000 < client.pttl("bf:seen") <= 100_000


@for_each(
    ("options", "wrong"),
    [
        ({"on_lost": "recreate"}, "on_lost"),
        ({"capacity": 5}, "capacity 1000, not 5"),
        ({"error_rate": 0.5}, "error_rate 0.01, not 0.5"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], wrong: str) -> None:
    """Contradicting options are refused before any I/O."""
    with pytest.raises(ValueError, match=wrong):
        BloomFilter(redis.Redis(), "f", layout=compat.jedis(1000, 0.01), **options)


@for_each("make", [compat.jedis, compat.redis_template])
def test_an_insert_ttl_takes_no_ttl(make: Any) -> None:
    """A time to live counts from the last insert, or from creation, but not from both."""
    with pytest.raises(ValueError, match=r"insert_ttl=5, .* and ttl counts from creation; omit one"):
        BloomFilter(redis.Redis(), "f", layout=make(1000, 0.01, insert_ttl=5), ttl=10)


@for_each("layout", [5, 1.5, object(), compat])
def test_a_bad_layout_is_refused(layout: Any) -> None:
    """The error of a bad layout has the value given."""
    with pytest.raises(TypeError, match=r"bloomredis\.compat, not"):
        BloomFilter(redis.Redis(), "f", layout=layout)


def test_redissons_config_is_created(bloom: Any, client: redis.Redis) -> None:
    """Redisson's config is created like tryInit does, and only if it is missing."""
    bloom(client, "seen", layout=compat.redisson(3000, 0.03)).add("a")
    config = client.hgetall("{seen}:config")
    assert config == {
        b"size": b"21895",
        b"hashIterations": b"5",
        b"expectedInsertions": b"3000",
        b"falseProbability": b"0.03",
    }
    client.hset("{seen}:config", "expectedInsertions", "2999")
    bloom(client, "seen", layout=compat.redisson(3000, 0.03)).add("b")
    assert client.hget("{seen}:config", "expectedInsertions") == b"2999"


def test_another_config_of_redissons_is_refused(bloom: Any, client: redis.Redis) -> None:
    """The error gives both configs, and no bit is set."""
    client.hset("{seen}:config", mapping={"size": "7", "hashIterations": "5"})
    f = bloom(client, "seen", layout=compat.redisson(3000, 0.03))
    with pytest.raises(FilterMismatchError, match="size 7, not 21895"):
        f.add("a")
    with pytest.raises(FilterMismatchError):
        f.add("a")
    assert not client.exists("seen")


def test_every_layout_is_documented() -> None:
    """Every public layout has a docstring."""
    for name in compat.__all__:
        assert inspect.getdoc(getattr(compat, name))
