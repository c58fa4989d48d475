"""A scaling filter: one winner an item, one new layer each time, whoever reaches the limit."""

from __future__ import annotations

import math
import pickle
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import redis

import bloomredis
from bloomredis import (
    BatchInterruptedError,
    BloomFilter,
    FilterFullError,
    FilterLostError,
    FilterMismatchError,
    FilterNotFoundError,
    OutcomeUnknownError,
    ScalingBloomFilter,
)
from bloomredis.bits import sizing
from bloomredis.bits.limits import HEADER_BYTES
from bloomredis.operations.whole import info
from bloomredis.stored import header, planning
from bloomredis.stored.layers.record import ScalingRecord, new_record
from bloomredis.stored.state.handle import Description
from tests.support.losing import LosingClient
from tests.support.racing import flushing_scripts, race_processes, race_threads, winners
from tests.support.servers import Server
from tests.support.sizes import long, short
from tests.support.values import for_each

KIND = "ScalingBloomFilter"
SIZE: dict[str, Any] = {"capacity": 100, "error_rate": 1e-6}


def make(client: Any, **options: Any) -> ScalingBloomFilter:
    return ScalingBloomFilter(client, "seen", **SIZE | options)


def items(count: int, prefix: str = "item") -> list[str]:
    return [f"{prefix}-{i}" for i in range(count)]


def full(f: Any) -> list[int]:
    """Return how many items each layer has, the oldest first."""
    return [layer.count for layer in reversed(f.info().layers)]


@for_each("layout", ["blocked", "classic"])
def test_layers_are_filled_one_after_the_other(client: redis.Redis, bloom: Any, layout: str) -> None:
    """No layer exceeds its capacity or is left early, and every answer is exact."""
    f = bloom(client, "seen", kind=KIND, layout=layout, **SIZE)
    batch = items(900)
    assert f.add_many([*batch, "item-0"]) == [True] * 900 + [False]
    assert [f.add(item) for item in ("item-5", "item-899", "one")] == [False, False, True]
    assert f.contains_many([*batch, "two"]) == [True] * 900 + [False]
    assert full(f) == [100, 200, 400, 201]
    info = f.info()
    assert (info.count, info.capacity, info.error_rate, info.layout) == (901, 1500, 1e-6, layout)
    assert [layer.capacity for layer in info.layers] == [800, 400, 200, 100]


def test_one_by_one(client: redis.Redis, bloom: Any) -> None:
    """A single add that finds a full layer is answered in the same call."""
    f = bloom(client, "seen", kind=KIND, **SIZE)
    assert [f.add(item) for item in items(301)] == [True] * 301
    assert full(f) == [100, 200, 1]


def test_who_knows_fewer_layers_learns_of_them_in_the_same_call(client: redis.Redis, bloom: Any) -> None:
    """The first call that finds new layers answers with them, whatever it is."""
    calls: dict[str, Callable[[Any], Any]] = {
        "contains": lambda f: f.contains("item-899"),
        "contains_many": lambda f: f.contains_many(["item-899", "item-1"]) == [True, True],
        "add": lambda f: not f.add("item-899"),
        "add_many": lambda f: f.add_many(["item-899", "item-1"]) == [False, False],
        "claim": lambda f: f.claim("item-899").state == "done",
        "info": lambda f: len(f.info().layers) == 4,
        "expire": lambda f: not f.expire(100),
    }
    stale: dict[str, Any] = {name: bloom(client, "seen", kind=KIND, **SIZE) for name in calls}
    for f in stale.values():
        f.add("item-0")
    make(client).add_many(items(900))
    assert {name: call(stale[name]) for name, call in calls.items()} == dict.fromkeys(calls, True)


def test_threads_at_the_limit_begin_one_layer(client: redis.Redis) -> None:
    """However many threads find a full layer, they begin one, and none adds to the old one."""
    filters = [make(client, capacity=30) for _ in range(8)]
    batch = items(120)
    told = race_threads(lambda worker: [filters[worker].add(item) for item in batch], 8)
    assert winners(told, batch) == {1: 120}
    assert full(filters[0]) == [30, 60, 30]


def test_a_layer_that_filled_up_meanwhile(client: redis.Redis) -> None:
    """A batch that only partly finds room continues in the next layer."""
    f, other = make(client), make(client)
    f.add_many(items(90))
    assert other.add_many(items(120)) == [False] * 90 + [True] * 30
    assert full(f) == [100, 20]


