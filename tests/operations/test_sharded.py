"""A sharded filter answers as one filter, and knows of each shard whether it was lost or never made."""

from __future__ import annotations

import asyncio
import json
import math
import os
import pickle
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.retry import Retry

import bloomredis.asyncio
from bloomredis import (
    BatchInterruptedError,
    BloomFilter,
    FilterLostError,
    FilterMismatchError,
    FilterNotFoundError,
    OutcomeUnknownError,
    ShardedBloomFilter,
)
from bloomredis.cli.plan import sharded_fields
from bloomredis.stored import shard_record
from tests.support.losing import losing
from tests.support.racing import race_processes, race_threads, winners
from tests.support.servers import Server, binaries, running

OPTIONS: Final[dict[str, Any]] = {"capacity": 10_000, "error_rate": 1e-6}
ITEMS: Final = [f"item-{i}" for i in range(400)]
VECTORS: Final = json.loads((Path(__file__).parents[1] / "vectors" / "shards.json").read_text())
BIG: Final[dict[str, Any]] = {
    "capacity": round(50e9 * math.log(2) / 16),
    "error_rate": 2**-16,
    "layout": "classic",
}


def shard_keys(client: redis.Redis, name: str = "seen") -> list[str]:
    """Return the keys of the shards that are there."""
    keys: Any = client.keys(f"{{{name}:*}}")
    found = [key.decode() for key in keys]
    return sorted(found, key=lambda key: int(key.split(":")[1]))


@pytest.fixture
def pair(client: redis.Redis) -> Iterator[list[Any]]:
    """Clients of two independent servers."""
    with ExitStack() as stack:
        second = stack.enter_context(running(binaries()["valkey-9"]))
        yield [client, stack.enter_context(second.client())]


# -- which shard


@pytest.mark.parametrize("case", VECTORS["items"])
def test_golden_shards(case: dict[str, Any]) -> None:
    """Each item is in the shard of its vector."""
    root = shard_record.plan(1000, 0.01, shards=case["shards"], seed=case["seed"])
    assert root.number(bytes.fromhex(case["item"])) == case["number"]


@pytest.mark.parametrize("case", VECTORS["keys"])
def test_golden_keys(case: dict[str, Any]) -> None:
    """Each shard has the key of its vector."""
    assert shard_record.key(case["name"], case["shards"], case["number"]) == case["key"]


@pytest.mark.parametrize("case", VECTORS["roots"])
def test_golden_roots(case: dict[str, Any]) -> None:
    """Each root says what its vector says, and packs to its bytes as long as no shard is made."""
    data = bytes.fromhex(case["hex"])
    root, table = shard_record.parse(data)
    assert [entry.hex() for entry in table] == case["table"]
    assert {field: getattr(root, field) for field in case["fields"]} == case["fields"]
    assert root.pack() == data[: shard_record.RECORD_BYTES] + bytes(len(data) - shard_record.RECORD_BYTES)


@pytest.mark.parametrize(
    ("at", "byte"), [(10, 0), (71, 0), (70, 17), (75, 1), (91, 0), (95, 9), (8, 0), (12, 1)]
)
def test_a_damaged_root_is_refused(at: int, byte: int) -> None:
    """It is no root where a number cannot be."""
    data = bytes.fromhex(VECTORS["roots"][0]["hex"])
    with pytest.raises(ValueError, match=r"that of|parameters|options"):
        shard_record.parse(data[:at] + bytes([byte]) + data[at + 1 :])


def test_items_are_spread_evenly() -> None:
    """The shares of 47 shards differ no more than chance lets them (chi-squared, six sigma)."""
    root = shard_record.plan(1000, 0.01, shards=47)
    counts = Counter(root.number(b"https://example.org/%d" % i) for i in range(100_000))
    mean = 100_000 / 47
    assert sum((counts[i] - mean) ** 2 / mean for i in range(47)) < 46 + 6 * math.sqrt(2 * 46)


