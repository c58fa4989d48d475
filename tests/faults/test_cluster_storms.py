"""Many processes add to a cluster that reshards and loses a primary: each item is new for one."""

from __future__ import annotations

from typing import Any

import pytest

import bloomredis.asyncio
from bloomredis import (
    BloomFilter,
    ScalingBloomFilter,
    ShardedBloomFilter,
)
from tests.support.clusters import SERVERS
from tests.support.clusters import cluster as started
from tests.support.resharding import Report, item_of, storm
from tests.support.servers import binaries
from tests.support.sizes import sized

LARGE: dict[str, Any] = {"capacity": 20_000, "error_rate": 1e-9, "min_replicas": 1, "replica_timeout": 0.05}


def one_filter(kind: Any, client: Any) -> Any:
    """Make a filter whose writes count once a replica has them."""
    return kind.BloomFilter(client, "seen", **LARGE)


def no_receipts(kind: Any, client: Any) -> Any:
    """Make a filter whose calls are not safe to retry."""
    return kind.BloomFilter(client, "seen", retry_safe=False, **LARGE)


def sharded(kind: Any, client: Any) -> Any:
    """Make a filter in 16 shards whose writes count once a replica has them."""
    return kind.ShardedBloomFilter(client, "seen", **LARGE | {"capacity": 1_000_000})


@pytest.mark.timeout(600)
@pytest.mark.faults
@sized("count", make_test=6000, make_test_all=1_000_000)
def test_many_items_over_shards(count: int) -> None:
    """Four processes add batches while shards migrate and a primary is killed: each item has one winner."""
    with started(binaries()["valkey-9"]) as made:
        with made.client() as client:
            sharded(bloomredis, client).add_many(range(1000))  # creates every shard
            shards = [key.decode() for key in client.keys("{seen:*}", target_nodes="primaries")]
            sharded(bloomredis, client).clear()
        batch = count // 1000
        report = storm(made, sharded, items=count, keys=shards, batch=batch, ways=("in_batches",) * 4)
        print(report)  # noqa: T201 - shown if the test fails
        assert report.misled == {}
        check_that_it_was_rough(report)
        with made.client() as client:
            f = ShardedBloomFilter.open(client, "seen")
            assert all(f.contains_many(map(item_of, range(count))))
            assert f.info().count == count


def check_that_it_was_rough(report: Report) -> None:
    """Check that enough faults happened during the work."""
    assert (report.done["kill"], report.done["failover"]) == (1, 1)
    assert report.done["migration"] > 3  # 40 to 60 on an idle machine
    assert sum(told.errors["OutcomeUnknownError"] for told in report.told) > 0


def growing(kind: Any, client: Any) -> Any:
    """Make a filter that gets layers during the work."""
    return kind.ScalingBloomFilter(client, "seen", **LARGE | {"capacity": 500})


LATE: dict[str, Any] = {"fail_over_at": 0.2, "kill_at": 0.5}
"""In a short series little work remains when a killed primary is back."""

CASES = [
    pytest.param("redis-8", growing, 2000, LATE, id="growing-short"),
    *(
        pytest.param(name, make, 4000, {}, id=f"{name}-{make.__name__}", marks=pytest.mark.long)
        for name in SERVERS
        if name != "redis-6.2"
        for make in (one_filter, growing)
    ),
]


@pytest.mark.faults
@pytest.mark.parametrize(("name", "make", "count", "when"), CASES)
def test_each_item_is_new_for_one(name: str, make: Any, count: int, when: Any) -> None:
    """Four processes add the same items while their slot migrates and its owner is killed."""
    with started(binaries()[name]) as made:
        report = storm(made, make, items=count, keys=["seen"], **when)
        print(report)  # noqa: T201 - shown if the test fails
        assert report.misled == {}
        check_that_it_was_rough(report)
        f = (ScalingBloomFilter if make is growing else BloomFilter).open(made.client(), "seen")
        assert all(f.contains_many(map(item_of, range(count))))
        assert f.info().count == count


@pytest.mark.long
def test_the_faults_mislead_those_without_receipts() -> None:
    """The faults are real: without safe retries, some items are reported new to nobody."""
    with started(binaries()["valkey-9"]) as made:
        report = storm(made, no_receipts, items=4000, keys=["seen"])
        print(report)  # noqa: T201 - shown if the test fails
        assert set(report.misled.values()) == {0}
        check_that_it_was_rough(report)
