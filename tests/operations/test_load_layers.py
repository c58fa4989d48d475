"""Bulk load of filters in layers: by segments, whatever happens to the layers meanwhile."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import fakeredis
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

import bloomredis
from bloomredis import (
    BatchInterruptedError,
    ConnectionFailedError,
    FilterFullError,
    FilterLostError,
    OutcomeUnknownError,
)
from bloomredis.bits.bitmap import Bits
from bloomredis.bits.blocked import Blocked
from bloomredis.bits.hashing import Digests
from bloomredis.operations.whole import layer_bits, loading
from bloomredis.operations.whole.layer_bits import LayerBits
from bloomredis.protocol import forms, scripts
from bloomredis.stored import planning
from bloomredis.stored.state.handle import Layer
from tests.support.counting_calls import counted_calls
from tests.support.dying import Died, MortalClient
from tests.support.inside import inside
from tests.support.losing import losing
from tests.support.proxy import lost, passed, proxied
from tests.support.racing import race_processes, race_threads
from tests.support.servers import Server
from tests.support.sizes import sized
from tests.support.values import for_each

pytestmark = pytest.mark.faults

SLICE = 10_000_000.0  # so long that none ends during a test on a real server
KINDS: dict[str, dict[str, Any]] = {
    "ScalingBloomFilter": {"capacity": 500, "error_rate": 1e-9},
    "RotatingBloomFilter": {"capacity": 2000, "error_rate": 1e-9, "window": 4 * SLICE, "slices": 4},
}
"""Kinds of filters whose first layer has room for 500 items."""

ITEMS = [f"item-{i}" for i in range(5000)]


def make(client: Any, kind: str, **options: Any) -> Any:
    return getattr(bloomredis, kind)(client, "seen", **KINDS[kind] | options)


def counts(f: Any) -> list[int]:
    """Return the number of items that each layer has counted, the oldest first."""
    return [layer.count for layer in reversed(f.info().layers)]


def not_fuller_than_counted(f: Any) -> bool:
    """Return whether no layer has more bits than it counts, or an older one than its capacity allows.

    A layer that was the newest until the middle of a batch may have some bits of items that went to the
    next.
    """
    newest, *older = f.info().layers
    most = [newest.count, *(layer.capacity for layer in older)]
    layers = zip([newest, *older], most, strict=True)
    return all(layer.approximate_count <= count * 1.05 + 3 for layer, count in layers)


@pytest.fixture(autouse=True)
def in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make batches, pieces and segments small, as if the filters were large."""
    for name, module in list(sys.modules.items()):
        if name.startswith("bloomredis.") and hasattr(module, "LOAD_ITEMS"):
            monkeypatch.setattr(module, "LOAD_ITEMS", 700)
    monkeypatch.setattr(loading, "HASHED_AT_ONCE", 300)
    monkeypatch.setattr(loading, "SEGMENT_BYTES", 1024)
    monkeypatch.setattr(loading, "FEWEST_BYTES", 8000)
    monkeypatch.setattr(loading, "DENSE", 5)
    monkeypatch.setattr(layer_bits, "PIECE_BYTES", 1000)
    monkeypatch.setattr(layer_bits, "RUN_BYTES", 3000)


class Interrupted:
    """A client that calls a function before each of its round trips, with the commands to send."""

    def __init__(self, client: redis.Redis, before: Callable[[tuple[Any, ...]], None]) -> None:
        self._client: Any = client
        self._before = before

    def execute_command(self, *command: Any, **options: Any) -> Any:
        self._before(command)
        return self._client.execute_command(*command, **options)

    def pipeline(self, *, transaction: bool) -> Any:
        self._before(())
        return self._client.pipeline(transaction=transaction)


class Once:
    """Runs an action before the round trip with that number."""

    def __init__(self, at: int, action: Callable[[], object]) -> None:
        self.left, self._action = at, action

    def __call__(self, _: object) -> None:
        self.left -= 1
        if self.left == 0:
            self._action()


