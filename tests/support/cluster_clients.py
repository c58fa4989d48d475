"""Clients of clusters, of redis-py and of valkey-py, and what the nodes have run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis
import redis.asyncio
import valkey
import valkey.asyncio
from redis.cluster import LoadBalancingStrategy

from tests.support.clusters import Cluster, Node

SMALL: dict[str, Any] = {"capacity": 10_000, "error_rate": 1e-9}


def away(nodes: Cluster) -> Node:
    """Return a primary that does not serve the key."""
    return next(node for node in nodes.primaries() if node is not nodes.primary_of("seen"))


def only(key: str, *, moves: bool) -> Callable[[list[bytes]], list[bytes]]:
    """Return a function that chooses the keys to move first: only that one, or all others."""
    return lambda keys: [each for each in keys if (each == key.encode()) is moves]


CLIENTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "redis": (redis.RedisCluster, {}),
    "redis-replicas": (redis.RedisCluster, {"load_balancing_strategy": LoadBalancingStrategy.ROUND_ROBIN}),
    "valkey": (valkey.ValkeyCluster, {}),
    "valkey-replicas": (valkey.ValkeyCluster, {"read_from_replicas": True}),
}


def ran(node: Node) -> dict[str, int]:
    return {command: node.calls(command) for command in ("evalsha", "eval", "evalsha_ro", "eval_ro")}


def has_read_only_scripts(node: Node) -> bool:
    """Return whether a server is of version 7 or later."""
    return int(node.info("server")["redis_version"].split(".")[0]) >= 7
