"""Cluster clients, on clusters of three primaries and three replicas that reshard and fail over."""

from __future__ import annotations

import asyncio
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio
from redis.cluster import LoadBalancingStrategy

import bloomredis.asyncio
from bloomredis import (
    BloomFilter,
    ClaimLostError,
    FilterLostError,
    OutcomeUnknownError,
    ScalingBloomFilter,
    ShardedBloomFilter,
    compat,
)
from bloomredis.protocol import cluster
from tests.support.clusters import Cluster, Node, wait_until
from tests.support.clusters import cluster as started
from tests.support.resharding import Report, item_of, storm
from tests.support.servers import binaries

NAMES = ["seen", "tag{ged}", "{ged}"]
SMALL: dict[str, Any] = {"capacity": 10_000, "error_rate": 1e-9}
SERVERS = [name for name in ("redis-6.2", "redis-8", "valkey-9") if name in binaries()]
ITEMS = 4000
OUTLASTED = 0.8
"""Seconds that a slot is on its way: more than redis-py's own patience with TRYAGAIN, which is 0.4 s."""


@pytest.fixture(params=SERVERS, scope="module")
def formed(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of each server in turn."""
    with started(binaries()[request.param]) as made:
        yield made


@pytest.fixture
def nodes(formed: Cluster) -> Cluster:
    """The cluster, empty, with no script known and nothing counted."""
    for node in formed.primaries():
        node.ask("FLUSHALL")
    for node in formed.nodes:
        node.ask("SCRIPT", "FLUSH")
        node.ask("CONFIG", "RESETSTAT")
    return formed


@pytest.fixture
def client(nodes: Cluster) -> Iterator[Any]:
    """A synchronous cluster client."""
    with nodes.client() as made:
        yield made


def away(nodes: Cluster) -> Node:
    """Return a primary that does not serve the key."""
    return next(node for node in nodes.primaries() if node is not nodes.primary_of("seen"))


@pytest.mark.parametrize("options", [{}, {"min_replicas": 1}], ids=["", "min_replicas"])
@pytest.mark.parametrize("name", NAMES)
def test_every_call(client: Any, bloom: Any, name: str, options: dict[str, Any]) -> None:
    """All of a filter's keys lie in one slot, whatever its name is."""
    f = bloom(client, name, **SMALL, **options)
    f.reserve()
    assert f.add_many(["a", "b", "a"]) == [True, True, False]
    assert [f.add("a"), f.add("c"), "c" in f, f.contains("d")] == [False, True, True, False]
    assert f.contains_many(["a", "x"]) == [True, False]
    assert list(f.dedupe(["d", "a", "d"])) == ["d"]
    assert f.load(f"loaded {i}" for i in range(1000)) == 1000
    assert (f.info().count, f.snapshot().contains("loaded 7")) == (1004, True)
    assert 990 < f.approximate_count() < 1010
    f.expire(1000)
    assert f.info().ttl == pytest.approx(1000, abs=5)
    f.clear()
    assert f.add("a")
    assert f.delete()
    assert not f.delete()


@pytest.mark.parametrize("options", [{}, {"min_replicas": 1}], ids=["", "min_replicas"])
def test_claims(client: Any, bloom: Any, options: dict[str, Any]) -> None:
    """A claim's key lies beside the filter."""
    ours, theirs = (bloom(client, "tag{ged}", **SMALL, **options) for _ in range(2))
    claims = ours.claim_many(["a", "b", "c"])
    assert [claim.state for claim in claims] == ["claimed"] * 3
    assert theirs.claim("a").state == "busy"
    bloom.wait(claims[0].extend(60))
    bloom.wait(claims[0].commit())
    bloom.wait(claims[1].release())
    assert theirs.claim("b").state == "claimed"
    assert [theirs.claim(item).state for item in "ac"] == ["done", "busy"]
    with pytest.raises(ClaimLostError):
        bloom.wait(claims[1].commit())


@pytest.mark.parametrize("options", [{}, {"min_replicas": 1}], ids=["", "min_replicas"])
def test_large_batches_and_loads(nodes: Cluster, options: dict[str, Any]) -> None:
    """Its bits are read as they are by clients that decode replies."""

    async def main() -> list[bool]:
        async with redis.asyncio.RedisCluster(**nodes.at, decode_responses=True) as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", **SMALL, **options)
            return await f.add_many(range(1000, 3000))

    with nodes.client(decode_responses=True) as client:
        f = BloomFilter(client, "seen", **SMALL, **options)
        assert f.add_many(range(2000)) == [True] * 2000
        assert asyncio.run(main()) == [False] * 1000 + [True] * 1000
        assert f.load(range(4000)) == 4000
        assert f.info().count == 4000


def test_a_pipeline(client: Any) -> None:
    """Queued calls of two filters are answered at their places, also when the scripts were flushed."""
    filters = [BloomFilter(client, name, **SMALL) for name in NAMES[:2]]
    for round_ in range(2):
        client.script_flush()
        pipe = client.pipeline()
        for i in range(100):
            filters[i % 2].queue_add(pipe, f"{round_}-{i // 4}")
        assert pipe.execute() == [1, 1, 0, 0] * 25


def test_the_asyncio_client(nodes: Cluster) -> None:
    """Calls share round trips, and a pipeline is answered."""

    async def main() -> None:
        async with redis.asyncio.RedisCluster(**nodes.at) as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", **SMALL)
            assert sum(await asyncio.gather(*(f.add(f"{i % 50}") for i in range(100)))) == 50
            pipe = client.pipeline()
            for item in ("x", "y", "x"):
                await f.queue_add(pipe, item)
            assert await pipe.execute() == [1, 1, 0]

    asyncio.run(main())


@pytest.mark.parametrize("options", [{}, {"min_replicas": 1}], ids=["", "min_replicas"])
@pytest.mark.parametrize("kind", ["ScalingBloomFilter", "RotatingBloomFilter", "CountingBloomFilter"])
@pytest.mark.parametrize("name", NAMES)
def test_every_kind(client: Any, bloom: Any, name: str, kind: str, options: dict[str, Any]) -> None:
    """All keys of a filter lie in one slot, those of its layers too."""
    own: dict[str, Any] = {"window": 3600} if kind.startswith("Rotating") else {}
    capacity = 1000 if kind.startswith("Counting") else 100  # the others get several layers
    f = bloom(client, name, kind=kind, capacity=capacity, error_rate=1e-9, **own, **options)
    assert f.add_many(range(350)) == [True] * 350
    other = bloom.open(client, name, kind=kind)
    assert [other.add(5), other.add("x"), "x" in f, f.contains("y")] == [False, True, True, False]
    claim = f.claim("z")
    bloom.wait(claim.commit())
    assert f.contains_many(["z", "y"]) == [True, False]
    assert f.info().count >= 352
    if kind.startswith("Counting"):
        assert [f.remove(7), f.remove(7), f.contains(7)] == [True, False, False]
    f.clear()
    assert f.add(5)
    assert f.delete()


@pytest.mark.parametrize("options", [{}, {"min_replicas": 1}], ids=["", "min_replicas"])
def test_a_sharded_filter(client: Any, bloom: Any, options: dict[str, Any]) -> None:
    """Its shards are spread over the nodes; all calls work, and a shard that is lost is noticed."""
    f = bloom.sharded(client, "seen", capacity=1000, error_rate=1e-9, **options)
    assert f.add_many([*range(300), 0]) == [True] * 300 + [False]
    assert [f.add(5), f.add(1000), 1000 in f] == [False, True, True]
    assert bloom.open(client, "seen", kind="ShardedBloomFilter").contains_many([5, 2000]) == [True, False]
    assert f.load(range(500)) == 500
    assert f.info().count == 501
    assert [claim.state for claim in f.claim_many([5, 3000])] == ["done", "claimed"]
    f.expire(100)
    keys = client.keys("{seen:*}", target_nodes="primaries")
    assert len({client.get_node_from_key(key).name for key in keys}) == 3
    assert all(client.pttl(key) > 0 for key in keys)
    client.delete(next(key for key in keys if key.startswith(b"{seen:7:")))
    with pytest.raises(FilterLostError):
        f.reserve()
    f.clear()
    assert all(f.add_many(range(300)))
    assert f.delete()


def test_a_batch_goes_to_all_nodes_at_once(nodes: Cluster, client: Any) -> None:
    """Over 16 shards on three nodes it is one round trip, and each node is asked by one pipeline."""
    f = ShardedBloomFilter(client, "seen", capacity=10_000, error_rate=1e-9)
    f.add_many(range(1000))
    acts: list[Any] = []
    run = cluster.run

    def watched(watched_client: Any, step: Any) -> Any:
        operation = run(watched_client, step)
        reply = None
        try:
            while True:
                act = operation.send(reply)
                acts.append(act)
                reply = yield act
        except StopIteration as end:
            return end.value

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "run", watched)
        assert f.add_many(range(500, 1500)) == [False] * 500 + [True] * 500
    (sent,) = [act for act in acts if isinstance(act, cluster.SendAll)]
    assert len(sent.sends) == 3
    assert sum(len(send.commands) for send in sent.sends) == 16
    assert not [act for act in acts if isinstance(act, cluster.Send)]