class Clock:
    """The clock of a fake server."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_700_000_000.0
        monkeypatch.setattr(time, "time", lambda: self.now)

    def next_slice(self) -> None:
        """Advance the clock by a slice."""
        self.now += SLICE


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that stands still until a test advances it."""
    return Clock(monkeypatch)


@pytest.fixture
def fake() -> Any:
    """A client of a server with the process's clock."""
    return fakeredis.FakeRedis(server=fakeredis.FakeServer())


@for_each("kind, full", [
    ("ScalingBloomFilter", [500, 1000, 500]),
    ("RotatingBloomFilter", [500] * 4),
])  # fmt: skip
@for_each("layout", planning.NAMES)
def test_layers_are_filled_one_after_the_other(
    server: Server, bloom: Any, kind: str, layout: str, full: list[int]
) -> None:
    """Every layer is filled to its capacity beside existing items; a second load adds nothing."""
    with server.client() as client:
        f = bloom(client, "seen", kind=kind, layout=layout, **KINDS[kind])
        f.add_many(ITEMS[100:800])
        done: list[int] = []
        assert f.update(iter([*ITEMS[:2000], *ITEMS[:100]]), done.append) == 2100
        assert done[-1] == 2100
        assert done == sorted(set(done))
        assert counts(f) == full
        assert f.update(reversed(ITEMS[:2000])) == 2000
        assert counts(f) == full
        assert all(f.contains_many(ITEMS[:2000]))
        assert not_fuller_than_counted(f)
        assert not client.keys("*segment*")


@for_each("kind", KINDS)
def test_segments_are_sent(any_server: Server, kind: str) -> None:
    """No item is sent as probes, except the few that remain at the end."""
    with any_server.client() as client:
        f = make(client, kind)
        f.create()
        client.config_resetstat()
        f.update(ITEMS)
        done: Any = client.info("commandstats")
    assert done["cmdstat_evalsha"]["calls"] + done["cmdstat_eval"]["calls"] < 600
    assert done["cmdstat_bitcount"]["calls"] > 5


@for_each("blocks", [1, 2])
def test_the_positions_of_a_batch_are_computed_once_for_all_layers(blocks: int) -> None:
    """Each layer finds the bits that it would compute by itself."""
    layouts = [Blocked(2560 * size, 2 * hashes * blocks, blocks) for size, hashes in ((9, 5), (6, 4), (3, 3))]
    layers = [Layer(b"layer", b"identity", layout) for layout in layouts]
    older = [Bits(layout) for layout in layouts]
    for bits, items in zip(older[1:], (ITEMS[:20], ITEMS[20:40]), strict=True):
        bits.layout.hashed(items).addresses().set(bits.array)
    digests, fresh = Digests.of(ITEMS[:100]), Digests.of(ITEMS[40:100])
    with counted_calls() as calls:
        absent = LayerBits(Any, layers, older, room=100).absent(digests)  # type: ignore[arg-type]  # unused
        found = layouts[0].hashed(digests.take(absent))
    assert calls["_move_batch"] == blocks
    assert absent.tolist() == [*range(40, 100)]
    assert found.packed() == layouts[0].hashed(fresh).packed() == layouts[0].pack(ITEMS[40:100])


