"""The chain of growing bitmaps, shared with the Java class."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import redis

from bloomredis import (
    BatchInterruptedError,
    BloomFilter,
    FilterFullError,
    FilterMismatchError,
    OutcomeUnknownError,
    compat,
)
from bloomredis.protocol.scripts import load_script
from bloomredis.stored.foreign.chain import MOST_BITMAPS
from tests.support.background import outcome, started
from tests.support.losing import LosingClient
from tests.support.racing import race_threads
from tests.support.readme import acl_rule
from tests.support.servers import Server
from tests.support.systems import Offsets
from tests.support.values import for_each


class Chain:
    """The Java chain: a put goes to the newest bitmap, and begins the next one if that is over half full."""

    def put(self, client: Any, offsets: Offsets, num_bits: int) -> bool:
        if self.has(client, offsets):
            return False
        key = f"bloomfilter-{int(client.get('cursor') or 0)}"
        if not client.exists(key):
            client.setbit(key, num_bits - 1, 0)
        for offset in offsets:
            client.setbit(key, offset, 1)
        if client.bitcount(key) * 2 > num_bits:
            client.setbit(f"bloomfilter-{client.incr('cursor')}", num_bits - 1, 0)
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
    """Return how many bits each bitmap of the chain has set."""
    keys = sorted(key for key in client.keys("bloomfilter-*") if b":receipt:" not in key)
    return {key: client.bitcount(key) for key in keys}


def contents(client: Any) -> dict[bytes, bytes]:
    """Return the bitmaps of the chain, and the cursor."""
    return {key: client.get(key) for key in (*links(client), b"cursor")}


def test_a_chain_is_shared(bloom: Any, client: Any) -> None:
    """The system and this library add in turns, past several bitmaps; each reads what the other wrote."""
    f, theirs = bloom(client, "bloomfilter", layout=CHAIN), Chain()
    for start in range(0, 480, 40):
        for item in MANY[start : start + 20]:
            theirs.put(client, CHAIN.offsets(item), CHAIN.num_bits)
        f.add_many(MANY[start + 20 : start + 40])
    assert int(client.get("cursor")) >= 1
    assert all(f.contains_many(MANY[:480]))
    assert all(theirs.has(client, CHAIN.offsets(item)) for item in MANY[:480])


def test_a_chain_grows_as_the_systems_does(client: redis.Redis) -> None:
    """The same items in the same order give the system's bitmaps, one by one and in batches."""
    theirs = Chain()
    for item in MANY[:600]:
        theirs.put(client, CHAIN.offsets(item), CHAIN.num_bits)
    expected = contents(client)
    assert len(expected) > 2
    for size in (1, 140):
        client.flushall()
        f = BloomFilter(client, "bloomfilter", layout=CHAIN)
        for start in range(0, 600, size):
            f.add_many(MANY[start : min(start + size, 600)])
        assert contents(client) == expected


def test_a_chain_has_one_winner_for_each_item(server: Server) -> None:
    """However many writers reach the limit at once, an item has one winner; each bitmap begins once."""

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