# -- where a script is not known, and where the slot is not


def test_a_failover_costs_one_extra_round_trip(nodes: Cluster, client: Any, bloom: Any) -> None:
    """A node that never saw a script is taught by the call itself, once."""
    f = bloom(client, "seen", **SMALL, min_replicas=1)
    assert f.add("a")
    now = nodes.fail_over(nodes.primary_of("seen"))
    now.ask("CONFIG", "RESETSTAT")
    assert [f.add("a"), f.add("b"), f.add("c")] == [False, True, True]
    # The EVALs besides are those that touch the filter before each WAIT.
    assert (now.calls("evalsha"), now.calls("eval") - 3 - 1) == (3, 1)


def test_a_write_that_no_replica_confirms(nodes: Cluster, client: Any, bloom: Any) -> None:
    """The replicas of the node that has the key count, not those of others."""
    f = bloom(client, "seen", **SMALL, min_replicas=2, replica_timeout=0.05)
    with pytest.raises(OutcomeUnknownError, match="1 of 2 replicas") as caught:
        bloom(client, "seen", **SMALL).reserve() or f.add("a")
    assert bloom(client, "seen", **SMALL).add("a", token=caught.value.token)


class Model:
    """Calls in threads, and whether their answers are what those of a set would be."""

    def __init__(self, f: Any, seed: int) -> None:
        self.f = f
        self.dice = random.Random(seed)
        self.added: set[str] = set()
        self.answers = 0
        self.wrong: list[Any] = []

    def step(self) -> None:
        """Make a call of any kind, and compare the answer."""
        item, more = self._item(), [self._item() for _ in range(5)]
        call = self.dice.choice([self._contains, self._add, self._claim, self._many])
        call(item, more)

    def look(self) -> None:
        """Ask about an item, and compare the answer."""
        self._contains(self._item(), [])

    def _item(self) -> str:
        return str(self.dice.randrange(3000))

    def _check(self, what: object, got: object, wanted: object) -> None:
        self.answers += 1
        if got != wanted:
            self.wrong.append((what, got, wanted))

    def _contains(self, item: str, _: list[str]) -> None:
        self._check(("contains", item), self.f.contains(item), item in self.added)

    def _add(self, item: str, _: list[str]) -> None:
        self._check(("add", item), self.f.add(item), item not in self.added)
        self.added.add(item)

    def _many(self, _: str, items: list[str]) -> None:
        wanted = []
        for item in items:
            wanted.append(item not in self.added)
            self.added.add(item)
        self._check(("add_many", items), self.f.add_many(items), wanted)

    def _claim(self, item: str, _: list[str]) -> None:
        claim = self.f.claim(item)
        self._check(("claim", item), claim.state, "done" if item in self.added else "claimed")
        if claim:
            claim.commit()
            self.added.add(item)