@for_each("kind", KINDS)
def test_few_items_are_added_probe_by_probe(
    any_server: Server, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few items are sent as probes, since the bits of the layers would take longer."""
    monkeypatch.setattr(loading, "DENSE", 1 << 40)
    with any_server.client() as client:
        f = make(client, kind)
        client.config_resetstat()
        assert f.update(ITEMS[:1200]) == 1200
        assert "cmdstat_bitop" not in client.info("commandstats")
        assert sum(counts(f)) == 1200


@for_each("most", [1, 2600, 7000])
def test_layers_that_take_too_much_memory(
    client: redis.Redis, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The remaining items are sent as probes, from the first one without room in the layers."""
    monkeypatch.setattr(loading, "MOST_BYTES", most)
    f = make(client, "ScalingBloomFilter")
    assert f.update(ITEMS) == 5000
    assert counts(f) == [500, 1000, 2000, 1500]
    assert all(f.contains_many(ITEMS))


@for_each("kind", KINDS)
def test_no_item_is_read_for_a_layer_of_its_own(client: redis.Redis, kind: str) -> None:
    """Items are hashed once; the hashes that are kept give the bits of any layer."""
    f = make(client, kind)
    f.add_many(ITEMS)
    stored = inside(f).stored
    for layer in stored.recorded_layers(stored.handle):
        assert layer.layout.pack(Digests.of(ITEMS[:9])) == layer.layout.pack(ITEMS[:9])
        assert layer.layout.pack(Digests.of(ITEMS)) == layer.layout.pack(ITEMS)
    assert stored.handle.layout.pack(Digests.of(ITEMS)) == stored.handle.layout.pack(ITEMS)


@sized("step", make_test=4, make_test_all=1)
@for_each("kind", KINDS)
def test_a_process_that_dies_on_the_way(client: redis.Redis, kind: str, step: int, seed: int) -> None:
    """If it dies before any round trip, no layer exceeds its count, and the next load adds the rest."""
    left = seed % step
    while True:
        client.flushall()
        f = make(client, kind)
        f.add_many(ITEMS[:200])
        try:
            make(MortalClient(client, left), kind).update(ITEMS[:1100])
            break
        except Died:
            assert not_fuller_than_counted(f), left
            f.update(ITEMS[:1100])
            assert all(f.contains_many(ITEMS[:1100])), left
            assert not_fuller_than_counted(f), left
        left += step
    assert left > 20
    assert sum(counts(f)) == 1100


@for_each("kind", KINDS)
def test_lost_replies_lose_nothing(server: Server, kind: str) -> None:
    """After any number of interruptions, a repeated load ends with every item in."""
    with losing(server.socket, share=0.03) as proxy, server.client() as client:
        make(client, kind).create()
        f = make(redis.Redis(port=proxy.port, retry=Retry(NoBackoff(), 0)), kind)
        interruptions = 0
        while True:
            try:
                assert f.update(ITEMS[:3000]) == 3000
                break
            except (OutcomeUnknownError, ConnectionFailedError, BatchInterruptedError):
                interruptions += 1
        assert interruptions
        f = make(client, kind)
        assert all(f.contains_many(ITEMS[:3000]))
        assert sum(counts(f)) >= 3000
        assert not_fuller_than_counted(f)


@for_each("kind", KINDS)
def test_a_segment_that_is_sent_again_is_nobody_elses(server: Server, kind: str) -> None:
    """After a lost reply the client sends it again; no layer gets more items than it counts."""
    with proxied(server.socket) as proxy, server.client() as client:
        make(client, kind).create()
        f = make(proxy.client(retries=1), kind)
        for _ in range(3):
            proxy.plan("or_segment", lost, passed, lost)
            f.update(ITEMS[: sum(counts(f)) + 1500])
        f = make(client, kind)
        assert all(f.contains_many(ITEMS[:4500]))
        assert sum(counts(f)) == 4500
        assert not_fuller_than_counted(f)
        full = [layer.approximate_count / layer.capacity for layer in f.info().layers]
        assert max(full) < 1.1


@pytest.mark.parametrize("verb", ["add_count", "or_segment"])
def test_slices_that_end_sooner_than_a_batch_is_sent(fake: Any, clock: Clock, verb: str) -> None:
    """The items are then added probe by probe, so the load ends; the next batch is sent in segments again."""
    names = ("add_count", "or_segment")
    shas = {name: scripts.load_script(name, variant=("layers",)).sha for name in names}
    sent: list[str] = []

    def before(command: tuple[Any, ...]) -> None:
        sent.extend(name for name in names if shas[name] in command)
        if shas[verb] in command and sent.count(verb) <= loading.VAIN_ROUNDS:
            clock.next_slice()

    make(Interrupted(fake, before), "RotatingBloomFilter").update(ITEMS[:1100])
    assert sent.count(verb) > loading.VAIN_ROUNDS
    assert all(make(fake, "RotatingBloomFilter").contains_many(ITEMS[:1100]))


def test_known_items_do_not_lower_the_count_of_an_overfull_layer(client: redis.Redis) -> None:
    """The adopted filter has more items than its capacity."""
    bloomredis.BloomFilter(client, "seen", capacity=1000, error_rate=1e-9).add_many(ITEMS[:2500])
    f = bloomredis.ScalingBloomFilter.adopt(client, "seen", expansion=2)
    before = counts(f)
    assert f.update(ITEMS[:2500]) == 2500
    assert counts(f) == before


@sized("step", make_test=8, make_test_all=1)
@for_each("kind", KINDS)
def test_others_who_add_before_any_round_trip(client: redis.Redis, kind: str, step: int, seed: int) -> None:
    """Others' items may make the filter grow or leave little room: all are in, and counted once."""
    for at in range(1 + seed % step, 60, step):
        client.flushall()
        f, other = make(client, kind), make(client, kind)
        f.add_many(ITEMS[:50])
        theirs = [*ITEMS[300:340], *(f"other-{i}" for i in range(30 * at))]
        once = Once(at, lambda: other.add_many(theirs))  # noqa: B023 - called in this turn
        make(Interrupted(client, once), kind).update(ITEMS[:1200])
        if once.left > 0:
            break
        assert all(f.contains_many([*ITEMS[:1200], *theirs])), at
        assert not_fuller_than_counted(f), at
        assert sum(counts(f)) == pytest.approx(1200 + 30 * at, abs=40), at
        assert all(layer.count <= layer.capacity for layer in f.info().layers), at
    assert at > 20


@sized("step", make_test=8, make_test_all=1)
def test_a_slice_that_ends_before_any_round_trip(fake: Any, clock: Clock, step: int, seed: int) -> None:
    """All items are in a layer that has the whole window before it; each is counted once."""
    at, over = 1 + seed % step, False
    while not over:
        fake.flushall()
        f = make(fake, "RotatingBloomFilter", capacity=1000)
        f.add_many(ITEMS[:100])
        once = Once(at, clock.next_slice)
        make(Interrupted(fake, once), "RotatingBloomFilter", capacity=1000).update(ITEMS[:600])
        over = once.left > 0
        assert all(f.contains_many(ITEMS[:600])), at
        assert not_fuller_than_counted(f), at
        assert sum(counts(f)) == 600, at
        at += step
    assert at > 20


@sized("step", make_test=8, make_test_all=1)
@for_each("count", [300, 600])
def test_items_of_a_layer_that_ends_meanwhile(
    fake: Any, clock: Clock, count: int, step: int, seed: int
) -> None:
    """They are added again, so the loader has them for a whole window."""
    at, over = 1 + seed % step, False
    while not over:
        fake.flushall()
        f = make(fake, "RotatingBloomFilter")
        f.add_many(ITEMS[:300])
        for _ in range(4):
            clock.next_slice()
        once = Once(at, clock.next_slice)
        make(Interrupted(fake, once), "RotatingBloomFilter").update(ITEMS[:count])
        over = once.left > 0
        assert all(f.contains_many(ITEMS[:count])), at
        at += step
    assert at > 5


@sized("step", make_test=4, make_test_all=1)
@for_each("kind", KINDS)
@for_each("change", ["clear", "evict the newest", "evict an older", "evict the record"])
def test_a_loss_before_any_round_trip(
    client: redis.Redis, kind: str, change: str, step: int, seed: int
) -> None:
    """The load detects it as an add does, and never returns for a filter that lacks its items."""

    def lose() -> None:
        if change == "clear":
            make(client, kind).clear()
        else:
            client.delete(
                {"evict the newest": "{seen}:layer:1", "evict an older": "{seen}:layer:0"}.get(change, "seen")
            )

    noticed = 0
    for at in range(1 + seed % step, 200, step):
        client.flushall()
        make(client, kind).add_many(ITEMS[:700])
        once = Once(1000, lose)
        f = make(Interrupted(client, once), kind)
        f.contains("a")
        once.left = at
        try:
            f.update(ITEMS[:1200])
        except FilterLostError:
            noticed += 1
            continue
        assert once.left >= 0, at
        break
    assert noticed * step > 8


@for_each("kind", KINDS)
@for_each("verb", ["read", "add_count", "or_segment"])
def test_a_loss_that_is_no_matter(client: redis.Redis, kind: str, verb: str) -> None:
    """With on_lost="recreate" the batch goes to the current filter."""
    shas = {scripts.load_script(verb, variant=each).sha for each in scripts.variants(verb)}
    once = Once(1, lambda: make(client, kind).clear())
    f = make(
        Interrupted(client, lambda sent: once(sent) if shas & set(sent) else None), kind, on_lost="recreate"
    )
    f.create()
    f.update(ITEMS[:600])
    assert once.left <= 0
    f = make(client, kind)
    assert all(f.contains_many(ITEMS[:600]))
    assert sum(counts(f)) == 600


@for_each("kind", KINDS)
def test_a_server_that_comes_back_with_an_older_state(client: redis.Redis, kind: str) -> None:
    """The load adds again the items that it knew and the server has lost."""
    sha = scripts.load_script("or_segment", forms.data, variant=("layers",)).sha
    f = make(client, kind)
    f.create()
    before: Any = client.dump("{seen}:layer:0")
    f.add_many(ITEMS[:100])
    once = Once(1, lambda: client.restore("{seen}:layer:0", 0, before, replace=True))
    interrupted: Any = Interrupted(client, lambda sent: once(sent) if sha in sent else None)
    make(interrupted, kind).update(ITEMS[:400])
    assert once.left <= 0
    assert all(f.contains_many(ITEMS[:400]))


@for_each("kind", KINDS)
def test_two_threads_load_the_same(server: Server, kind: str) -> None:
    """Every item is in, and is counted once, or more often the more the loads keep step."""

    def work(worker: int) -> list[bool]:
        with server.client() as client:
            order = random.Random(worker).sample(ITEMS, len(ITEMS))
            return [make(client, kind).update(order) == len(ITEMS)]

    assert race_threads(work, 3) == [[True]] * 3
    with server.client() as client:
        everything_is_in(make(client, kind), ITEMS, most=3)


def test_processes_load_the_same(any_server: Server) -> None:
    """Every item is in, and is counted once, or more often the more the loads keep step."""
    with any_server.client() as client:
        for kind in KINDS:
            client.flushall()
            assert race_processes(loads_of[kind], any_server.url, ITEMS[:2000], 3) == [[True]] * 3
            everything_is_in(make(client, kind), ITEMS[:2000], most=3)


def loads_scaling(url: str, items: Sequence[str], worker: int) -> list[bool]:
    return [loads_into(url, "ScalingBloomFilter", items, worker)]


def loads_rotating(url: str, items: Sequence[str], worker: int) -> list[bool]:
    return [loads_into(url, "RotatingBloomFilter", items, worker)]


loads_of = {"ScalingBloomFilter": loads_scaling, "RotatingBloomFilter": loads_rotating}


def loads_into(url: str, kind: str, items: Sequence[str], worker: int) -> bool:
    order = random.Random(worker).sample(items, len(items))
    with redis.Redis.from_url(url) as client:
        return bool(make(client, kind).update(order) == len(items))


def everything_is_in(f: Any, items: list[str], most: int) -> None:
    """Check that all items are in, each counted once to `most` times: once by each of the loads."""
    assert all(f.contains_many(items))
    assert not_fuller_than_counted(f)
    assert len(items) <= sum(counts(f)) <= most * len(items)
    assert all(layer.count <= layer.capacity for layer in f.info().layers)


@for_each("kind", KINDS)
def test_others_may_add_meanwhile(server: Server, kind: str) -> None:
    """No bit of either is lost, though both make the filter grow."""
    others = [f"other-{i}" for i in range(1000)]

    def add() -> None:
        with server.client() as client:
            f = make(client, kind)
            for start in range(0, len(others), 10):
                f.add_many(others[start : start + 10])

    thread = threading.Thread(target=add)
    thread.start()
    with server.client() as client:
        f = make(client, kind)
        f.update(ITEMS[:3000])
        thread.join()
        assert all(f.contains_many([*ITEMS[:3000], *others]))
        assert sum(counts(f)) == pytest.approx(4000, abs=100)
        assert not_fuller_than_counted(f)


class Disturbed:
    """A client with others' calls before its round trips, lost replies, and slices that end."""

    def __init__(self, client: Any, clock: Clock, kind: str, dice: random.Random) -> None:
        self._client, self._clock, self._dice = client, clock, dice
        self._other = make(client, kind)
        self.theirs: list[str] = []

    def execute_command(self, *command: Any, **options: Any) -> Any:
        chance = self._dice.random()
        if chance < 0.1:
            some = [f"other-{self._dice.randrange(2000)}" for _ in range(self._dice.choice((1, 30, 300)))]
            self._other.add_many(some)
            self.theirs += some
        elif chance < 0.15:
            self._other.update(self._dice.sample(ITEMS[:1500], 300))
        elif chance < 0.2:
            self._clock.now += SLICE * self._dice.random() / 10
        reply = self._client.execute_command(*command, **options)
        if chance > 0.98:
            raise redis.exceptions.ConnectionError("the reply is lost")
        return self._client.execute_command(*command, **options) if chance > 0.95 else reply

    def pipeline(self, *, transaction: bool) -> Any:
        return self._client.pipeline(transaction=transaction)


@sized("seeds", make_test=2, make_test_all=100)
@pytest.mark.parametrize("kind", KINDS)
def test_others_faults_and_the_clock(fake: Any, clock: Clock, kind: str, seeds: int) -> None:
    """In any order of faults, each item reported as loaded is in, and no layer exceeds its capacity."""
    for seed in range(seeds):
        fake.flushall()
        dice = random.Random(seed)
        disturbed = Disturbed(fake, clock, kind, dice)
        items = dice.sample(ITEMS[:2000], dice.choice((100, 900)))
        loaded = False
        while not loaded:
            with suppress(OutcomeUnknownError, ConnectionFailedError, BatchInterruptedError):
                loaded = make(disturbed, kind).update(items) == len(items)
        f = make(fake, kind)
        assert all(f.contains_many([*items, *disturbed.theirs[-300:]])), seed
        assert not_fuller_than_counted(f), seed
        assert all(layer.count <= layer.capacity for layer in f.info().layers), seed


@for_each("kind", KINDS)
@for_each("layout", planning.NAMES)
def test_the_error_rate(client: redis.Redis, kind: str, layout: str) -> None:
    """It stays below the configured rate when all layers are full."""
    f = make(client, kind, error_rate=0.01, layout=layout, capacity=1000)
    count = 1000 * 15 if kind == "ScalingBloomFilter" else 250 * 8
    f.update(f"item-{i}" for i in range(count))
    absent = sum(f.contains_many([f"absent-{i}" for i in range(10_000)]))
    assert absent <= 100 + 3 * 100**0.5
    assert not_fuller_than_counted(f)


def test_a_filter_that_can_have_no_other_layer(client: redis.Redis) -> None:
    """The error says so, and how many of the items are in."""
    growth = {"capacity": 100, "error_rate": 1e-9, "expansion": 1, "tightening_ratio": 1e-5}
    f = make(client, "ScalingBloomFilter", **growth)
    with pytest.raises(BatchInterruptedError, match=r"^\d{3,4} items were added") as met:
        f.update(ITEMS)
    assert isinstance(met.value.__cause__, FilterFullError)
    there = f.contains_many(ITEMS)
    assert sum(there) == sum(counts(f)) == 100 * len(counts(f))
