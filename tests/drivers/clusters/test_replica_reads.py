"""Reads from the replicas of a cluster, and the rights that a cluster client needs."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest
import redis
import redis.asyncio

import bloomredis.asyncio
from bloomredis import (
    BloomFilter,
    compat,
)
from tests.support.cluster_clients import CLIENTS, SMALL, away, has_read_only_scripts, only, ran
from tests.support.clusters import Cluster


@pytest.mark.parametrize("layout", ["blocked", "classic"])
@pytest.mark.parametrize("kind", ["redis-replicas", "valkey-replicas"])
def test_reads_go_to_replicas(nodes: Cluster, kind: str, layout: Any) -> None:
    """Reads alternate between primary and replicas if the client allows it; a replica gets a script once."""
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
    """A bitmap has no header, so a replica whose slot has moved away would answer as if it were empty."""
    make, options = CLIENTS["redis-replicas"]
    with make(**nodes.at, **options) as client:
        f = BloomFilter(client, "seen", layout=compat.go_zero(100_000))
        f.add("a")

        def dwell() -> None:
            assert [f.contains("a") for _ in range(10)] == [True] * 10

        nodes.migrate("seen", away(nodes), ahead=only("seen", moves=True), dwell=dwell)


def test_a_replica_that_is_killed_is_done_without(nodes: Cluster) -> None:
    """After a replica is killed, reads go to the primary, and the client refreshes its slot map."""
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


def test_reads_stay_at_primaries_by_default(nodes: Cluster, cluster_client: Any, bloom: Any) -> None:
    """Without reads from replicas, a cluster client sends the same calls as for a single server."""
    f = bloom(cluster_client, "seen", **SMALL)
    f.add("a")
    assert f.contains("a")
    (replica,) = nodes.replicas_of(nodes.primary_of("seen"))
    assert not any(ran(replica).values())


def test_asyncio_reads_go_to_replicas(nodes: Cluster) -> None:
    """Reads of an asyncio client go to replicas too."""
    _, options = CLIENTS["redis-replicas"]

    async def main() -> None:
        async with redis.asyncio.RedisCluster(**nodes.at, **options) as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", **SMALL, min_replicas=1)
            await f.add("a")
            assert [await f.contains(item) for item in "ab" * 10] == [True, False] * 10

    asyncio.run(main())
    (replica,) = nodes.replicas_of(nodes.primary_of("seen"))
    assert ran(replica)["evalsha_ro"] == 10 * has_read_only_scripts(replica)


RIGHTS = (
    "on >pw ~seen ~{seen}:* +evalsha +eval +getrange +setrange +setbit +getbit +bitcount +bitop +strlen "
    "+exists +unlink +get +set +pttl +pexpire +time +wait +cluster|slots +command +asking +readonly"
)


@pytest.mark.parametrize("kind", CLIENTS)
def test_the_documented_rights_suffice(nodes: Cluster, kind: str) -> None:
    """The documented rights suffice, also the additional ones for cluster clients and reads from replicas."""
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
