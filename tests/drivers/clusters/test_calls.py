"""Every call through cluster clients, on clusters of three primaries and three replicas."""

from __future__ import annotations

import asyncio
import signal
import threading
from contextlib import suppress
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.cluster

import bloomredis.asyncio
from bloomredis import (
    BloomError,
    BloomFilter,
    Claim,
    ClaimLostError,
    FilterLostError,
    OutcomeUnknownError,
    ShardedBloomFilter,
)
from bloomredis.drivers import aio, renewing, sync
from bloomredis.drivers.connections.sending import send_step
from bloomredis.protocol import cluster
from tests.support.background import Child
from tests.support.cluster_clients import SMALL
from tests.support.clusters import NODE_TIMEOUT, Cluster
from tests.support.keys import claim_key
from tests.support.own_tasks import own_tasks_cancelled
from tests.support.sharding import ITEMS, OPTIONS
from tests.support.values import for_each
from tests.support.waiting import wait_until

NAMES = ["seen", "tag{ged}", "{ged}"]


def test_a_name_whose_keys_would_be_apart(cluster_client: Any, bloom: Any) -> None:
    """A cluster refuses such a name before any write, for every class; single servers accept it."""
    for name in ("a}b", "{}a"):
        for kind in ("BloomFilter", "ScalingBloomFilter"):
            with pytest.raises(ValueError, match="no '}' before its hash tag"):
                bloom(cluster_client, name, kind=kind, **SMALL)
        assert not cluster_client.exists(name)


@pytest.mark.parametrize("options", [{}, {"min_replicas": 1}], ids=["", "min_replicas"])
@pytest.mark.parametrize("name", NAMES)
def test_every_call(cluster_client: Any, bloom: Any, name: str, options: dict[str, Any]) -> None:
    """All keys of a filter lie in one slot, whatever its name."""
    f = bloom(cluster_client, name, **SMALL, **options)
    f.create()
    assert f.add_many(["a", "b", "a"]) == [True, True, False]
    assert [f.add("a"), f.add("c"), "c" in f, f.contains("d")] == [False, True, True, False]
    assert f.contains_many(["a", "x"]) == [True, False]
    assert list(f.dedupe(["d", "a", "d"])) == ["d"]
    assert f.update(f"loaded {i}" for i in range(1000)) == 1000
    assert (f.info().count, f.snapshot().contains("loaded 7")) == (1004, True)
    assert 990 < f.info().approximate_count < 1010
    f.expire(1000)
    assert f.info().ttl == pytest.approx(1000, abs=5)
    f.clear()
    assert f.add("a")
    assert f.delete()
    assert not f.delete()


@pytest.mark.parametrize("options", [{}, {"min_replicas": 1}], ids=["", "min_replicas"])
def test_claims(cluster_client: Any, bloom: Any, options: dict[str, Any]) -> None:
    """A claim's key lies in the filter's slot."""
    ours, theirs = (bloom(cluster_client, "tag{ged}", **SMALL, **options) for _ in range(2))
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
@pytest.mark.parametrize("kind", ["BloomFilter", "ShardedBloomFilter"])
def test_batches_of_claims(cluster_client: Any, bloom: Any, kind: str, options: dict[str, Any]) -> None:
    """Claims of a batch may lie on all nodes; each gets its own outcome."""
    ours, theirs = (bloom(cluster_client, "seen", kind=kind, **SMALL, **options) for _ in range(2))
    claims = ours.claim_many(range(60), owner="rank 7")
    assert ours.extend_many(claims, 60) == ["claimed"] * 60
    again = theirs.claim_many(range(20), owner="rank 7")
    assert theirs.release_many(again) == ["released"] * 20
    assert ours.commit_many(claims) == ["lost"] * 20 + ["done"] * 40
    assert theirs.contains_many(range(60)) == [False] * 20 + [True] * 40


@pytest.mark.parametrize("is_asyncio", [False, True])
def test_a_node_without_replies_delays_only_its_own_claims(
    nodes: Cluster, monkeypatch: pytest.MonkeyPatch, *, is_asyncio: bool
) -> None:
    """Claims on the shards of the other nodes are renewed."""
    monkeypatch.setattr(renewing, "_PER_LEASE", 300)
    hung, *others = nodes.primaries()
    for node in nodes.nodes:  # or the others take it for dead
        node.ask("CONFIG", "SET", "cluster-node-timeout", 120_000)

    def check() -> bool:
        """Stop a node, and return whether the claims on the other nodes are renewed twice."""
        clients = [node.client() for node in others]
        held = [(client, key) for client in clients for key in client.keys("*:claim:*")]
        assert hung.server.process is not None
        hung.server.process.send_signal(signal.SIGSTOP)
        try:
            for _ in range(2):
                for client, key in held:
                    client.pexpire(key, 20_000)
                wait_until("all are renewed", lambda: all(client.pttl(key) > 20_000 for client, key in held))
        finally:
            hung.server.process.send_signal(signal.SIGCONT)
        return len(held) > 30

    async def main() -> None:
        async with redis.asyncio.RedisCluster(**nodes.at) as client:
            f = bloomredis.asyncio.ShardedBloomFilter(client, "seen", shards=30, **SMALL)
            claims = [await f.claim(item) for item in ITEMS[:100]]
            assert await asyncio.to_thread(check)
            assert all(await f.extend_many(claims, 60))

    if is_asyncio:
        asyncio.run(main())
    else:
        with nodes.client() as client:
            f = ShardedBloomFilter(client, "seen", shards=30, **SMALL)
            claims = [f.claim(item) for item in ITEMS[:100]]
            assert check()
            assert all(f.extend_many(claims, 60))
    for node in nodes.nodes:
        node.ask("CONFIG", "SET", "cluster-node-timeout", NODE_TIMEOUT)


