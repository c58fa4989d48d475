"""Calls without a server raise errors of this library, with the client's own as the cause."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from bloomredis import BatchInterruptedError, BloomError
from tests.support.servers import binaries, running
from tests.support.values import for_each
from tests.support.verbs import CALLS

KINDS = [
    "BloomFilter",
    "CountingBloomFilter",
    "RotatingBloomFilter",
    "ScalingBloomFilter",
    "ShardedBloomFilter",
]


@for_each("is_open", [False, True])
@for_each("kind", KINDS)
def test_every_call_raises_a_bloom_error(bloom: Any, kind: str, is_open: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """A call raises whether or not the object was used before the server went away."""
    window = {"window": 60} if kind == "RotatingBloomFilter" else {}
    with running(next(iter(binaries().values()))) as server:
        client = server.client(retry=Retry(NoBackoff(), 0))
        f = bloom(client, "seen", kind=kind, capacity=1000, error_rate=0.01, **window)
        if is_open:
            f.add("before")
    for name, call in CALLS.items():
        with pytest.raises(BloomError) as caught:
            call(f)
        error: BaseException | None = caught.value
        if isinstance(error, BatchInterruptedError):
            error = error.__cause__
        assert error is not None
        assert isinstance(error.__cause__, redis.ConnectionError), name
