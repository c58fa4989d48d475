"""A sharded filter of 400 items, and its keys."""

from __future__ import annotations

from typing import Any, Final

import redis

OPTIONS: Final[dict[str, Any]] = {"capacity": 10_000, "error_rate": 1e-6}
ITEMS: Final = [f"item-{i}" for i in range(400)]


def shard_keys(client: redis.Redis, name: str = "seen") -> list[str]:
    """Return the keys of the existing shards."""
    keys: Any = client.keys(f"{{{name}:*}}")
    found = [key.decode() for key in keys]
    return sorted(found, key=lambda key: int(key.split(":")[1]))
