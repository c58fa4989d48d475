"""A rotating filter: an item stays for one window at least and one slice longer at most."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

import fakeredis
import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from bloomredis import (
    BatchInterruptedError,
    FilterFullError,
    FilterLostError,
    FilterMismatchError,
    OutcomeUnknownError,
    RotatingBloomFilter,
)
from bloomredis.drivers import running
from bloomredis.stored import planning
from bloomredis.stored.layers.record import MOST_WIDTH, RotatingRecord
from tests.support.inside import inside
from tests.support.losing import LosingClient
from tests.support.racing import race_threads, winners
from tests.support.servers import Server
from tests.support.sizes import examples, sized
from tests.support.values import for_each
from tests.support.waiting import wait_until

KIND = "RotatingBloomFilter"
SIZE: dict[str, Any] = {"capacity": 1000, "error_rate": 1e-9, "window": 2.0}
SHORT: dict[str, Any] = {**SIZE, "window": 0.4}
MANY_SLICES: Final[dict[str, Any]] = {"window": 6.4, "slices": 64}


def make(client: Any, **options: Any) -> RotatingBloomFilter:
    return RotatingBloomFilter(client, **{"name": "seen"} | SIZE | options)


class Clock:
    """The clock of a fake server."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_700_000_000.0
        monkeypatch.setattr(time, "time", lambda: self.now)


@pytest.fixture
def clock() -> Iterator[Clock]:
    """A clock that stands still until a test advances it."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield Clock(monkeypatch)


@pytest.fixture
def fake() -> Any:
    """A client of a server with the process's clock."""
    return fakeredis.FakeRedis(server=fakeredis.FakeServer())


STEPS: Final = st.lists(
    st.tuples(st.sampled_from([0.0, 0.001, 0.3, 0.5, 0.9, 2.0, 2.5, 3.1, 7.0]), st.integers(0, 9)),
    max_size=40,
)


