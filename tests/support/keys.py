"""The keys beside a filter."""

from __future__ import annotations

import redis
from mmh3 import hash_bytes


def claim_key(name: str, item: str) -> bytes:
    """Return the key of the claim on an item."""
    return f"{{{name}}}:claim:{hash_bytes(item).hex()}".encode()


def beside(client: redis.Redis, kind: str) -> list[bytes]:
    """Return all keys of a kind: `receipt` or `claim`."""
    return list(client.scan_iter(f"*:{kind}:*"))


def forget_receipts(client: redis.Redis) -> None:
    """Delete all receipts, as time and eviction do."""
    for key in beside(client, "receipt"):
        client.delete(key)
