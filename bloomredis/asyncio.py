"""The filters over asyncio clients: `redis.asyncio.Redis`, its cluster client and valkey's twins.

The same classes and calls as in `bloomredis`, as coroutines.  Concurrent calls on one filter share
round trips by themselves.

This module imports numpy, so that no event loop waits for that when the first tasks share a round trip.
"""

import numpy as np  # noqa: F401 - see above

from bloomredis.drivers.aio_claims import Claim
from bloomredis.drivers.aio_kinds import (
    BloomFilter,
    CountingBloomFilter,
    RotatingBloomFilter,
    ScalingBloomFilter,
    ShardedBloomFilter,
)

__all__ = [
    "BloomFilter",
    "Claim",
    "CountingBloomFilter",
    "RotatingBloomFilter",
    "ScalingBloomFilter",
    "ShardedBloomFilter",
]


def __dir__() -> list[str]:
    """Return the public names and the dunders."""
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
