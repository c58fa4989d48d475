"""The kinds of filters of many keys that are simulated, and what the rules know of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

import bloomredis.asyncio
from bloomredis.operations.kinds.rotating import RotatingOperations
from bloomredis.operations.kinds.scaling import ScalingOperations
from bloomredis.operations.kinds.sharded import ShardedOperations
from bloomredis.stored.shards import record as shard_record
from tests.history.plans import SLICES, Kind
from tests.rules.calls import Terms

KEY: Final = "f"
ITEMS: Final = 12
NAMES: Final = tuple(f"x{item}" for item in range(ITEMS))
SHARDS: Final = 3
WINDOW: Final = 2.0
STRAY_SECONDS: Final = 2.0
"""Seconds for which a message may stay in flight after its call ended."""


class Simulated(NamedTuple):
    """A kind of filter.

    :ivar name: the name of the kind in the rules.
    """

    name: Kind
    operations: Callable[..., Any]
    asynchronous: Callable[..., Any]
    options: dict[str, Any]


KINDS: Final = {
    "ScalingBloomFilter": Simulated(
        "scaling",
        ScalingOperations,
        bloomredis.asyncio.ScalingBloomFilter,
        {"capacity": 2, "error_rate": 1e-9, "expansion": 1},
    ),
    "RotatingBloomFilter": Simulated(
        "rotating",
        RotatingOperations,
        bloomredis.asyncio.RotatingBloomFilter,
        {"capacity": 12, "error_rate": 1e-9, "window": WINDOW, "slices": SLICES},
    ),
    "ShardedBloomFilter": Simulated(
        "sharded",
        ShardedOperations,
        bloomredis.asyncio.ShardedBloomFilter,
        {"capacity": 100, "error_rate": 1e-9, "shards": SHARDS},
    ),
}
_SHARDED: Final = shard_record.plan_record(**KINDS["ShardedBloomFilter"].options)


def terms(kind: Kind, **options: Any) -> Terms:
    """Return what the rules know of a filter."""
    shard: Callable[[str], int | None] = shard_of if kind == "sharded" else lambda _: None
    return Terms(kind, remembered=WINDOW, slices=SLICES, latest_copy=STRAY_SECONDS, shard=shard, **options)


@cache
def shard_of(item: str) -> int:
    """Return the shard of an item."""
    return _SHARDED.number(item.encode())
