"""Rare cases: late claims, similar names, older copies, damaged strings, chosen items."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, cast

import mmh3
import pytest
import redis
from redis.crc import key_slot

import bloomredis
from bloomredis import BloomError, BloomFilter, FilterLostError, FilterMismatchError, ServerRefusedError
from bloomredis.protocol.keys import auxiliary_prefix
from tests.support.collisions import collision
from tests.support.inside import inside
from tests.support.keys import beside
from tests.support.proxy import LateCopy, Proxy
from tests.support.servers import Server
from tests.support.values import for_each

SIZE: dict[str, Any] = {"capacity": 1000, "error_rate": 1e-6}


@pytest.fixture
def late() -> LateCopy:
    """A copy of a request that the network delays while the client retries it."""
    return LateCopy()


def lease_of(client: redis.Redis) -> int:
    """Return the milliseconds left of the only claim's lease."""
    (claim,) = beside(client, "claim")
    return int(client.pttl(claim))


@pytest.mark.parametrize("verb", ["claim", "extend"])
def test_a_late_copy_never_shortens_a_lease(
    server: Server, proxy: Proxy, bloom: Any, late: LateCopy, verb: str
) -> None:
    """A claim of 2 s that was extended to 600 s keeps the 600 s."""
    f = bloom(proxy.client(retries=1), "seen", **SIZE)
    bloom_wait = getattr(bloom, "wait", lambda answer: answer)
    warm = f.claim("warm")
    bloom_wait(warm.extend(60))
    bloom_wait(warm.commit())
    proxy.plan(verb, late)
    claim = f.claim("x", lease=2)
    if verb == "extend":
        bloom_wait(claim.extend(3))
    bloom_wait(claim.extend(600))
    with server.client() as client:
        late.arrive()
        assert lease_of(client) > 500_000
        assert BloomFilter(client, "seen").claim("x").state == "busy"
    bloom_wait(claim.commit())
    assert claim.state == "done"


def test_late_copies_of_a_batch_never_shorten_a_lease(
    any_proxy: Proxy, any_client: redis.Redis, late: LateCopy
) -> None:
    """The same holds for claims made in a batch."""
    f = BloomFilter(any_proxy.client(retries=1), "seen", **SIZE)
    f.claim("warm").commit()
    any_proxy.plan("claim", late)
    for claim in f.claim_many(["x", "y"], lease=2):
        claim.extend(600)
    late.arrive()
    assert all(any_client.pttl(claim) > 500_000 for claim in beside(any_client, "claim"))


def test_a_late_copy_of_a_claim_of_a_committed_item(
    any_proxy: Proxy, any_client: redis.Redis, late: LateCopy
) -> None:
    """The item is done, and stays done."""
    f = BloomFilter(any_proxy.client(retries=1), "seen", **SIZE)
    f.claim("warm").commit()
    any_proxy.plan("claim", late)
    f.claim("x", lease=60).commit()
    late.arrive()
    assert beside(any_client, "claim") == []
    assert BloomFilter(any_client, "seen").claim("x").state == "done"


def test_a_late_copy_of_a_claim_of_a_released_item(
    any_proxy: Proxy, any_client: redis.Redis, late: LateCopy
) -> None:
    """The item is free, and stays free."""
    f = BloomFilter(any_proxy.client(retries=1), "seen", **SIZE)
    f.claim("warm").release()
    any_proxy.plan("claim", late)
    f.claim("x", lease=60).release()
    late.arrive()
    assert BloomFilter(any_client, "seen").claim("x").state == "claimed"


NAMES = ["n", "{n}", "{n}:", "{n}::", "n:", "{n", "{{n}}", "a{n}", "{n}:receipt:", "{{n}:}"]


def _beside(name: str) -> list[bytes]:
    prefix = auxiliary_prefix(name.encode())
    return [prefix + rest for rest in (b"receipt:0123456789abcdef-0", b"claim:" + b"0" * 32, b"layer:0")]


def test_no_two_names_share_keys() -> None:
    """No key beside a filter belongs to another filter, and all lie in the filter's slot."""
    keys = [key for name in NAMES for key in (name.encode(), *_beside(name))]
    assert len(set(keys)) == len(keys)
    for name in NAMES:
        assert {key_slot(key) for key in _beside(name)} == {key_slot(name.encode())}, name