class Working:
    """A call that is made over and over in a thread, until the block ends."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(1)

    def __enter__(self) -> None:
        self._work = self._pool.submit(self._run)

    def _run(self) -> None:
        while not self._over.is_set():
            self._call()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._pool.shutdown()
        self._work.result()


def only(key: str, *, moves: bool) -> Callable[[list[bytes]], list[bytes]]:
    """Return what chooses the keys that move ahead: that one, or all but that one."""
    return lambda keys: [each for each in keys if (each == key.encode()) is moves]


CLIENTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "redis": (redis.RedisCluster, {}),
    "redis-replicas": (redis.RedisCluster, {"load_balancing_strategy": LoadBalancingStrategy.ROUND_ROBIN}),
    "valkey": (valkey.ValkeyCluster, {}),
    "valkey-replicas": (valkey.ValkeyCluster, {"read_from_replicas": True}),
}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("redis", {}),
        ("redis", {"retry_safe": False}),
        ("redis", {"min_replicas": 1}),
        ("valkey", {"min_replicas": 1}),
    ],
    ids=str,
)
def test_resharding_changes_no_answer(nodes: Cluster, kind: str, options: dict[str, Any]) -> None:
    """The slot goes round the primaries and dwells half-way, the filter on either side, during calls."""
    make, _ = CLIENTS[kind]
    with make(**nodes.at) as client:
        model = Model(BloomFilter(client, "seen", **SMALL, **options), seed=1)
        model.f.reserve()
        with Working(model.step):
            for number, to in enumerate(nodes.primaries() * 2):
                before = model.answers
                wait_until("calls are answered", lambda: model.answers > before + 20)  # noqa: B023 - at once
                nodes.migrate(
                    "seen", to, ahead=only("seen", moves=number % 2 == 0), dwell=lambda: _pause(0.1)
                )
        assert model.wrong == []
        assert model.f.contains_many(list(model.added)) == [True] * len(model.added)
        assert model.f.info().count == len(model.added)


def _pause(seconds: float) -> None:
    time.sleep(seconds)  # how long it takes is what the test is about


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize("moves", [True, False], ids=["filter moved", "filter not moved"])
def test_reads_go_on_while_the_slot_is_half_way(nodes: Cluster, kind: str, moves: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """A filter is read where it is; its replica that has lost it to another node is not believed."""
    make, options = CLIENTS[kind]
    with make(**nodes.at, **options) as client:
        model = Model(BloomFilter(client, "seen", **SMALL, min_replicas=1), seed=2)
        for _ in range(50):
            model.step()

        def dwell() -> None:
            nodes.wait_until_replicated(nodes.primary_of("seen"))
            for _ in range(50):
                model.look()

        nodes.migrate("seen", away(nodes), ahead=only("seen", moves=moves), dwell=dwell)
        nodes.wait_until_ok()
        for _ in range(50):
            model.look()
        assert model.wrong == []


def test_calls_outlast_a_migration(nodes: Cluster, client: Any, bloom: Any) -> None:
    """A call whose slot is on its way for longer than redis-py has patience with is answered after it."""
    f = bloom(client, "seen", **SMALL, min_replicas=1)
    f.add_many(["a", "b"])
    calls: list[Callable[[], Any]] = [
        lambda: f.add("c"),
        lambda: f.add_many(["a", "d"]),
        lambda: bloom.wait(f.claim("e").commit()),
        lambda: f.load(["f"]),
    ]
    for call, wanted in zip(calls, [True, [False, True], None, 1], strict=True):
        with ThreadPoolExecutor(1) as pool:
            migrating = threading.Event()

            def dwell() -> None:
                migrating.set()  # noqa: B023 - it is waited for here
                _pause(OUTLASTED)

            move = pool.submit(nodes.migrate, "seen", away(nodes), dwell=dwell)
            migrating.wait(20)
            assert call() == wanted
            move.result()
    assert f.info().count == 6


@pytest.mark.parametrize("make", [redis.asyncio.RedisCluster, valkey.asyncio.ValkeyCluster])
def test_tasks_ask_over_many_connections(nodes: Cluster, make: Any) -> None:
    """ASKING counts only on its own connection; tasks share those of a node."""

    async def main() -> None:
        async with make(**nodes.at) as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", coalesce=False, **SMALL)
            await f.add_many(range(50))
            loop = asyncio.get_running_loop()

            def dwell() -> None:
                asking = asyncio.run_coroutine_threadsafe(ask(), loop)
                assert asking.result(20) == [number < 50 for number in range(90)]

            async def ask() -> list[bool]:
                return await asyncio.gather(*(f.contains(number) for number in range(90)))

            move = nodes.migrate
            await asyncio.to_thread(move, "seen", away(nodes), ahead=only("seen", moves=True), dwell=dwell)
            back = asyncio.to_thread(move, "seen", away(nodes), dwell=lambda: _pause(0.1))
            answers = await asyncio.gather(back, *(f.add(number) for number in range(90)))
            assert answers[1:] == [number >= 50 for number in range(90)]

    asyncio.run(main())


# -- reads from replicas


def ran(node: Node) -> dict[str, int]:
    return {command: node.calls(command) for command in ("evalsha", "eval", "evalsha_ro", "eval_ro")}


def has_read_only_scripts(node: Node) -> bool:
    """Return whether a server is of version 7 or later."""
    return int(node.info("server")["redis_version"].split(".")[0]) >= 7


@pytest.mark.parametrize("layout", ["blocked", "classic"])
@pytest.mark.parametrize("kind", ["redis-replicas", "valkey-replicas"])
def test_reads_go_to_replicas(nodes: Cluster, kind: str, layout: str) -> None:
    """Where the client reads from them, in turns with the primary; a replica is taught by one call more."""
    make, options = CLIENTS[kind]
    with make(**nodes.at, **options) as client:
        f = BloomFilter(client, "seen", **SMALL, layout=layout, min_replicas=1)
        f.add("a")
        assert [f.contains(item) for item in "ab" * 10] == [True, False] * 10
    primary = nodes.primary_of("seen")
    (replica,) = nodes.replicas_of(primary)
    if has_read_only_scripts(primary):
        assert ran(replica) == {"evalsha": 0, "eval": 0, "evalsha_ro": 10, "eval_ro": 1}
    else:
        assert ran(primary)["evalsha"] > 20


def test_bitmaps_of_other_systems_are_read_at_primaries(nodes: Cluster) -> None:
    """A bitmap has no header, so a replica that has lost it to another node would take it for empty."""
    make, options = CLIENTS["redis-replicas"]
    with make(**nodes.at, **options) as client:
        f = BloomFilter(client, "seen", layout=compat.go_zero(100_000))
        f.add("a")

        def dwell() -> None:
            assert [f.contains("a") for _ in range(10)] == [True] * 10

        nodes.migrate("seen", away(nodes), ahead=only("seen", moves=True), dwell=dwell)


def test_a_replica_that_is_killed_is_done_without(nodes: Cluster) -> None:
    """Reads go on at the primary, and the client's map is read anew."""
    make, options = CLIENTS["redis-replicas"]
    with make(**nodes.at, **options) as client:
        f = BloomFilter(client, "seen", **SMALL, min_replicas=1)
        f.add("a")
        (replica,) = nodes.replicas_of(nodes.primary_of("seen"))
        f.contains("a")
        replica.server.stop(signal.SIGKILL)
        try:
            assert [f.contains(item) for item in "ab" * 20] == [True, False] * 20
        finally:
            nodes.bring_back(replica)


