"""The chain of growing bitmaps, shared with the Java class."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import redis

from bloomredis import BloomFilter, compat
from tests.support.racing import race_threads
from tests.support.servers import Server
from tests.support.systems import Offsets


class Chain:
    """The Java chain: the newest bitmap is written, and followed by another when it is half full."""

    def put(self, client: Any, offsets: Offsets, num_bits: int) -> bool:
        if self.has(client, offsets):
            return False
        cursor = int(client.get("cursor") or 0)
        if client.bitcount(f"bloomfilter-{cursor}") > num_bits / 2:
            cursor = client.incr("cursor")
        for offset in offsets:
            client.setbit(f"bloomfilter-{cursor}", offset, 1)
        return True

    def has(self, client: Any, offsets: Offsets) -> bool:
        cursor = int(client.get("cursor") or 0)
        return any(
            all(client.getbit(f"bloomfilter-{link}", offset) for offset in offsets)
            for link in range(cursor + 1)
        )


CHAIN = compat.redis_bitmaps(200, 0.01)
MANY = [f"item-{i}" for i in range(1000)]


def links(client: Any) -> dict[bytes, int]:
    """Return how many bits each bitmap of the chain has."""
    keys = sorted(key for key in client.keys("bloomfilter-*") if b":receipt:" not in key)
    return {key: client.bitcount(key) for key in keys}


def test_a_chain_is_shared(bloom: Any, client: Any) -> None:
    """In turns the system and we add, past several bitmaps: each reads what the other wrote."""
    f, theirs = bloom(client, "bloomfilter", layout=CHAIN), Chain()
    for start in range(0, 480, 40):
        for item in MANY[start : start + 20]:
            theirs.put(client, CHAIN.offsets(item), CHAIN.num_bits)
        f.add_many(MANY[start + 20 : start + 40])
    assert int(client.get("cursor")) >= 1
    assert all(f.contains_many(MANY[:480]))
    assert all(theirs.has(client, CHAIN.offsets(item)) for item in MANY[:480])


def test_a_chain_grows_as_the_systems_does(client: redis.Redis) -> None:
    """The same items in the same order end in the same bitmaps, one by one and in batches."""
    theirs = Chain()
    for item in MANY[:600]:
        theirs.put(client, CHAIN.offsets(item), CHAIN.num_bits)
    expected = links(client), client.get("cursor")
    assert len(expected[0]) > 1
    for size in (1, 140):
        client.flushall()
        f = BloomFilter(client, "bloomfilter", layout=CHAIN)
        for start in range(0, 600, size):
            f.add_many(MANY[start : min(start + size, 600)])
        assert (links(client), client.get("cursor")) == expected


def test_a_chain_has_one_winner_for_each_item(server: Server) -> None:
    """However many writers reach the limit at once; no bitmap is skipped or begun twice."""

    def work(worker: int) -> list[bool]:
        f = BloomFilter(server.client(), "bloomfilter", layout=CHAIN)
        if worker % 2:
            return [f.add(item) for item in MANY]
        return [
            answer for start in range(0, len(MANY), 50) for answer in f.add_many(MANY[start : start + 50])
        ]

    told = race_threads(work, 4)
    assert Counter(sum(answers) for answers in zip(*told, strict=True))[1] > 0.97 * len(MANY)
    assert max(sum(answers) for answers in zip(*told, strict=True)) == 1
    with server.client() as client:
        sizes = list(links(client).values())
        assert int(client.get("cursor")) == len(sizes) - 1
        assert all(CHAIN.num_bits / 2 < size <= CHAIN.num_bits / 2 + CHAIN.num_hashes for size in sizes[:-1])


def test_a_bitmap_of_the_chain_is_full_past_one_half(client: redis.Redis) -> None:
    """Half of the bits are not more than half."""
    client.set("bloomfilter-0", b"\xff" * (CHAIN.num_bits // 16))
    f = BloomFilter(client, "bloomfilter", layout=CHAIN)
    assert f.add_many(["first"]) == [True]
    assert not client.exists("cursor")
    assert f.add_many(["second"]) == [True]
    assert client.get("cursor") == b"1"


def test_a_load_into_a_chain_grows_it(bloom: Any, client: redis.Redis) -> None:
    """A batch that would be dense in one bitmap goes probe by probe; no copy is taken of several."""
    f = bloom(client, "bloomfilter", layout=CHAIN)
    assert f.load(MANY) == len(MANY)
    assert all(f.contains_many(MANY))
    assert len(links(client)) > 2
    with pytest.raises(TypeError, match="several bitmaps"):
        f.snapshot()


@pytest.mark.parametrize("layout", [CHAIN, compat.php_bkdr(1000, 3, partitions=2)])
def test_no_local_cache_of_other_systems_bitmaps(layout: Any) -> None:
    """Nothing would say that the filter was lost, and the copy answered for it."""
    with pytest.raises(ValueError, match="cannot be noticed"):
        BloomFilter(redis.Redis(), "f", layout=layout, local_cache=True)


def test_claims_and_pipelines_on_a_chain(bloom: Any, client: redis.Redis) -> None:
    """A commit lets it grow, with a claim from before; info and delete act on all bitmaps."""
    f, other = (bloom(client, "bloomfilter", layout=CHAIN) for _ in range(2))
    early = f.claim("early")
    other.add_many(MANY[:500])
    bloom.wait(early.commit())
    assert other.contains("early")
    info = f.info()
    assert info.count == pytest.approx(501, rel=0.05)
    assert info.num_bits == CHAIN.num_bits * len(links(client))
    f.expire(100)
    assert client.pttl("cursor") > 90_000
    assert f.delete()
    assert not f.delete()
    assert not client.exists("cursor", *links(client))
    assert f.add("early")