@for_each("fate", ["lost", "never"])
def test_a_lost_reply_and_a_layer_later(client: redis.Redis, fate: str) -> None:
    """A retry finds its answer although the item is now packed for more layers."""
    losing = LosingClient(client)
    f = make(losing)
    f.add_many(items(90))
    losing.lose = [fate]
    with pytest.raises(OutcomeUnknownError) as one:
        f.add("a")
    losing.lose = [fate]
    with pytest.raises(BatchInterruptedError) as many:
        f.add_many(["b", "item-0", "c"])
    make(client).add_many(items(500))
    assert f.add("a", token=one.value.token)
    assert many.value.results + f.add_many(many.value.rest) == [True, False, True]
    assert not any(f.add_many(["a", "b", "c"]))


def test_a_call_that_comes_twice_across_a_limit(client: redis.Redis) -> None:
    """A retry after its layer is full and another has begun is answered from its receipt."""
    losing = LosingClient(client)
    f = make(losing)
    f.add_many(items(99))
    losing.sent.clear()
    assert f.add("a")
    sent = losing.sent[-1]
    make(client).add_many(items(200, "more"))
    assert losing.execute_command(*sent) == 1


def test_a_claim_outlives_a_new_layer(client: redis.Redis, bloom: Any) -> None:
    """It is committed into the newest layer, and done for everybody."""
    f = bloom(client, "seen", kind=KIND, **SIZE)
    claims = f.claim_many(["a", "b", "item-0"])
    make(client).add_many(items(500))
    bloom.wait(claims[0].commit())
    assert f.contains_many(["a", "b"]) == [True, False]
    assert [claim.state for claim in f.claim_many(["a", "b", "item-0"])] == ["done", "busy", "done"]
    assert full(f) == [100, 200, 201]


def test_a_commit_into_a_full_layer(client: redis.Redis) -> None:
    """The commit begins the next layer."""
    f = make(client)
    claim = f.claim("a")
    f.add_many(items(100))
    claim.commit()
    assert full(f) == [100, 1]


def test_open_reads_everything(client: redis.Redis, bloom: Any) -> None:
    """Growth continues with the stored parameters."""
    made = make(client, expansion=3, tightening_ratio=0.25, layout="classic")
    made.add_many(items(150))
    f = bloom.open(client, "seen", kind=KIND)
    assert f.add_many(items(600)) == [False] * 150 + [True] * 450
    assert [layer.capacity for layer in f.info().layers] == [900, 300, 100]
    assert [layer.error_rate for layer in f.info().layers] == [1e-6 * 0.75 * 0.25**j for j in (2, 1, 0)]
    with pytest.raises(FilterNotFoundError):
        bloom.open(client, "nothing", kind=KIND)


@for_each(
    "other",
    [
        {"capacity": 101},
        {"error_rate": 1e-5},
        {"expansion": 3},
        {"tightening_ratio": 0.6},
        {"layout": "classic"},
    ],
)
def test_other_parameters_are_refused(any_client: redis.Redis, other: dict[str, Any]) -> None:
    """The error has the stored and the wanted values, and no item is touched."""
    make(any_client, layout="blocked").add("a")
    (name,) = other
    with pytest.raises(FilterMismatchError, match=rf"{name} .*ScalingBloomFilter\.open"):
        make(any_client, **other).add("b")