def test_names_that_resemble_each_other_claim_for_themselves(client: redis.Redis, bloom: Any) -> None:
    """Each of several filters holds, and commits, the same item."""
    filters = [BloomFilter(client, name, **SIZE) for name in NAMES]
    claims = [f.claim("job", lease=60) for f in filters]
    assert [claim.state for claim in claims] == ["claimed"] * len(NAMES)
    for claim in claims:
        claim.commit()
    assert [f.add("job") for f in filters] == [False] * len(NAMES)


def _renamed(client: redis.Redis) -> Callable[[], object]:
    client.copy("seen", "older")
    return lambda: client.rename("older", "seen")


def _restored(client: redis.Redis) -> Callable[[], object]:
    dump: Any = client.dump("seen")
    return lambda: client.restore("seen", 0, dump, replace=True)


@for_each("keep", [_renamed, _restored])
def test_an_older_copy_is_noticed_by_its_count(
    server: Server, bloom: Any, keep: Callable[[redis.Redis], Callable[[], object]]
) -> None:
    """`info()` raises if the count is lower than before, and so does every call until acknowledge()."""
    with server.client() as client:
        f = bloom(client, "seen", **SIZE)
        f.add("a")
        put_back = keep(client)
        f.add("b")
        assert f.info().count == 2
        put_back()
        for _ in range(2):
            with pytest.raises(FilterLostError):
                f.info()
        with pytest.raises(FilterLostError):
            f.add("b")
        f.acknowledge()
        assert [f.add("a"), f.add("b")] == [False, True]


def test_a_reply_that_was_overtaken_is_no_older_copy(any_client: redis.Redis) -> None:
    """A reply of info() that arrives after a later one may be lower, which is no loss."""
    f = BloomFilter(any_client, "seen", **SIZE)
    f.add("a")
    assert f.info().count == 1
    operations: Any = inside(f)
    overtaken, server = operations.stored.current(), cast("Any", any_client)
    found = server.execute_command(*next(overtaken).commands[0])
    f.add("b")
    assert f.info().count == 2
    with pytest.raises(StopIteration):
        overtaken.send(found)
    assert f.info().count == 2


def test_a_count_that_others_raised_is_no_loss(any_client: redis.Redis, bloom: Any) -> None:
    """Neither an equal count nor a lower one of a filter with removals is a loss."""
    f, other = bloom(any_client, "seen", **SIZE), BloomFilter(any_client, "seen", **SIZE)
    f.add("a")
    assert [f.info().count, f.info().count] == [1, 1]
    other.add("b")
    assert f.info().count == 2
    f.clear()
    assert f.info().count == 0
    counting = bloom(any_client, "counting", kind="CountingBloomFilter", **SIZE)
    counting.add("a")
    assert counting.info().count == 1
    counting.remove("a")
    assert counting.info().count == 0


ITEMS = [f"{i}" for i in range(50)]
LONG: dict[str, tuple[str, dict[str, Any]]] = {
    "blocked": ("BloomFilter", {"layout": "blocked"}),
    "classic": ("BloomFilter", {"layout": "classic"}),
    "scaling": ("ScalingBloomFilter", {}),
    "rotating": ("RotatingBloomFilter", {"window": 3600, "slices": 1}),
    "sharded": ("ShardedBloomFilter", {"shards": 2}),
}


@for_each("kind", LONG)
def test_a_filter_that_became_too_long_is_left_alone(server: Server, kind: str) -> None:
    """If the server no longer allows strings of that length, calls are refused, and nothing changes."""
    name, options = LONG[kind]
    with server.client() as client:
        f = getattr(bloomredis, name)(client, "seen", capacity=3_000_000, error_rate=0.01, **options)
        f.add("x")
        client.config_set("proto-max-bulk-len", "1mb")
        try:
            for first in range(20):  # some have a bit below the new limit
                with pytest.raises(ServerRefusedError, match="proto-max-bulk-len"):
                    f.add_many(ITEMS[first:])
            if kind != "sharded":  # whose shards get their length by the first add
                with pytest.raises(ServerRefusedError, match="proto-max-bulk-len"):
                    f.clear()
        finally:
            client.config_set("proto-max-bulk-len", "512mb")
        assert "x" in f
        assert f.add_many(ITEMS) == [True] * len(ITEMS)
        f.clear()
        assert "x" not in f


