"""Clients that resend a call, without pauses."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

FROM_6_ON = pytest.mark.skipif(
    not hasattr(Retry, "get_retries"), reason="redis-py 5 has no public names for it"
)
"""A test that asks a client of redis-py for its retries."""

_LOST = {"retry_on_error": [redis.ConnectionError, redis.TimeoutError]}  # redis-py 5 resends after no other


def retrying(retries: int) -> dict[str, Any]:
    """Return the options of a client that resends a call that often after a lost reply."""
    return {"retry": Retry(NoBackoff(), retries)} | _LOST


def async_retrying(retries: int) -> dict[str, Any]:
    """Return the same options for an asyncio client."""
    return {"retry": AsyncRetry(NoBackoff(), retries)} | _LOST