@pytest.mark.parametrize("layout", ["blocked", "classic"])
def test_a_filter_of_an_earlier_release_goes_on_growing(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    """It grows by its old rules, also after clear(); releases without newer rules refuse newer filters."""
    size: dict[str, Any] = {"capacity": 10, "error_rate": 1e-3, "layout": layout}
    new_record.cache_clear()
    with monkeypatch.context() as earlier:
        earlier.setattr(sizing, "RULES", 0)
        old = ScalingBloomFilter(client, "seen", **size)
        new_record.cache_clear()
        assert old.add_many(items(15)) == [True] * 15
    new = ScalingBloomFilter(client, "seen", **size)
    assert new.add_many(items(60)) == [False] * 15 + [True] * 45
    assert old.add_many(items(70)) == [False] * 60 + [True] * 10
    new.clear()
    assert [layer.num_bits for layer in new.info().layers] == [
        planning.new_header(10, 0.9 * 0.5e-3, layout, finest=None, small_blocks=False).num_bits
    ]
    made = ScalingBloomFilter(client, "new", **size)
    made.add_many(items(15))
    with monkeypatch.context() as earlier:
        earlier.setattr(header, "ADOPTED", 0)
        for call in ("create", "info", "clear", "delete"):
            with pytest.raises(FilterMismatchError, match="options 0100000000, unknown to this release"):
                getattr(ScalingBloomFilter(client, "new", **size), call)()
    assert made.add_many(items(15)) == [False] * 15


def test_kinds_are_not_mixed_up(client: redis.Redis, bloom: Any) -> None:
    """Each class refuses what another one made, and names it."""
    make(client)
    make(client).create()
    BloomFilter(client, "plain", **SIZE).create()
    client.set("text", "x")
    client.rpush("list", "x")
    with pytest.raises(FilterMismatchError, match="is a ScalingBloomFilter, not a BloomFilter"):
        bloom.open(client, "seen")
    for kind, name in ((KIND, "plain"), ("RotatingBloomFilter", "seen"), (KIND, "text"), (KIND, "list")):
        with pytest.raises(FilterMismatchError):
            bloom.open(client, name, kind=kind)
    with pytest.raises(FilterMismatchError):
        make(client).with_client(client) and ScalingBloomFilter(client, "plain", **SIZE).add("a")


@for_each(
    "bad",
    [
        {"capacity": 0},
        {"error_rate": 1.0},
        {"expansion": 0},
        {"expansion": 1.5},
        {"expansion": True},
        {"tightening_ratio": 0},
        {"tightening_ratio": 1},
        {"tightening_ratio": "x"},
        {"layout": "other"},
        {"ttl": 0},
        {"on_lost": "x"},
        {"min_replicas": -1},
    ],
)
def test_bad_arguments(bad: dict[str, Any]) -> None:
    """Bad arguments are refused without a server."""
    with pytest.raises((ValueError, TypeError)):
        make(None, **bad)


def test_emptied_and_deleted_as_a_whole(client: redis.Redis, bloom: Any) -> None:
    """Only receipts remain, the expiry stays, and other objects detect it."""
    f, other = (bloom(client, "seen", kind=KIND, ttl=1000, **SIZE) for _ in range(2))
    f.add_many(items(900))
    other.add("x")
    f.clear()
    assert f.info().count == 0
    assert len(client.keys("seen")) + len(client.keys("*layer*")) == 2
    assert 990 < f.info().ttl <= 1000
    with pytest.raises(FilterLostError):
        other.add("x")
    assert f.add_many(items(900)) == [True] * 900
    assert f.delete()
    assert not f.delete()
    assert not client.keys("seen")
    assert not client.keys("*layer*")


def test_every_key_expires(client: redis.Redis, bloom: Any) -> None:
    """Every key expires, including those of later layers."""
    f = bloom(client, "seen", kind=KIND, ttl=1000, **SIZE)
    f.add_many(items(250))
    f.expire(50)
    f.add_many(items(900))
    keys = [*client.keys("seen"), *client.keys("*layer*")]
    assert len(keys) == 5
    assert all(0 < client.pttl(key) <= 50_000 for key in keys)


@for_each("lost", ["seen", "{seen}:layer:0", "{seen}:layer:2", "{seen}:layer:3"])
def test_a_lost_key_is_a_lost_filter(client: redis.Redis, bloom: Any, lost: str) -> None:
    """Whichever key is lost, calls raise until it is handled; after clear() the filter works."""
    f = bloom(client, "seen", kind=KIND, **SIZE | {"capacity": 30})
    f.add_many(items(270))
    client.delete(lost)
    for call in (f.add, f.contains, f.add):
        with pytest.raises(FilterLostError, match=r"clear\(\)"):
            call("item-1")
    f.clear()
    assert f.add_many(items(270)) == [True] * 270


@for_each("lost", ["seen", "{seen}:layer:0", "{seen}:layer:3"])
def test_a_lost_filter_is_made_anew(client: redis.Redis, bloom: Any, lost: str) -> None:
    """With on_lost="recreate" no bit of the lost filter counts for the new one."""
    f = bloom(client, "seen", kind=KIND, on_lost="recreate", **SIZE | {"capacity": 30})
    f.add_many(items(270))
    client.delete(lost)
    assert f.add_many(items(270)) == [True] * 270
    assert full(f) == [30, 60, 120, 60]


def test_it_can_be_full(client: redis.Redis) -> None:
    """If no stricter layer is possible, the item is refused and nothing is lost."""
    f = make(client, capacity=1, error_rate=1e-55, tightening_ratio=1e-4)
    added: list[bool] = []
    with pytest.raises(FilterFullError, match="'seen' is full"):
        added += [f.add(item) for item in items(9)]
    with pytest.raises(BatchInterruptedError) as stopped:
        f.add_many(items(9))
    assert isinstance(stopped.value.__cause__, FilterFullError)
    there = f.contains_many(items(9))
    assert stopped.value.results == [False] * sum(there)
    assert there == [True] * sum(there) + [False] * (9 - sum(there))
    assert 1 < sum(there) < 9


def test_what_cannot_follow_a_new_layer(any_client: redis.Redis) -> None:
    """A growing filter has no queued calls and no copies."""
    assert not {"queue_add", "queue_contains", "snapshot"} & set(dir(make(any_client)))


def test_load_and_dedupe(client: redis.Redis, bloom: Any) -> None:
    """They go through as many layers as needed."""
    f = bloom(client, "seen", kind=KIND, **SIZE | {"capacity": 30})
    assert f.update(items(600)) == 600
    assert list(f.dedupe([*items(600), *items(450, "x")])) == items(450, "x")
    assert full(f) == [30, 60, 120, 240, 480, 120]


def adds_half(url: str, every: Sequence[str], worker: int) -> list[bool]:
    """Add every item that another worker adds too: some singly, others in batches, in any order."""
    half = range(worker // 2, len(every), 2)
    order = random.Random(worker).sample(half, len(half))
    told = [False] * len(every)
    with redis.Redis.from_url(url) as client:
        f = ScalingBloomFilter(client, "race", capacity=1000, error_rate=1e-3)
        for place in order[: len(order) // 50]:
            told[place] = f.add(every[place])
        for start in range(len(order) // 50, len(order), 500):
            places = order[start : start + 500]
            for place, new in zip(places, f.add_many([every[place] for place in places]), strict=True):
                told[place] = new
    return told


@pytest.mark.parametrize(("count", "most"), [short(20_000, 45), long(1_000_000, 1000)])
@pytest.mark.timeout(1200)  # a million items, beside other tests
def test_many_items_from_four_processes(any_server: Server, count: int, most: int) -> None:
    """From a capacity of 1,000: one winner each, the computed layers, the rate and the memory.

    Items that are false positives when they are added have no winner; they are within the rate too. `most`
    allows a thousandth of the items, plus a margin for chance if they are few.
    """
    every = items(count)
    with any_server.client() as client, flushing_scripts(client):
        told = race_processes(adds_half, any_server.url, every, 4)
    won = winners(told, every)
    assert set(won) <= {0, 1}
    assert won[0] <= most
    with any_server.client() as client:
        f = ScalingBloomFilter.open(client, "race")
        layers = math.ceil(math.log2(won[1] / 1000 + 1))  # the layers that hold 1000 * (2**layers - 1) items
        assert full(f) == [*(1000 * 2**j for j in range(layers - 1)), won[1] - 1000 * (2 ** (layers - 1) - 1)]
        others = (f.contains_many(items(count // 100, f"other-{part}")) for part in range(100))
        assert sum(map(sum, others)) <= most
        keys = [key for key in client.scan_iter(count=1000) if b"receipt" not in key]
        used = sum(client.memory_usage(key, samples=0) or 0 for key in keys)
        fixed = BloomFilter(client, "fixed", capacity=f.info().capacity, error_rate=1e-3)
        fixed.create()
        assert used <= 2.2 * (client.memory_usage("fixed", samples=0) or 0)
        assert len(keys) == layers + 1


@for_each("kind", [KIND, "RotatingBloomFilter"])
def test_a_copy_for_another_process(any_server: Server, kind: str) -> None:
    """A pickled filter works with another client, which may decode its replies."""
    own: dict[str, Any] = {"window": 3600} if kind.startswith("Rotating") else {}
    with any_server.client() as client, any_server.client(decode_responses=True) as decoding:
        f = getattr(bloomredis, kind)(client, "seen", **SIZE, **own)
        f.add_many(items(150))
        copy = pickle.loads(pickle.dumps(f)).with_client(decoding)  # noqa: S301 - its own pickle
        assert copy.add_many(items(300)) == [False] * 150 + [True] * 150
        assert copy.info().count == 300
        assert not f.add("item-299")


def test_the_capacity_is_what_the_layers_hold() -> None:
    """The first layer of a huge filter is as large as a key allows; the others come when needed."""
    head = planning.whole(300_000_000, 1e-6, None, ScalingRecord.kind)
    record = ScalingRecord(head=head, expansion=2, tightening_ratio=0.5).complete()
    first = record.planned(0)
    assert first.capacity < 300_000_000
    layer = info.describe("seen", Description(b"", first, first.size_bytes, HEADER_BYTES, None), 0)
    assert info.layered("seen", record, [layer]).capacity == first.capacity
    assert info.layered("seen", record, [layer] * 3).capacity == 3 * first.capacity


@for_each("layout", planning.NAMES)
def test_a_record_that_was_copied_alone_is_said_to_be(client: redis.Redis, bloom: Any, layout: str) -> None:
    """RENAME or DUMP of the one key leaves the layers and their items behind, and the error says so."""
    bloom(client, "seen", kind=KIND, layout=layout, **SIZE).add_many(items(300))
    client.rename("seen", "copied")
    copied = bloom(client, "copied", kind=KIND, layout=layout, **SIZE)
    with pytest.raises(FilterLostError, match="or copied, rename it back; otherwise call clear"):
        copied.contains("item-1")
    copied.clear()
    assert copied.add("item-1")