@pytest.mark.parametrize("nodes", [1, 3, 5, 16])
def test_shards_are_spread_over_the_slots(nodes: int) -> None:
    """Nodes with equal ranges of slots have equally many shards, give or take one."""
    slots = [key_slot(shard_record.key("seen", 47, number).encode()) for number in range(47)]
    counts = Counter(slot * nodes // 16_384 for slot in slots)
    assert max(counts.values()) - min(counts[node] for node in range(nodes)) <= 1 + (47 % nodes > 0)


@pytest.mark.parametrize("share", [1, 5, 60, 1000, 10**6])
@pytest.mark.parametrize("rate", [0.3, 0.01, 1e-6, 1e-9])
def test_the_margin_makes_up_for_uneven_shares(share: int, rate: float) -> None:
    """The mean rate over shards with a Poisson number of items stays at or below the configured one."""
    root = shard_record.plan(share * 100, rate, shards=100, layout="classic")
    dice, mean = random.Random(0), 0.0
    for _ in range(4000):
        items = max(0, round(dice.gauss(share, math.sqrt(share)))) if share > 50 else poisson(dice, share)
        fill = -math.expm1(-root.head.num_hashes * items / root.head.num_bits)
        mean += fill**root.head.num_hashes / 4000
    assert mean <= rate * 1.02


def poisson(dice: random.Random, mean: float) -> int:
    bound, count, product = math.exp(-mean), 0, dice.random()
    while product > bound:
        count, product = count + 1, product * dice.random()
    return count


# -- how large


def test_the_plan_of_fifty_billion_bits() -> None:
    """47 shards of under 2^30 bits each; on three nodes 16 of them, 2 GiB, at most."""
    root = shard_record.plan(**BIG)
    fields = sharded_fields(root, nodes=3)
    assert root.head.num_hashes == fields["num_hashes"] == 16
    assert fields["shards"] == 47
    assert 50e9 <= 47 * root.head.num_bits == fields["num_bits"]
    assert 47 * root.head.num_bits <= 50.01e9
    assert fields["bytes_per_node"] == 16 * fields["bytes_per_shard"]
    assert fields["bytes_per_shard"] == root.shard.size_bytes
    assert root.shard.size_bytes <= (1 << 27) + 64


def test_a_filter_of_fifty_billion_bits(any_server: Server) -> None:
    """It works with the memory of the shards that have items."""
    root = shard_record.plan(**BIG)
    items = [item for item in map(str, range(400)) if root.number(item.encode()) in (3, 40)]
    with any_server.client() as client:
        f = ShardedBloomFilter(client, "big", **BIG)
        assert f.add_many([*items, items[0]]) == [True] * len(items) + [False]
        assert f.contains_many([*items, "absent"]) == [True] * len(items) + [False]
        assert ShardedBloomFilter.open(client, "big").info().num_bits == 47 * root.head.num_bits
        assert len(shard_keys(client, "big")) == 2
        assert f.delete()


@pytest.mark.parametrize("layout", ["classic", "blocked"])
@pytest.mark.parametrize(("capacity", "rate"), [(1, 0.5), (10**6, 0.01), (10**10, 0.01), (10**10, 1e-9)])
def test_default_shards_are_as_few_as_fit(layout: str, capacity: int, rate: float) -> None:
    """From 16 on, none has more than 2^30 bits, and one less would not do."""
    root = shard_record.plan(capacity, rate, layout=layout)
    assert root.head.num_bits <= shard_record.SHARD_BITS
    if root.shards > shard_record.FEWEST_SHARDS:
        fewer = shard_record.plan(capacity, rate, shards=root.shards - 1, layout=layout)
        assert fewer.head.num_bits > shard_record.SHARD_BITS


@pytest.mark.parametrize(
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
    """Each names the value, before any I/O."""
    with pytest.raises(error, match=seen):
        ShardedBloomFilter(redis.Redis(port=1), "f", **{**OPTIONS, **options})


def test_bad_names_and_clients() -> None:
    """A name must not end the hash tags; there is a client, of the right kind, for each server."""
    with pytest.raises(ValueError, match="must not contain '}'"):
        ShardedBloomFilter(redis.Redis(), "{a}b", **OPTIONS)
    with pytest.raises(ValueError, match="at least one"):
        ShardedBloomFilter([], "f", **OPTIONS)
    with pytest.raises(ValueError, match="2 servers"):
        ShardedBloomFilter([redis.Redis()] * 2, "f", **OPTIONS, shards=1)
    with pytest.raises(TypeError, match=r"asyncio\.ShardedBloomFilter"):
        ShardedBloomFilter([redis.asyncio.Redis()], "f", **OPTIONS)
    with pytest.raises(TypeError, match=r"bloomredis\.ShardedBloomFilter"):
        bloomredis.asyncio.ShardedBloomFilter([redis.Redis()], "f", **OPTIONS)


# -- as one filter


def test_same_answers_as_a_set(bloom: Any, client: redis.Redis) -> None:
    """Single calls and batches, with repeats, answer as a set of what was added would."""
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


def test_all_calls(bloom: Any, client: redis.Redis) -> None:
    """Dedupe, load, claims, pipelines, info and clear act on all shards."""
    f = bloom.sharded(client, "seen", **OPTIONS)
    assert list(f.dedupe([1, 2, 2, 3])) == [1, 2, 3]
    assert f.load(range(5000)) == 5000
    assert f.info().count == 5000
    assert f.approximate_count() == pytest.approx(5000, rel=0.05)
    claim = f.claim("claimed")
    bloom.wait(claim.commit())
    assert [each.state for each in f.claim_many(["x", "claimed", "x", "y"])] == [
        "claimed",
        "done",
        "busy",
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
    assert not shard_keys(client)


def test_dense_loads_are_segments(client: redis.Redis) -> None:
    """A load that is dense in each shard is counted right and found, twice."""
    f = ShardedBloomFilter(client, "seen", capacity=100_000, error_rate=0.001, shards=4)
    for _ in range(2):
        assert f.load(range(60_000)) == 60_000
        assert f.info().count == pytest.approx(60_000, rel=0.001)
    assert all(f.contains_many(range(60_000)))


def test_info_is_of_the_whole(bloom: Any, client: redis.Redis) -> None:
    """Capacity and rate as configured, bits of all shards, size of what is stored."""
    f = bloom.sharded(client, "seen", **OPTIONS, ttl=100)
    f.reserve()
    before = f.info()
    assert (before.capacity, before.error_rate, before.count) == (10_000, 1e-6, 0)
    assert before.size_bytes == client.strlen("seen")
    f.add_many(ITEMS)
    after = f.info()
    assert after.count == 400
    assert after.num_bits == before.num_bits == 16 * shard_record.plan(10_000, 1e-6).head.num_bits
    assert after.size_bytes == sum(client.strlen(key) for key in ["seen", *shard_keys(client)])
    assert after.generation == before.generation
    assert 90 < after.ttl <= 100


def test_the_rate_is_the_configured_one(any_server: Server) -> None:
    """At capacity it is at most the configured one, within chance."""
    with any_server.client() as client:
        f = ShardedBloomFilter(client, "seen", capacity=20_000, error_rate=0.02)
        f.load(range(20_000))
        wrong = sum(f.contains_many([f"absent-{i}" for i in range(50_000)]))
    assert wrong <= 1000 + 5 * math.sqrt(1000)
    assert wrong > 400  # and not bought with much memory


def test_open_reads_everything(bloom: Any, client: redis.Redis) -> None:
    """Shards, seed and layout are found; there is nothing to open where nothing is."""
    with pytest.raises(FilterNotFoundError):
        bloom.open(client, "seen", "ShardedBloomFilter")
    f = bloom.sharded(client, "seen", **OPTIONS, shards=5, seed=77, layout="classic")
    f.add_many(ITEMS)
    g = bloom.open(client, "seen", "ShardedBloomFilter")
    assert not any(g.add_many(ITEMS))
    assert g.info() == f.info()
    assert bloom.sharded(client, "seen", **OPTIONS).contains_many(ITEMS) == [True] * 400


@pytest.mark.parametrize(
    "other",
    [{"shards": 6}, {"seed": 78}, {"capacity": 9999}, {"error_rate": 1e-5}, {"layout": "blocked"}],
    ids=str,
)
def test_other_parameters_are_refused(bloom: Any, client: redis.Redis, other: dict[str, Any]) -> None:
    """Before any item is touched; the message has both values."""
    stored = {**OPTIONS, "shards": 5, "seed": 77, "layout": "classic"}
    bloom.sharded(client, "seen", **stored).add("a")
    with pytest.raises(FilterMismatchError) as caught:
        bloom.sharded(client, "seen", **stored | other).add("b")
    (field,) = other
    assert str(stored[field]) in str(caught.value)
    assert str(other[field]) in str(caught.value)
    assert bloom.sharded(client, "seen", **stored).info().count == 1


def test_other_kinds_are_refused(bloom: Any, client: redis.Redis) -> None:
    """A plain filter is no sharded one, and the other way round; the message names the class to use."""
    bloom.sharded(client, "seen", **OPTIONS).add("a")
    for options in ({}, OPTIONS):
        with pytest.raises(FilterMismatchError, match="ShardedBloomFilter"):
            bloom(client, "seen", **options).add("b")
    bloom(client, "plain", **OPTIONS).add("a")
    for options in ({}, OPTIONS):
        with pytest.raises(FilterMismatchError, match="use BloomFilter"):
            bloom.sharded(client, "plain", **options).add("b")
    client.set("text", "x" * 200)
    client.rpush("list", "x")
    for name in ("text", "list"):
        with pytest.raises(FilterMismatchError):
            bloom.sharded(client, name, **OPTIONS).add("b")


def test_a_shard_is_a_plain_filter(client: redis.Redis) -> None:
    """`BloomFilter.open` reads it, by its key."""
    f = ShardedBloomFilter(client, "seen", **OPTIONS)
    f.add_many(ITEMS)
    assert sum(BloomFilter.open(client, key).info().count for key in shard_keys(client)) == 400


def test_pickles(client: redis.Redis) -> None:
    """A copy works once it has a client again."""
    f = ShardedBloomFilter(client, "seen", **OPTIONS)
    f.add_many(ITEMS)
    copy = pickle.loads(pickle.dumps(f))  # noqa: S301 - our own
    with pytest.raises(RuntimeError, match="with_client"):
        copy.add("x")
    assert copy.with_client(client).add_many(["x", *ITEMS]) == [True] + [False] * 400


def test_a_filter_on_several_servers_pickles(pair: list[Any]) -> None:
    """The copy wants as many clients."""
    copy = pickle.loads(pickle.dumps(ShardedBloomFilter(pair, "seen", **OPTIONS)))  # noqa: S301 - our own
    with pytest.raises(RuntimeError, match="with_client"):
        copy.add("x")
    with pytest.raises(ValueError, match="2 servers, not on 1"):
        copy.with_client(pair[:1])
    assert copy.with_client(pair).add_many(ITEMS) == [True] * 400


def test_a_list_of_one_server_is_that_server(bloom: Any, client: redis.Redis) -> None:
    """The two may be mixed."""
    assert all(bloom.sharded([client], "seen", **OPTIONS).add_many(ITEMS))
    assert not any(bloom.sharded(client, "seen", **OPTIONS).add_many(ITEMS))


def test_a_filter_made_anew_with_other_shards(bloom: Any, client: redis.Redis) -> None:
    """Who opened the old one without parameters is told, and then finds its way in the new one."""
    bloom.sharded(client, "seen", **OPTIONS).add_many(ITEMS)
    f = bloom.open(client, "seen", "ShardedBloomFilter")
    assert all(f.contains_many(ITEMS))
    g = bloom.sharded(client, "seen", **OPTIONS, shards=3)
    with pytest.raises(FilterMismatchError, match="shards 16, not 3"):
        g.add("a")
    f.delete()
    assert all(g.add_many(ITEMS))
    assert not any(f.add_many(ITEMS))


@pytest.mark.parametrize("way", ["one by one", "in batches"])
def test_lost_replies_change_no_answer(any_server: Server, way: str) -> None:
    """One in twenty is lost after the server has executed the call, while shards are being made too."""
    with losing(any_server.socket, 0.05) as proxy:
        retry = Retry(NoBackoff(), 20)
        with redis.Redis(port=proxy.port, retry=retry, protocol=2) as client:
            f = ShardedBloomFilter(client, "seen", **OPTIONS)
            told = [f.add(item) for item in ITEMS] if way == "one by one" else f.add_many(ITEMS)
            assert told == [True] * 400
            f.clear()
            assert all(f.add_many(ITEMS))
            assert not any(f.add_many(ITEMS))
        assert proxy.lost


class Down:
    """A client whose server cannot be reached while `down` is set."""

    def __init__(self, client: redis.Redis) -> None:
        self._client: Any = client
        self.down = False

    def execute_command(self, *command: Any, **options: Any) -> Any:
        if self.down:
            raise redis.ConnectionError("Connection refused.")
        return self._client.execute_command(*command, **options)

    def pipeline(self, *, transaction: bool) -> Any:
        if self.down:
            raise redis.ConnectionError("Connection refused.")
        return self._client.pipeline(transaction=transaction)


def test_a_batch_that_is_interrupted_again_and_again(any_server: Server) -> None:
    """An answer that was known at the first time is given when its item is answered, at whichever time."""
    servers = [Down(any_server.client(db=db)) for db in range(3)]
    f = ShardedBloomFilter(servers, "seen", **OPTIONS)
    f.add_many(ITEMS)
    spread: Any = f._operations
    fresh = {spread._of(item)[0]: item for item in map(str, range(1000, 1100))}
    batch = [fresh[1], fresh[0], fresh[2]]
    told: list[bool] = []
    for down in ([1, 2], [2], []):
        for place, server in enumerate(servers):
            server.down = place in down
        try:
            told += f.add_many(batch[len(told) :])
        except BatchInterruptedError as error:
            told += error.results
    assert told == [True] * 3
    assert f.add_many(batch) == [False] * 3


def test_a_token_answers_as_its_call_would_have(bloom: Any, server: Server) -> None:
    """Whichever object is asked; a batch without enough replicas loses no answer either."""
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


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_asks_all_servers(any_server: Server) -> None:
    """The parent's threads are not there, so it makes its own."""
    with running(binaries()["valkey-9"]) as second:
        f = ShardedBloomFilter([any_server.client(), second.client()], "seen", **OPTIONS)
        assert all(f.add_many(ITEMS))
        if (child := os.fork()) == 0:
            os._exit(0 if f.add_many([*ITEMS, "x", "y"]) == [False] * 400 + [True] * 2 else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert f.add_many(["x", "y", "z"]) == [False, False, True]


def test_replies_may_be_decoded(any_server: Server) -> None:
    """A client with decode_responses does as well."""
    with any_server.client(decode_responses=True) as client:
        f = ShardedBloomFilter(client, "seen", **OPTIONS)
        assert f.add_many(["a", "b", "a"]) == [True, True, False]
        assert ShardedBloomFilter.open(client, "seen").info().count == 2


# -- races


def test_one_winner_among_threads(server: Server) -> None:
    """Threads that begin with no filter at all: each item has one winner."""

    def work(worker: int) -> list[bool]:
        with server.client() as client:
            f = ShardedBloomFilter(client, "seen", **OPTIONS)
            return [f.add(item) for item in ITEMS[:40]] + f.add_many(ITEMS[40:])

    assert winners(race_threads(work, 6), ITEMS) == {1: 400}


def test_one_winner_among_threads_that_share_a_filter(server: Server) -> None:
    """With shared round trips too."""
    f = ShardedBloomFilter(server.client(), "seen", **OPTIONS, coalesce=True)
    told = race_threads(lambda worker: [f.add(item) for item in ITEMS], 6)
    assert winners(told, ITEMS) == {1: 400}


def add_all(url: str, items: Sequence[str], worker: int) -> list[bool]:
    with redis.Redis.from_url(url) as client:
        f = ShardedBloomFilter(client, "seen", **OPTIONS)
        return [new for start in range(0, len(items), 50) for new in f.add_many(items[start : start + 50])]


def test_one_winner_among_processes(any_server: Server) -> None:
    """Processes that create the filter at the same time agree on it."""
    assert winners(race_processes(add_all, any_server.url, ITEMS, 3), ITEMS) == {1: 400}


def test_one_winner_among_tasks(any_server: Server) -> None:
    """Tasks that share round trips."""

    async def main() -> list[list[bool]]:
        async with redis.asyncio.Redis(unix_socket_path=any_server.socket) as client:
            f = bloomredis.asyncio.ShardedBloomFilter(client, "seen", **OPTIONS)
            told = await asyncio.gather(*(f.add(item) for item in ITEMS * 3))
            return [told[:400], told[400:800], told[800:]]

    assert winners(asyncio.run(main()), ITEMS) == {1: 400}


# -- losses


def lose_one(client: redis.Redis) -> str:
    """Delete a shard, return its key."""
    key = shard_keys(client)[3]
    client.delete(key)
    return key


CALLS: Final[dict[str, Callable[[Any], Any]]] = {
    "add_many": lambda f: f.add_many(ITEMS),
    "contains_many": lambda f: f.contains_many(ITEMS),
    "claim_many": lambda f: f.claim_many([f"x{i}" for i in range(100)]),
    "info": lambda f: f.info(),
    "load": lambda f: f.load(ITEMS),
    "expire": lambda f: f.expire(100),
}


def cause(error: BaseException) -> BaseException:
    return error.__cause__ if isinstance(error, BatchInterruptedError) and error.__cause__ else error


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_lost_shard_is_noticed(bloom: Any, client: redis.Redis, call: Callable[[Any], Any]) -> None:
    """By who used it, and then by each call; by who opens the filter, or never used that shard."""
    f = bloom.sharded(client, "seen", **OPTIONS)
    f.add_many(ITEMS)
    fresh = bloom.sharded(client, "seen", **OPTIONS)
    lose_one(client)
    for g in (f, fresh):
        with pytest.raises((FilterLostError, BatchInterruptedError)) as caught:
            call(g)
        assert isinstance(cause(caught.value), FilterLostError)
        with pytest.raises(FilterLostError):
            g.contains("anything")
    with pytest.raises(FilterLostError, match=r"shard 3 .* reserve\(\)"):
        bloom.open(client, "seen", "ShardedBloomFilter")


def test_reserve_takes_notice_of_a_lost_shard(bloom: Any, client: redis.Redis) -> None:
    """The shard is made anew, the others keep their items; and whoever used it has yet to take notice."""
    f, g = (bloom.sharded(client, "seen", **OPTIONS) for _ in range(2))
    f.add_many(ITEMS)
    g.contains_many(ITEMS)
    lost = client.strlen(lose_one(client)) or sum(
        shard_record.plan(10_000, 1e-6).number(i.encode()) == 3 for i in ITEMS
    )
    with pytest.raises(FilterLostError):
        f.reserve()
    f.reserve()
    assert sum(f.add_many(ITEMS)) == lost > 0
    with pytest.raises((FilterLostError, BatchInterruptedError)):
        g.add_many(ITEMS)
    g.reserve()
    assert not any(g.add_many(ITEMS))


@pytest.mark.parametrize("vanished", ["a shard", "the root", "everything"])
def test_recreate_goes_on(bloom: Any, client: redis.Redis, vanished: str) -> None:
    """The callable hears of it, and all answers are those of the filter that is left."""
    heard: list[FilterLostError] = []
    f = bloom.sharded(client, "seen", **OPTIONS, on_lost=heard.append)
    f.add_many(ITEMS)
    if vanished == "a shard":
        lose_one(client)
    elif vanished == "the root":
        client.delete("seen", lose_one(client))
    else:
        client.flushdb()
    assert sum(f.add_many(ITEMS)) > 0
    assert heard
    f.add_many(ITEMS)  # without their root the other shards count for nothing from now on
    assert not any(f.add_many(ITEMS))
    assert not any(bloom.sharded(client, "seen", **OPTIONS).add_many(ITEMS))


def test_what_an_earlier_root_left_is_made_anew(bloom: Any, client: redis.Redis) -> None:
    """Shards without their root have no say in the next filter of that name."""
    f = bloom.sharded(client, "seen", **OPTIONS)
    f.add_many(ITEMS)
    client.delete("seen")
    g = bloom.sharded(client, "seen", **OPTIONS)
    assert not any(g.contains_many(ITEMS))
    assert all(g.add_many(ITEMS))
    with pytest.raises((FilterLostError, BatchInterruptedError)):
        f.add_many(ITEMS)


def test_a_shard_that_was_made_and_not_recorded_is_taken(any_server: Server) -> None:
    """A client that crashed in between has left it empty; the next one records it."""
    with any_server.client() as client:
        f = ShardedBloomFilter(client, "seen", **OPTIONS)
        f.reserve()
        number = shard_record.plan(10_000, 1e-6).number(b"a")
        opening: Any = f._operations._stored.shard(number).open()  # type: ignore[attr-defined]  # of a sharded one
        step = next(opening)
        while not (step[3] == b"seen" and step[6]):  # until it would record
            try:
                reply = client.execute_command(*step)
            except redis.exceptions.NoScriptError as error:
                step = opening.throw(error)
            else:
                step = opening.send(reply)
        opening.close()
        (left,) = shard_keys(client)
        header = client.getrange(left, 0, 55)
        assert "a" not in f
        assert f.add("a")
        assert client.getrange(left, 0, 55) == header


def test_clear_is_noticed(bloom: Any, client: redis.Redis) -> None:
    """Other objects are told; the filter keeps its expiry; all items are gone."""
    f, g = (bloom.sharded(client, "seen", **OPTIONS, ttl=100) for _ in range(2))
    f.add_many(ITEMS)
    g.contains_many(ITEMS)
    f.clear()
    assert 0 < client.pttl("seen") <= 100_000
    assert all(f.add_many(ITEMS))
    with pytest.raises((FilterLostError, BatchInterruptedError)):
        g.add_many(ITEMS)


def test_expire_and_delete_cover_everything(bloom: Any, client: redis.Redis) -> None:
    """Root, shards, and shards made later; delete leaves nothing but receipts."""
    f = bloom.sharded(client, "seen", **OPTIONS)
    f.add_many(ITEMS[:5])
    f.expire(1000)
    f.add_many(ITEMS)
    for key in ["seen", *shard_keys(client)]:
        assert 990_000 < client.pttl(key) <= 1_000_000
    assert f.delete()
    assert not f.delete()
    assert not client.exists("seen", *shard_keys(client))
    assert f.add("a")


def test_ttl_is_that_of_all_parts(bloom: Any, client: redis.Redis) -> None:
    """The root and every shard expire with it."""
    f = bloom.sharded(client, "seen", **OPTIONS, ttl=50)
    f.add_many(ITEMS)
    assert all(40_000 < client.pttl(key) <= 50_000 for key in ["seen", *shard_keys(client)])


# -- a list of servers


def test_servers_share_the_items(bloom: Any, pair: list[Any]) -> None:
    """Each has some shards; all calls act on both."""
    f = bloom.sharded(pair, "seen", **OPTIONS)
    assert f.add_many([*ITEMS, ITEMS[0]]) == [True] * 400 + [False]
    assert [len(shard_keys(client)) for client in pair] == [8, 8]
    assert f.info().count == 400
    g = bloom.open(pair, "seen", "ShardedBloomFilter")
    assert g.contains_many([*ITEMS, "absent"]) == [True] * 400 + [False]
    assert f.load(range(3000)) == 3000
    assert [bool(claim) for claim in f.claim_many(["x", "y", "x"])] == [True, True, False]
    g.expire(100)
    assert all(client.pttl(key) > 0 for client in pair for key in ["seen", *shard_keys(client)])
    g.clear()
    assert not any(g.contains_many(ITEMS))
    assert g.delete()
    assert not any(client.exists("seen", *shard_keys(client)) for client in pair)
    with pytest.raises(TypeError, match="pipeline is on one"):
        f.queue_add(pair[0].pipeline(), "x")


def test_another_order_or_number_is_refused(bloom: Any, pair: list[Any]) -> None:
    """Before any item is touched."""
    bloom.sharded(pair, "seen", **OPTIONS).add("a")
    first, second = pair
    before = [sorted(client.keys()) for client in pair]
    for clients in ([second, first], [first], first, [second], [first, first], [first, second, first]):
        with pytest.raises(FilterMismatchError, match="server"):
            bloom.sharded(clients, "seen", **OPTIONS).add_many(ITEMS)
    assert [sorted(client.keys()) for client in pair] == before


def test_a_server_without_its_copy_is_noticed(bloom: Any, pair: list[Any]) -> None:
    """It lost everything, or is another one; `reserve()` after the error goes on with it."""
    f = bloom.sharded(pair, "seen", **OPTIONS)
    f.add_many(ITEMS)
    pair[1].flushall()
    g = bloom.sharded(pair, "seen", **OPTIONS)
    with pytest.raises(FilterLostError, match="server 1"):
        g.add("b")
    g.reserve()
    assert 100 < sum(g.add_many(ITEMS)) < 300
    assert not any(g.add_many(ITEMS))


def test_a_server_that_dies_interrupts_and_loses_nothing(bloom: Any, any_server: Server) -> None:
    """What the other one had answered is told when the rest is asked about again."""
    with running(binaries()["valkey-9"], "--save", "", "--appendonly", "yes") as second:
        pair = [any_server.client(), second.client(retry=Retry(NoBackoff(), 0))]
        f = bloom.sharded(pair, "seen", **OPTIONS)
        assert all(f.add_many(ITEMS[:100]))
        second.stop()
        with pytest.raises(BatchInterruptedError) as caught:
            f.add_many(ITEMS)
        second.start()
        told = [*caught.value.results, *f.add_many(caught.value.rest)]
        assert told == [False] * 100 + [True] * 300
        assert f.add_many(ITEMS) == [False] * 400
        second.stop()
        with pytest.raises(BatchInterruptedError) as claimed:
            f.claim_many([f"c{i}" for i in range(50)])
        second.start()
        states = [claim.state for claim in (*claimed.value.results, *f.claim_many(claimed.value.rest))]
        assert states == ["claimed"] * 50


def test_servers_are_asked_at_once(any_server: Server) -> None:
    """A batch takes as long as its slowest server, not as long as all together."""
    stopped = Counter[int]()

    class Slow:
        def __init__(self, place: int, client: redis.Redis) -> None:
            self.place, self.client = place, client

        def __getattr__(self, name: str) -> Any:
            return getattr(self.client, name)

        def pipeline(self, **options: Any) -> Any:
            stopped[self.place] += 1
            barrier.wait(20)
            return self.client.pipeline(**options)

    barrier = threading.Barrier(3)
    with ExitStack() as stack:
        databases = [stack.enter_context(any_server.client(db=db)) for db in range(3)]
        warm = ShardedBloomFilter(databases, "seen", **OPTIONS)
        warm.add_many(ITEMS)
        slow = warm.with_client([Slow(i, client) for i, client in enumerate(databases)])  # type: ignore[arg-type]  # several
        assert slow.add_many(ITEMS) == [False] * 400
    assert stopped == {0: 1, 1: 1, 2: 1}


@given(st.lists(st.one_of(st.text("abc", max_size=9), st.binary(max_size=9))), st.integers(1, 4096))
def test_many_items_are_parted_as_one_is(items: list[str | bytes], count: int) -> None:
    """Each place stands once, under the shard that the item alone has, in order."""
    root = shard_record.plan(1000, 0.01, shards=count)
    parted = root.parted(items)
    places = {i: number for number, own in parted.items() for i in own}
    assert places == {
        i: root.number(item.encode() if isinstance(item, str) else item) for i, item in enumerate(items)
    }
    assert all(own == sorted(own) for own in parted.values())
