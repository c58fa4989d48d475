"""Filters made with the URL of a cluster's node."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import bloomredis
import bloomredis.asyncio
from bloomredis import ShardedBloomFilter
from tests.support.clusters import Cluster
from tests.support.inside import client_of

PARAMETERS: dict[str, Any] = {"capacity": 1000, "error_rate": 0.01, "shards": 4}


def test_a_cluster_has_urls(nodes: Cluster) -> None:
    """The URL gives a cluster client, and a pickled filter connects to the cluster by itself."""
    f = ShardedBloomFilter.from_url(f"redis+cluster://{address(nodes)}", "url", **PARAMETERS)
    copy = pickle.loads(pickle.dumps(f))  # noqa: S301 - its own bytes
    assert f.add_many(range(100)) == [True] * 100
    assert copy.contains_many(range(100)) == [True] * 100
    assert "Cluster" in type(client_of(copy)).__name__
    f.close()
    copy.close()


def test_a_cluster_has_urls_in_asyncio(nodes: Cluster) -> None:
    """The same works in asyncio."""

    async def work() -> list[bool]:
        f = bloomredis.asyncio.ShardedBloomFilter.from_url(
            f"redis+cluster://{address(nodes)}", "aio-url", **PARAMETERS
        )
        copy = pickle.loads(pickle.dumps(f))  # noqa: S301 - its own bytes
        answers: list[bool] = await f.add_many(range(10)) + await copy.contains_many(range(10))
        await f.close()
        await copy.close()
        return answers

    assert asyncio.run(work()) == [True] * 20


def address(nodes: Cluster) -> str:
    """Return host and port of a node."""
    at = nodes.at
    return f"{at['host']}:{at['port']}"