CALLS: dict[str, Callable[[Any], Any]] = {
    "add": lambda f: f.add("b"),
    "add_many": lambda f: f.add_many([f"{i}" for i in range(500)]),
    "contains": lambda f: f.contains("b"),
    "contains_many": lambda f: f.contains_many(["b", "c"]),
    "claim": lambda f: f.claim("b"),
    "info": lambda f: f.info(),
}


@for_each("call", CALLS)
@for_each("layout", ["blocked", "classic"])
def test_bits_that_are_cut_off_are_a_mismatch(server: Server, layout: Any, call: str) -> None:
    """Old and new objects get an error, and the remaining bits are not written to."""
    with server.client() as client:
        f = BloomFilter(client, "seen", layout=layout, **SIZE)
        f.add("a")
        header: Any = client.getrange("seen", 0, 63)
        client.set("seen", header)
        for each in (f, BloomFilter(client, "seen", layout=layout, **SIZE)):
            with pytest.raises(FilterMismatchError if call != "info" else BloomError):
                CALLS[call](each)
        assert client.get("seen") == header
        with pytest.raises(FilterMismatchError):
            BloomFilter.open(client, "seen")


def test_a_receipt_of_another_type_is_no_lost_filter(client: redis.Redis, bloom: Any) -> None:
    """A key of another type in place of a receipt is left alone, and the filter works without it."""
    f = bloom(client, "seen", **SIZE)
    f.add("a")
    (receipt,) = beside(client, "receipt")
    client.delete(receipt)
    client.lpush(receipt, 1)
    assert [f.add("b"), f.add("b"), f.add("a")] == [True, False, False]
    assert client.lrange(receipt, 0, -1) == [b"1"]


@pytest.fixture
def chosen() -> tuple[bytes, bytes]:
    """Two different items with the same MurmurHash3 for every seed."""
    item = random.Random(1).randbytes(32)
    other = collision(item)
    assert item != other
    assert all(mmh3.hash_bytes(item, seed) == mmh3.hash_bytes(other, seed) for seed in (0, 1, 2**32 - 1))
    return item, other


def test_chosen_items_collide(any_client: redis.Redis, bloom: Any, chosen: tuple[bytes, bytes]) -> None:
    """Whoever chooses items can make one "already there", which `keyed` prevents."""
    f = bloom(any_client, "seen", **SIZE)
    assert [f.add(item) for item in chosen] == [True, False]


@pytest.mark.parametrize("secret", [b"sixteen bytes...", "a secret of many words", bytes(100)])
def test_a_keyed_filter_tells_chosen_items_apart(
    any_client: redis.Redis, bloom: Any, chosen: tuple[bytes, bytes], secret: bytes | str
) -> None:
    """Every client with the secret tells them apart, one by one and in batches."""
    f = bloom(any_client, "seen", encode=bloomredis.keyed(secret), **SIZE)
    assert [f.add(item) for item in chosen] == [True, True]
    other = bloom(any_client, "seen", encode=bloomredis.keyed(secret), **SIZE)
    assert other.add_many(list(chosen)) == [False, False]


def test_keyed_takes_items_as_filters_do() -> None:
    """A number, its text and its bytes are one item; another secret gives another item."""
    one, two = (bloomredis.keyed(secret) for secret in (b"a" * 16, b"b" * 16))
    assert one(42) == one("42") == one(b"42") != two(42)
    with pytest.raises(TypeError):
        one(4.2)  # type: ignore[arg-type]  # tested on purpose


@for_each("secret", [b"", "short", b"fifteen bytes.."])
def test_a_short_secret_is_refused(secret: bytes | str) -> None:
    """A short secret could be guessed."""
    with pytest.raises(ValueError, match="secret"):
        bloomredis.keyed(secret)