def follow_the_clock(slices: int, steps: list[tuple[float, int]]) -> None:
    """Compare every answer with the times of the adds."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        clock = Clock(monkeypatch)
        f = RotatingBloomFilter(
            fakeredis.FakeRedis(server=fakeredis.FakeServer()), "seen", slices=slices, **SIZE
        )
        width = -(-2_000_000 // slices)
        added: dict[int, int] = {}
        for advance, item in steps:
            clock.now += advance
            now = round(clock.now * 1_000_000) // width
            there = {item for item, at in added.items() if at + slices >= now}
            assert f.contains_many(range(10)) == [number in there for number in range(10)]
            assert f.add(item) == (item not in there)
            if item not in there:
                added[item] = now


@examples()
def test_every_answer_follows_from_the_clock(examples: int) -> None:
    """An item is present from its slice to the end of the one `slices` later, whether idle or not."""
    follow = given(slices=st.integers(1, 5), steps=STEPS)(follow_the_clock)
    settings(max_examples=examples)(follow)()


def test_a_clock_that_goes_back(clock: Clock, fake: Any) -> None:
    """Items stay at least as long as the later time says, and nothing is added twice."""
    f = make(fake)
    assert f.add("a")
    clock.now -= 10
    assert not f.add("a")
    assert f.add("b")
    clock.now += 11.9
    assert f.contains("a")


def test_a_clock_that_goes_back_over_an_end(clock: Clock, fake: Any) -> None:
    """A layer that had just expired is back, and nothing is lost."""
    f = make(fake, window=4.0, slices=4)
    f.add("a")
    clock.now += 2
    f.add("b")
    begun = -(-clock.now // 1) - 2
    clock.now = begun + 5.001  # the slice of "a" ended a window ago
    assert f.contains_many(["a", "b"]) == [False, True]
    assert [layer.count for layer in f.info().layers] == [1]
    clock.now -= 0.005
    assert f.contains_many(["a", "b"]) == [True, True]
    clock.now += 2.1
    assert f.contains_many(["a", "b"]) == [False, False]
    clock.now -= 0.3
    assert f.contains_many(["a", "b"]) == [False, True]


def test_the_most_layers(any_client: redis.Redis, clock: Clock, fake: Any) -> None:
    """A window and a slice have 255 layers at most; expired ones do not count."""
    size: dict[str, Any] = {"capacity": 1, "slices": 1, "window": 3600}
    with pytest.raises(BatchInterruptedError) as stopped:
        make(any_client, **size).add_many(range(300))
    assert stopped.value.results == [True] * 255
    assert isinstance(stopped.value.__cause__, FilterFullError)
    clock.now = float(any_client.time()[0])
    for key in any_client.scan_iter():
        fake.set(key, any_client.get(key), px=any_client.pttl(key))
    f = make(fake, **size)
    for full in (make(any_client, **size), f):
        with pytest.raises(FilterFullError, match="'seen' is full: it has 255 layers"):
            full.add("x")
    assert f.contains_many([0, 255]) == [True, False]
    clock.now += 7200
    assert not f.contains(1)
    assert f.add_many(["x", "y"]) == [True, True]
    assert len(f.info().layers) == 2


def test_layers_that_are_over_do_not_count(client: redis.Redis, bloom: Any) -> None:
    """A record full of expired layers accepts another layer."""
    f = bloom(client, "seen", kind=KIND, **SIZE)
    f.add("a")
    record = inside(f).stored.record
    client.flushall()
    full = replace(record, newest=254, began=tuple(range(1, 256))).pack()
    client.set("seen", full)
    f = bloom(client, "seen", kind=KIND, **SIZE)
    assert not f.contains("a")
    assert f.info().layers == ()
    assert f.add_many(["a", "b"]) == [True, True]
    assert client.strlen("seen") < len(full) / 2  # one layer, or two if a slice has just ended


def test_what_is_over_vanishes_by_itself(client: redis.Redis, bloom: Any) -> None:
    """Without any call the server has no key left, and the next call works."""
    f = bloom(client, "seen", kind=KIND, **SHORT)
    f.add_many(["a", "b"])
    wait_until("every key expires", lambda: client.dbsize() == 0)
    assert not f.contains("a")
    assert f.info().layers == ()
    assert f.add_many(["a", "c", "a"]) == [True, True, False]


def test_open_after_the_end(fake: Any, bloom: Any, clock: Clock) -> None:
    """An object that was open before the end recreates the filter."""
    make(fake).add("a")
    f = bloom.open(fake, "seen", kind=KIND)
    clock.now += 10
    assert not fake.exists("seen")
    assert f.add("a")
    assert f.info().capacity == 1000


def begin_another(f: Any) -> None:
    """Add items until one of them begins a layer."""
    newest = f.info().layers[0].created_at
    wait_until(
        "a new layer is begun",
        lambda: f.add(f"{time.monotonic()}") and f.info().layers[0].created_at != newest,
    )


def test_slices_are_layers(client: redis.Redis, bloom: Any) -> None:
    """`info` has one layer for each slice with an add, the newest first."""
    f = bloom(client, "seen", kind=KIND, **SIZE | {"capacity": 100_000} | MANY_SLICES)
    for number in range(3):
        f.add(f"{number}")
        begin_another(f)
    info = f.info()
    assert 4 <= len(info.layers) <= 66
    begun = [layer.created_at for layer in info.layers]
    assert begun == sorted(begun, reverse=True)
    assert info.count == sum(layer.count for layer in info.layers)
    assert (info.capacity, info.error_rate) == (100_000, 1e-9)
    assert 0 < info.ttl <= 6.5


def test_a_burst_gets_more_layers(client: redis.Redis, bloom: Any) -> None:
    """All items of a window may come in one slice: each layer gets its share, and the rate holds."""
    f = bloom(client, "seen", kind=KIND, capacity=1000, error_rate=0.01, window=60, slices=4)
    new = f.add_many(f"in-{i}" for i in range(1000))
    layers = f.info().layers
    assert sum(layer.count for layer in layers) == sum(new)
    assert max(layer.count for layer in layers) <= 250
    assert 4 <= len(layers) <= 5
    assert all(f.contains_many(f"in-{i}" for i in range(1000)))
    assert sum(f.contains_many(f"out-{i}" for i in range(5000))) <= 5000 * 0.01


def test_one_winner_across_slices(client: redis.Redis) -> None:
    """Threads that begin slices together report each item as new once in a window."""
    filters = [make(client, **MANY_SLICES) for _ in range(4)]
    items = [f"{i}" for i in range(150)]
    told = race_threads(lambda worker: [filters[worker].add(item) for item in items], 4)
    assert winners(told, items) == {1: 150}


def test_duplicates_do_not_prolong(client: redis.Redis) -> None:
    """An item that is seen repeatedly is new again a window and a slice after its add."""
    f = make(client, **SHORT)
    f.create()
    sent = time.monotonic()
    assert f.add("a")
    told = asked = time.monotonic()
    while not f.add("a"):
        assert asked - told <= 0.5
        asked = time.monotonic()
    assert time.monotonic() - sent >= 0.4


def test_a_lost_reply(client: redis.Redis) -> None:
    """A retry reports the item as new, and receipts last no longer than items."""
    losing = LosingClient(client)
    f = make(losing, window=60)
    f.add("x")
    losing.lose = ["lost"]
    with pytest.raises(OutcomeUnknownError) as caught:
        f.add("a")
    assert f.add("a", token=caught.value.token)
    short = make(losing, name="short", window=20)
    short.add("a")
    lives = [client.pttl(key) for key in client.keys("{short}:receipt*")]
    assert lives
    assert all(0 < life <= 25_000 for life in lives)


def test_claims(fake: Any, bloom: Any, clock: Clock) -> None:
    """A committed item is done for a window."""
    f = bloom(fake, "seen", kind=KIND, **SIZE)
    claim = f.claim("a")
    bloom.wait(claim.commit())
    clock.now += 1.9
    assert f.claim("a").state == "done"
    clock.now += 1
    assert f.claim("a").state == "claimed"


@for_each("lost", ["seen", "{seen}:layer:0"])
def test_a_loss_is_told_from_the_end(client: redis.Redis, bloom: Any, lost: str) -> None:
    """A key that is gone before its time is a lost filter."""
    f = bloom(client, "seen", kind=KIND, **SIZE | {"window": 3600})
    f.add("a")
    client.delete(lost)
    with pytest.raises(FilterLostError):
        f.contains("a")
    f.clear()
    assert f.add("a")


def test_other_parameters_are_refused(any_client: redis.Redis) -> None:
    """Window and slices must equal the stored ones."""
    make(any_client, window=60, slices=4).add("a")
    for other in ({"window": 90}, {"slices": 2}, {"capacity": 2}, {"error_rate": 0.1}):
        with pytest.raises(FilterMismatchError, match=next(iter(other))):
            make(any_client, **{"window": 60} | other).add("a")
    assert not make(any_client, window=timedelta(minutes=1)).add("a")


@for_each(
    "bad",
    [
        {"window": 0},
        {"window": -1},
        {"window": "1"},
        {"window": float("inf")},
        {"window": 1, "slices": 11},
        {"slices": 0},
        {"slices": 65},
        {"slices": 2.0},
        {"capacity": 0},
        {"error_rate": 2},
    ],
)
def test_bad_arguments(bad: dict[str, Any]) -> None:
    """Bad arguments are refused without a server."""
    with pytest.raises((ValueError, TypeError)):
        make(None, **bad)


def test_slices_outlast_a_call(any_client: redis.Redis) -> None:
    """Shorter slices are refused, since an add might never reach its layer in time."""
    make(any_client, window=6.4, slices=64).add("a")
    with pytest.raises(ValueError, match=r"90 ms, and needs 100.* fewer slices"):
        make(any_client, window=0.36)


@pytest.mark.every_server
def test_slices_fit_a_record(client: redis.Redis, bloom: Any) -> None:
    """The longest window works on every server; a longer one is refused before any I/O."""
    longest = MOST_WIDTH // 1000 / 1000
    f = bloom(client, "seen", kind=KIND, **SIZE | {"slices": 1, "window": longest})
    assert f.add("a")
    assert not bloom.open(client, "seen", kind=KIND).add("a")
    f.clear()
    assert f.delete()
    for wrong in ({"slices": 1, "window": longest + 0.001}, {"slices": 4, "window": 1e12}):
        with pytest.raises(ValueError, match=r"may have 4503599627: give a shorter window or more slices"):
            bloom(client, "seen", kind=KIND, **SIZE | wrong)
    assert not client.exists("seen")


def test_short_slices_that_are_stored_are_opened(any_client: redis.Redis, bloom: Any) -> None:
    """Another program may have created them."""
    head = planning.whole(1000, 1e-6, None, RotatingRecord.kind)
    short = RotatingRecord(head=head, width=90_000, slices=64).complete()
    stored: Any = inside(make(any_client))
    stored = stored.stored
    stored.new, stored._wanted = short, short.parameters  # which the constructor refuses
    running.drive(any_client, stored.open())
    assert bloom.open(any_client, "seen", kind=KIND).add("a")


def test_expire_has_no_use(any_client: redis.Redis) -> None:
    """Rotating filters have no expire(), since their items expire by themselves."""
    assert not hasattr(make(any_client), "expire")


@dataclass
class Watch:
    """Adds items to a filter at random times, and compares each answer with its request's times."""

    f: RotatingBloomFilter
    window: float
    sent: dict[str, float] = field(default_factory=dict)  # when the add was sent, and when it had its answer
    told: dict[str, float] = field(default_factory=dict)
    kept: int = 0
    gone: int = 0

    def add(self, items: list[str]) -> None:
        before = time.monotonic()
        assert all(self.f.add_many(items))
        after = time.monotonic()
        self.sent |= dict.fromkeys(items, before)
        self.told |= dict.fromkeys(items, after)

    def look(self) -> None:
        """Test items near their limits: they are present until the window's end, and not later."""
        now = time.monotonic()
        near = [
            item
            for item, told in self.told.items()
            if self.window - 0.2 < now - told < self.window * 1.25 + 0.2
        ]
        before = time.monotonic()
        answers = self.f.contains_many(near)
        after = time.monotonic()
        for item, there in zip(near, answers, strict=True):
            if after <= self.sent[item] + self.window:
                self.kept += 1
                assert there, f"gone {after - self.sent[item]:.3f} s after it was added"
            elif before >= self.told[item] + self.window * 1.25:
                self.gone += 1
                assert not there, f"there {before - self.told[item]:.3f} s after it was added"


@sized("parts", make_test=20, make_test_all=100)
def test_at_least_and_at_most(server: Server, parts: int) -> None:
    """Items added at random times, with idle gaps, last as long as promised and no longer; no key remains."""
    generator = random.Random(2)
    with server.client() as client:
        window = 0.02 * parts  # about as long as a burst
        watch = Watch(make(client, capacity=20_000, window=window), window)

        def tested(burst: int) -> bool:
            for part in range(parts):
                watch.add([f"{burst}-{part}-{i}" for i in range(generator.randrange(10, 91))])
                watch.look()
                time.sleep(generator.random() * 0.03)  # random times
            idle = time.monotonic() + window * (1.45 if burst % 2 else 0.65)
            while time.monotonic() < idle:  # no add in this time
                watch.look()
            return burst > 0 and min(watch.kept, watch.gone) > 100 * parts

        bursts = itertools.count()
        wait_until("enough items are tested near their limits", lambda: tested(next(bursts)))
        wait_until("every key expires", lambda: client.dbsize() == 0)