def test_a_claim_is_renewed_on_a_cluster(cluster_client: Any) -> None:
    """A claim is renewed while its block runs, and its token can be used elsewhere."""
    f = BloomFilter(cluster_client, "seen", **SMALL)
    with f.claim("a", lease=6) as claim:
        key = claim_key("seen", "a")
        cluster_client.pexpire(key, 4000)
        wait_until("it is renewed", lambda: cluster_client.pttl(key) > 4000)
        assert not Claim.from_token(f, claim.token).lost
    assert f.contains("a")


@pytest.mark.parametrize("options", [{}, {"min_replicas": 1}], ids=["", "min_replicas"])
def test_large_batches_and_loads(nodes: Cluster, options: dict[str, Any]) -> None:
    """Clients that decode replies read the filter's bits correctly too."""

    async def main() -> list[bool]:
        async with redis.asyncio.RedisCluster(**nodes.at, decode_responses=True) as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", **SMALL, **options)
            return await f.add_many(range(1000, 3000))

    with nodes.client(decode_responses=True) as client:
        f = BloomFilter(client, "seen", **SMALL, **options)
        assert f.add_many(range(2000)) == [True] * 2000
        assert asyncio.run(main()) == [False] * 1000 + [True] * 1000
        assert f.update(range(4000)) == 4000
        assert f.info().count == 4000


def test_a_pipeline(cluster_client: Any) -> None:
    """Queued calls of two filters get their results in order, even after SCRIPT FLUSH."""
    filters = [BloomFilter(cluster_client, name, **SMALL) for name in NAMES[:2]]
    for round_ in range(2):
        cluster_client.script_flush()
        pipe = cluster_client.pipeline()
        for i in range(100):
            filters[i % 2].queue_add(pipe, f"{round_}-{i // 4}")
        assert pipe.execute() == [1, 1, 0, 0] * 25


@for_each("after", range(4))
def test_a_slot_whose_refresh_is_cancelled(nodes: Cluster, after: int) -> None:
    """Tasks that are redirected share a task of the library, which asks for the slot; none is cancelled."""

    async def add(f: Any, item: str) -> bool:
        while True:
            with suppress(OutcomeUnknownError):
                return bool(await f.add(item))

    async def main() -> None:
        async with redis.asyncio.RedisCluster(**nodes.at) as client:
            f = bloomredis.asyncio.BloomFilter(client, f"seen {after}", **SMALL)
            await f.add("warm")
            slots = client.nodes_manager.slots_cache
            slot = client.keyslot(f"seen {after}")
            wrong = next(own for own in slots.values() if own[0] is not slots[slot][0])
            with own_tasks_cancelled(after, every=2, code=redis.asyncio.cluster.__file__) as cancelled:
                for round_ in range(2):
                    slots[slot] = wrong
                    told = await asyncio.gather(*(add(f, f"{round_}:{i}") for i in range(5)))
                    assert told == [True] * 5
            assert cancelled

    asyncio.run(asyncio.wait_for(main(), 60))


def test_the_asyncio_client(nodes: Cluster) -> None:
    """Calls of tasks share round trips, and a pipeline works."""

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
def test_every_kind(cluster_client: Any, bloom: Any, name: str, kind: str, options: dict[str, Any]) -> None:
    """All keys of a filter lie in one slot, including those of its layers."""
    own: dict[str, Any] = {"window": 3600} if kind.startswith("Rotating") else {}
    capacity = 1000 if kind.startswith("Counting") else 100  # the other kinds get several layers
    f = bloom(cluster_client, name, kind=kind, capacity=capacity, error_rate=1e-9, **own, **options)
    assert f.add_many(range(350)) == [True] * 350
    other = bloom.open(cluster_client, name, kind=kind)
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
def test_a_sharded_filter(cluster_client: Any, bloom: Any, options: dict[str, Any]) -> None:
    """The shards are spread over the nodes; all calls work, and the loss of a shard is detected."""
    f = bloom.sharded(cluster_client, "seen", capacity=1000, error_rate=1e-9, **options)
    assert f.add_many([*range(300), 0]) == [True] * 300 + [False]
    assert [f.add(5), f.add(1000), 1000 in f] == [False, True, True]
    assert bloom.open(cluster_client, "seen", kind="ShardedBloomFilter").contains_many([5, 2000]) == [
        True,
        False,
    ]
    assert f.update(range(500)) == 500
    assert f.info().count == 501
    assert [claim.state for claim in f.claim_many([5, 3000])] == ["done", "claimed"]
    f.expire(100)
    keys = cluster_client.keys("{seen:*}", target_nodes="primaries")
    assert len({cluster_client.get_node_from_key(key).name for key in keys}) == 3
    assert all(cluster_client.pttl(key) > 0 for key in keys)
    cluster_client.delete(next(key for key in keys if key.startswith(b"{seen:7:")))
    with pytest.raises(FilterLostError):
        f.create()
    f.clear()
    assert all(f.add_many(range(300)))
    assert f.delete()


