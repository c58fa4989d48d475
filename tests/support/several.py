"""A filter that another system spreads over several servers: the PHP class with a list of servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bloomredis import BloomFilter, compat
from bloomredis.compat.php_bkdr import PhpBkdr

NUM_BITS = 4_000_003
"""Enough bits that no item of a small test is mistaken for another."""


def layout(servers: int, num_bits: int = NUM_BITS, keys: int = 5) -> PhpBkdr:
    """Return a layout with this number of keys on each server."""
    return compat.php_bkdr(num_bits, 8, servers=range(servers), partitions=keys)


def on_servers(clients: Sequence[Any], name: str = "seen", **sizes: int) -> BloomFilter[Any]:
    """Return a filter over these clients, in the order of their servers."""
    return BloomFilter[Any](list(clients), name, layout=layout(len(clients), **sizes))