def test_reads_stay_at_primaries_by_default(nodes: Cluster, client: Any, bloom: Any) -> None:
    """A client that does not read from replicas sends what it sends to a single server."""
    f = bloom(client, "seen", **SMALL)
    f.add("a")
    assert f.contains("a")
    (replica,) = nodes.replicas_of(nodes.primary_of("seen"))
    assert not any(ran(replica).values())


def test_asyncio_reads_go_to_replicas(nodes: Cluster) -> None:
    """The same for tasks."""
    _, options = CLIENTS["redis-replicas"]

    async def main() -> None:
        async with redis.asyncio.RedisCluster(**nodes.at, **options) as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", **SMALL, min_replicas=1)
            await f.add("a")
            assert [await f.contains(item) for item in "ab" * 10] == [True, False] * 10

    asyncio.run(main())
    (replica,) = nodes.replicas_of(nodes.primary_of("seen"))
    assert ran(replica)["evalsha_ro"] == 10 * has_read_only_scripts(replica)


# -- rights

RIGHTS = (
    "on >pw ~seen ~{seen}:* +evalsha +eval +getrange +setrange +setbit +getbit +bitcount +bitop +strlen "
    "+exists +unlink +get +set +pttl +pexpire +time +wait +cluster|slots +command +asking +readonly"
)