def test_a_batch_goes_to_all_nodes_at_once(nodes: Cluster, cluster_client: Any) -> None:
    """A batch over 16 shards on three nodes is one round trip, with one pipeline for each node."""
    f = ShardedBloomFilter(cluster_client, "seen", capacity=10_000, error_rate=1e-9)
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


def test_a_batch_waits_for_all_nodes_at_once(cluster_client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes as long as the slowest node, not as long as all together."""
    f = ShardedBloomFilter(cluster_client, "seen", **OPTIONS)
    f.add_many(ITEMS)
    barrier = threading.Barrier(3)

    def slow(*step: Any) -> Any:
        barrier.wait(20)
        return send_step(*step)

    monkeypatch.setattr(sync, "send_step", slow)
    assert f.add_many(ITEMS) == [False] * 400


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_asks_all_nodes(cluster_client: Any) -> None:
    """The child makes its own threads, since the parent's do not exist in it."""
    f = ShardedBloomFilter(cluster_client, "seen", **OPTIONS)
    assert all(f.add_many(ITEMS))
    assert Child(lambda: f.add_many([*ITEMS, "x", "y"])).result() == [False] * 400 + [True] * 2
    assert f.add_many(["x", "y", "z"]) == [False, False, True]


@for_each("verb", ["add_many", "claim_many"])
def test_a_batch_that_is_cancelled_while_a_node_is_slow(nodes: Cluster, verb: str) -> None:
    """A retry gets the answers of all nodes, of those that have replied and of the slow one."""

    async def main() -> int:
        async with redis.asyncio.RedisCluster(**nodes.at) as client:
            f: Any = bloomredis.asyncio.ShardedBloomFilter(client, verb, **OPTIONS)
            await f.add_many(ITEMS)
            slow, send, reached = (
                client.get_primaries()[0],
                aio._send_to_node,
                asyncio.Event(),
            )  # the part of a node

            async def held(act: Any) -> Any:
                if act.node is slow:
                    reached.set()
                    await asyncio.Event().wait()
                return await send(act)

            items = [f"x{i}" for i in range(400)]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(aio, "_send_to_node", held)
                task = asyncio.ensure_future(getattr(f, verb)(items))
                await reached.wait()
                for _ in range(200):  # enough turns for the replies of the other nodes
                    await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            return sum(map(bool, await getattr(f, verb)(items)))

    assert asyncio.run(main()) == 400


@for_each("after", range(4))
def test_a_batch_of_which_a_task_is_cancelled(nodes: Cluster, after: int) -> None:
    """The caller's own task goes on if the task of one node is cancelled: an answer is only missing."""

    async def main() -> None:
        async with redis.asyncio.RedisCluster(**nodes.at) as client:
            f = bloomredis.asyncio.ShardedBloomFilter(client, f"seen {after}", **OPTIONS)
            assert await f.add_many(ITEMS[:100]) == [True] * 100
            with own_tasks_cancelled(after, every=2) as cancelled:
                try:
                    told = await f.add_many(ITEMS[100:])
                except BloomError as error:
                    told = getattr(error, "results", [])
            assert cancelled
            told += await f.add_many(ITEMS[100 + len(told) :])
            assert told == [True] * 300

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_failover_costs_one_extra_round_trip(nodes: Cluster, cluster_client: Any, bloom: Any) -> None:
    """A new primary without the script gets it with the call itself, once."""
    f = bloom(cluster_client, "seen", **SMALL, min_replicas=1)
    assert f.add("a")
    now = nodes.fail_over(nodes.primary_of("seen"))
    now.ask("CONFIG", "RESETSTAT")
    assert [f.add("a"), f.add("b"), f.add("c")] == [False, True, True]
    # The other EVALs touch the filter before each WAIT.
    assert (now.calls("evalsha"), now.calls("eval") - 3 - 1) == (3, 1)


def test_a_write_that_no_replica_confirms(nodes: Cluster, cluster_client: Any, bloom: Any) -> None:
    """Only replicas of the key's node count, not those of other nodes."""
    f = bloom(cluster_client, "seen", **SMALL, min_replicas=2, replica_timeout=0.05)
    with pytest.raises(OutcomeUnknownError, match=r"[01] of 2 replicas") as caught:
        bloom(cluster_client, "seen", **SMALL).create() or f.add("a")
    assert bloom(cluster_client, "seen", **SMALL).add("a", token=caught.value.token)
