"""The filters over asyncio clients: `redis.asyncio.Redis`, its cluster client and valkey's twins.

The same classes and calls as in `bloomredis`, as coroutines.  Concurrent calls on one filter share
round trips by themselves.

This module imports numpy, so that no event loop waits for that when the first tasks share a round trip.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np  # noqa: F401 - see above

from bloomredis.drivers.aio_claims import Claim
from bloomredis.drivers.aio_kinds import (
    BloomFilter,
    CountingBloomFilter,
    RotatingBloomFilter,
    ScalingBloomFilter,
    ShardedBloomFilter,
)
from bloomredis.later import later

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from bloomredis.embedded import connecting
else:
    connecting = later("bloomredis.embedded", "connecting")  # it imports redis-py

__all__ = [
    "BloomFilter",
    "Claim",
    "CountingBloomFilter",
    "RotatingBloomFilter",
    "ScalingBloomFilter",
    "ShardedBloomFilter",
    "connect",
]


def connect(url: str, **options: Any) -> Redis:
    """Return an asyncio client of the server that `url` names, as `bloomredis.connect` does; not a coroutine.

    The start of an embedded server blocks the event loop for about 0.1 s.  The first call of a client of a
    cluster reads its slot map.
    """
    client: Redis = connecting.make_client(url, options, is_asyncio=True)
    return client


def __dir__() -> list[str]:
    """Return the public names and the dunders."""
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