@pytest.mark.parametrize("kind", CLIENTS)
def test_the_rights_of_the_readme_suffice(nodes: Cluster, kind: str) -> None:
    """A cluster client needs some for itself, and those of read-only scripts to read from replicas."""
    more = " +evalsha_ro +eval_ro" * has_read_only_scripts(nodes.nodes[0])
    for node in nodes.nodes:
        node.ask("ACL", "SETUSER", "worker", *(RIGHTS + more).split())
    make, options = CLIENTS[kind]
    login = {"username": "worker", "password": "pw"}
    with make(**nodes.at, **login, **options) as client:
        f = BloomFilter(client, "seen", **SMALL, min_replicas=1)
        assert f.add("a")
        nodes.migrate("seen", away(nodes), ahead=only("seen", moves=True), dwell=lambda: f.contains("a"))
        assert [f.add("b"), "b" in f, "c" in f, f.info().count] == [True, True, False, 2]
    read_only = sum(ran(node)["evalsha_ro"] for node in nodes.nodes)
    assert bool(read_only) is bool(more and options)


# -- all at once


LARGE: dict[str, Any] = {"capacity": 20_000, "error_rate": 1e-9, "min_replicas": 1, "replica_timeout": 0.05}


def one_filter(kind: Any, client: Any) -> Any:
    """Make a filter whose writes count when a replica has them."""
    return kind.BloomFilter(client, "seen", **LARGE)


