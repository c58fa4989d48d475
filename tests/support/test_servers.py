"""The servers that other tests need exist on this machine."""

from __future__ import annotations

import pytest

from tests.support.servers import Server, binaries


def test_three_servers_are_always_there() -> None:
    """Redis 6.2, Redis 8 and Valkey 9 come with the `dev` extra."""
    assert {"redis-6.2", "redis-8", "valkey-9"} <= set(binaries())


@pytest.mark.every_server
def test_each_is_what_its_name_says(server: Server) -> None:
    """A server reports the version that its test id claims."""
    with server.client() as client:
        info = client.info("server")
    name, version = (
        ("valkey", info["valkey_version"]) if "valkey_version" in info else ("redis", info["redis_version"])
    )
    assert f"{name}-{version}".startswith(server.name) or server.name == "redis-debian"