def test_a_put_that_passes_one_half_begins_the_next_bitmap(client: redis.Redis) -> None:
    """A put that fills more than half of the bits begins the next bitmap; exactly half does not."""
    offsets = CHAIN.offsets("first")
    others = [offset for offset in range(CHAIN.num_bits) if offset not in offsets]
    for offset in others[: CHAIN.num_bits // 2 - len(set(offsets))]:
        client.setbit("bloomfilter-0", offset, 1)
    f = BloomFilter(client, "bloomfilter", layout=CHAIN)
    assert f.add("first")
    assert links(client) == {b"bloomfilter-0": CHAIN.num_bits // 2}
    assert not client.exists("cursor")
    client.setbit("bloomfilter-0", others[-1], 1)
    assert not f.add("first")
    assert f.add_many(["second", "third"]) == [True, True]  # an over-full bitmap takes one, as in Java
    assert client.get("cursor") == b"1"
    assert Chain().has(client, CHAIN.offsets("second"))
    assert client.bitcount("bloomfilter-1") == CHAIN.num_hashes


def test_a_put_of_the_systems_goes_to_the_bitmap_that_was_begun(client: redis.Redis) -> None:
    """The system's next put goes to the bitmap that this library began when it passed one half."""
    f, theirs = BloomFilter(client, "bloomfilter", layout=CHAIN), Chain()
    many = iter(MANY)
    while not client.exists("cursor"):
        f.add(next(many))
    full = client.bitcount("bloomfilter-0")
    theirs.put(client, CHAIN.offsets("theirs"), CHAIN.num_bits)
    assert links(client) == {b"bloomfilter-0": full, b"bloomfilter-1": CHAIN.num_hashes}
    assert f.contains("theirs")


def test_a_load_into_a_chain_grows_it(bloom: Any, client: redis.Redis) -> None:
    """A batch too dense for one bitmap is sent as probes and grows the chain; a chain has no snapshot."""
    f = bloom(client, "bloomfilter", layout=CHAIN)
    assert f.update(MANY) == len(MANY)
    assert all(f.contains_many(MANY))
    assert len(links(client)) > 2
    with pytest.raises(TypeError, match="several bitmaps"):
        f.snapshot()


@for_each("layout", [CHAIN, compat.php_bkdr(1000, 3)])
def test_no_local_cache_of_other_systems_bitmaps(layout: Any) -> None:
    """A local cache is refused, since it would hide the loss of the filter."""
    with pytest.raises(ValueError, match="cannot be detected"):
        BloomFilter(redis.Redis(), "f", layout=layout, local_cache=True)


def test_claims_and_pipelines_on_a_chain(bloom: Any, client: redis.Redis) -> None:
    """The commit of an earlier claim grows the chain; info and delete act on all bitmaps."""
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


class Meanwhile:
    """A client that runs another call first, once, before its deletion."""

    def __init__(self, client: Any, first: Callable[[], object]) -> None:
        self._client = client
        self._first: list[Callable[[], object]] = [first]

    def execute_command(self, *command: Any, **options: Any) -> Any:
        if self._first and command[:2] in {
            ("EVALSHA", load_script("delete").sha),
            ("UNLINK", b"bloomfilter-0"),
        }:
            self._first.pop()()
        return self._client.execute_command(*command, **options)

    def pipeline(self, *, transaction: bool) -> Any:
        return self._client.pipeline(transaction=transaction)


@for_each("verb", ["clear", "delete"])
def test_a_bitmap_that_is_begun_meanwhile_is_deleted_too(client: redis.Redis, verb: str) -> None:
    """A bitmap begun during a deletion is deleted too, so no old item is found when the chain reaches it."""
    other = BloomFilter(client, "bloomfilter", layout=CHAIN)
    other.add_many(MANY[:100])
    meanwhile: Any = Meanwhile(client, lambda: other.add_many(MANY[100:600]))
    getattr(BloomFilter(meanwhile, "bloomfilter", layout=CHAIN), verb)()
    assert not links(client)
    assert not client.exists("cursor")
    assert sum(other.add_many(MANY)) > 0.97 * len(MANY)


def test_a_chain_is_cleared_while_it_grows(bloom: Any, server: Server) -> None:
    """During a clear no interleaving leaves a bitmap behind the cursor."""
    done = threading.Event()

    def add() -> None:
        f = BloomFilter(server.client(), "bloomfilter", layout=CHAIN)
        for i in itertools.takewhile(lambda _: not done.is_set(), itertools.count(0, 300)):
            f.add_many([f"item-{i + j}" for j in range(300)])

    adding = started(add)
    with server.client() as client:
        f = bloom(client, "bloomfilter", layout=CHAIN)
        for _ in range(30):
            time.sleep(0.005)
            f.clear()
        done.set()
        assert outcome(adding) is None
        cursor = int(client.get("cursor") or 0)
        assert all(int(key.rpartition(b"-")[2]) <= cursor for key in links(client))


def test_a_bitmap_that_was_left_behind_is_not_begun_with_its_bits(bloom: Any, client: redis.Redis) -> None:
    """A new bitmap starts empty, even if the system's reset left an old one under its name."""
    client.set("bloomfilter-1", b"\xff" * (CHAIN.num_bits // 8))
    f = bloom(client, "bloomfilter", layout=CHAIN)
    assert sum(f.add_many(MANY)) > 0.97 * len(MANY)
    assert len(links(client)) > 2


def test_all_bitmaps_and_the_cursor_expire_together(bloom: Any, client: redis.Redis) -> None:
    """A `ttl` covers all bitmaps and the cursor, those too that begin later; so does `expire`."""
    keys = ["bloomfilter-0", "bloomfilter-1", "bloomfilter-2", "cursor"]

    def lasting() -> list[int]:
        return [client.pttl(key) for key in keys]

    f = bloom(client, "bloomfilter", layout=CHAIN, ttl=100)
    f.add("a")
    assert 99_000 < client.pttl("bloomfilter-0") <= 100_000
    client.pexpire("bloomfilter-0", 50_000)
    many = iter(MANY)
    while not client.exists("bloomfilter-2"):
        f.add(next(many))
    assert all(40_000 < ttl <= 50_000 for ttl in lasting())
    f.expire(90)
    assert all(80_000 < ttl <= 90_000 for ttl in lasting())


def begun(client: Any, last: int) -> None:
    """Make a chain that the system has grown to this number, with its last bitmap almost half full."""
    client.set("cursor", last)
    client.set(f"bloomfilter-{last}", b"\xff" * (CHAIN.num_bits // 16 - 3))
    for offset in CHAIN.offsets("first"):
        client.setbit("bloomfilter-0", offset, 1)


def test_a_chain_of_more_than_256_bitmaps(bloom: Any, client: redis.Redis) -> None:
    """A chain of more than 256 bitmaps is read, written and grown like any other."""
    begun(client, 255)
    f = bloom(client, "bloomfilter", layout=CHAIN)
    assert sum(f.add_many(MANY[:30])) > 25
    assert client.get("cursor") == b"256"
    assert client.bitcount("bloomfilter-256") > 10
    assert all(f.contains_many(["first", *MANY[:30]]))
    assert not f.add("first")
    assert not f.contains("another")


def test_the_last_bitmap_that_is_possible(bloom: Any, client: redis.Redis) -> None:
    """The last possible bitmap takes items up to its limit; new items are then refused, old ones found."""
    begun(client, MOST_BITMAPS - 1)
    f = bloom(client, "bloomfilter", layout=CHAIN)
    with pytest.raises(BatchInterruptedError) as interrupted:
        f.add_many(MANY[:30])
    assert isinstance(interrupted.value.__cause__, FilterFullError)
    bits = client.bitcount(f"bloomfilter-{MOST_BITMAPS - 1}")
    assert CHAIN.num_bits / 2 < bits <= CHAIN.num_bits / 2 + CHAIN.num_hashes
    before = contents(client)
    with pytest.raises(FilterFullError, match="1024 bitmaps"):
        f.add("another")
    assert not f.add("first")
    assert f.contains_many(["first", MANY[0], "another"]) == [True, True, False]
    assert contents(client) == before


def test_a_chain_that_is_too_long_is_refused(bloom: Any, client: redis.Redis) -> None:
    """Opening or using a chain that is too long raises an error with the number of its bitmaps."""
    f = bloom(client, "bloomfilter", layout=CHAIN)
    f.add("a")
    begun(client, MOST_BITMAPS)
    for each in (f, bloom(client, "bloomfilter", layout=CHAIN)):
        with pytest.raises(FilterMismatchError, match="has 1025 bitmaps"):
            each.contains("a")
        with pytest.raises(FilterMismatchError, match="has 1025 bitmaps"):
            each.add("a")
    assert client.get("cursor") == b"%d" % MOST_BITMAPS


@for_each("value", ["x", "-1", "1.5", ["a list"]])
def test_a_cursor_that_is_none_is_refused(bloom: Any, client: redis.Redis, value: Any) -> None:
    """Opening or using an invalid cursor raises an error that names it."""
    f = bloom(client, "bloomfilter", layout=CHAIN)
    f.add("a")
    client.rpush("cursor", *value) if isinstance(value, list) else client.set("cursor", value)
    before = client.dump("cursor")
    for each in (f, bloom(client, "bloomfilter", layout=CHAIN)):
        for call in (each.contains, each.add):
            with pytest.raises(FilterMismatchError):
                call("a")
        with pytest.raises(FilterMismatchError):
            each.clear()
    assert client.dump("cursor") == before


def test_a_bitmap_of_another_type_is_left_alone(bloom: Any, client: redis.Redis) -> None:
    """add, clear and delete leave a bitmap of another type alone."""
    f = bloom(client, "bloomfilter", layout=CHAIN)
    f.add("a")
    client.delete("bloomfilter-0")
    client.rpush("bloomfilter-0", "x")
    for call in (lambda: f.add("a"), f.clear, f.delete):
        with pytest.raises(FilterMismatchError):
            call()
    assert client.lrange("bloomfilter-0", 0, -1) == [b"x"]


def test_a_lost_reply_of_the_put_that_begins_a_bitmap(server: Server) -> None:
    """After the lost reply of a put that began a bitmap, a retry still reports the item as new."""
    with server.client() as plain:
        begun(plain, 3)
        client: Any = LosingClient(plain)
        f = BloomFilter(client, "bloomfilter", layout=CHAIN)
        f.add("first")
        for item in MANY[:30]:
            known = f.contains(item)
            client.lose = ["lost"]
            with pytest.raises(OutcomeUnknownError):
                f.add(item)
            assert f.add(item) is not known
        assert plain.get("cursor") == b"4"


def test_the_readmes_acl_rule_suffices_for_a_chain(server: Server) -> None:
    """The README's ACL rule suffices for a chain, with the keys of the chain instead of the filter's."""
    rule = [word for word in acl_rule() if not word.startswith("~seen")]
    keys = ["~bloomfilter-*", "~{bloomfilter}:*", "~cursor"]
    with server.client() as admin:
        admin.execute_command("ACL", "SETUSER", "worker", "reset", "on", ">secret", *rule, *keys)
    with server.client(username="worker", password="secret") as client:  # noqa: S106 - of a test's server
        f = BloomFilter(client, "bloomfilter", layout=CHAIN, ttl=100)
        assert sum(f.add_many(MANY)) > 0.97 * len(MANY)
        with f.claim("claimed") as claim:
            assert claim
        f.expire(50)
        f.clear()
        assert f.add("a")
        assert f.delete()