def no_receipts(kind: Any, client: Any) -> Any:
    """Make a filter whose calls are not safe to send again."""
    return kind.BloomFilter(client, "seen", retry_safe=False, **LARGE)


def sharded(kind: Any, client: Any) -> Any:
    """Make a filter in 16 shards whose writes count when a replica has them."""
    return kind.ShardedBloomFilter(client, "seen", **LARGE | {"capacity": 1_000_000})


@pytest.mark.timeout(600)
def test_a_million_items_over_shards() -> None:
    """Four processes add them in batches while shards migrate, and a primary is killed: one winner each."""
    million = 1_000_000
    with started(binaries()["valkey-9"]) as made:
        with made.client() as client:
            sharded(bloomredis, client).add_many(range(1000))  # which makes all shards
            shards = [key.decode() for key in client.keys("{seen:*}", target_nodes="primaries")]
            sharded(bloomredis, client).clear()
        report = storm(made, sharded, items=million, keys=shards, batch=1000, ways=("in_batches",) * 4)
        print(report)  # noqa: T201 - shown where it fails
        assert report.misled == {}
        check_that_it_was_rough(report)
        with made.client() as client:
            f = ShardedBloomFilter.open(client, "seen")
            assert all(f.contains_many(map(item_of, range(million))))
            assert f.info().count == million


def check_that_it_was_rough(report: Report) -> None:
    """Check that the workers had something to cope with."""
    assert (report.done["kill"], report.done["failover"]) == (1, 1)
    assert report.done["migration"] > 3  # 40 to 60 on a machine that has nothing else to do
    assert sum(told.errors["OutcomeUnknownError"] for told in report.told) > 0


def growing(kind: Any, client: Any) -> Any:
    """Make one that gets layers meanwhile."""
    return kind.ScalingBloomFilter(client, "seen", **LARGE | {"capacity": 500})


@pytest.mark.parametrize("make", [one_filter, growing])
@pytest.mark.parametrize("name", [name for name in SERVERS if name != "redis-6.2"])
def test_each_item_is_new_for_one(name: str, make: Any) -> None:
    """Four processes add the same items while their slot migrates and its owner is killed."""
    with started(binaries()[name]) as made:
        report = storm(made, make, items=ITEMS, keys=["seen"])
        print(report)  # noqa: T201 - shown where it fails
        assert report.misled == {}
        check_that_it_was_rough(report)
        f = (ScalingBloomFilter if make is growing else BloomFilter).open(made.client(), "seen")
        assert all(f.contains_many(map(item_of, range(ITEMS))))
        assert f.info().count == ITEMS


def test_the_faults_mislead_those_without_receipts() -> None:
    """The faults are real: where calls are not safe to send again, nobody is told that an item is new."""
    with started(binaries()["valkey-9"]) as made:
        report = storm(made, no_receipts, items=ITEMS, keys=["seen"])
        print(report)  # noqa: T201 - shown where it fails
        assert set(report.misled.values()) == {0}
        check_that_it_was_rough(report)
