"""The kinds of filters of many keys that are simulated, and the plans that their rules use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

import bloomredis.asyncio
from bloomredis.operations.kinds.rotating import RotatingOperations
from bloomredis.operations.kinds.scaling import ScalingOperations
from bloomredis.operations.kinds.sharded import ShardedOperations
from bloomredis.stored.shards import record as shard_record
from tests.history.plans import SLICES, Kind, Made, Plan

KEY: Final = "f"
ITEMS: Final = 12
NAMES: Final = tuple(f"x{item}" for item in range(ITEMS))
SHARDS: Final = 3
WINDOW: Final = 2.0
STRAY_SECONDS: Final = 2.0
"""Seconds for which a message may stay in flight after its call ended."""


class Simulated(NamedTuple):
    """A kind of filter.

    :ivar name: the kind's name in the history's rules.
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
_BY_NAME: Final = {kind.name: kind for kind in KINDS.values()}


@dataclass(frozen=True)
class SimulatedPlan(Plan):
    """The plan of a schedule."""

    @property
    def made(self) -> Made:
        kind = _BY_NAME[self.kind]
        return Made(kind.asynchronous.__name__, kind.options)

    @property
    def remembered(self) -> float:
        return WINDOW

    @property
    def latest_copy(self) -> float:
        return STRAY_SECONDS

    def shard(self, item: str) -> int | None:
        return shard_of(item) if self.kind == "sharded" else None


@cache
def shard_of(item: str) -> int:
    """Return the shard of an item."""
    return _sharded().number(item.encode())


@cache
def _sharded() -> shard_record.ShardRecord:
    return shard_record.plan_record(**_BY_NAME["sharded"].options)
