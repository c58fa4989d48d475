"""A missing right stops a rebuild before it begins."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from bloomredis import BloomFilter, ServerRefusedError
from tests.support.readme import acl_rule
from tests.support.servers import Server
from tests.support.values import for_each


@for_each("denied", ["unlink", "setrange", "pexpire", "persist", "rename", "time", "getrange"])
def test_a_missing_right_changes_nothing(server: Server, denied: str) -> None:
    """The rebuild checks at its start each right that its end needs; without one nothing changes."""
    with server.client() as admin:
        admin.execute_command("ACL", "SETUSER", "worker", "reset", "on", ">secret", *acl_rule())
        seen = BloomFilter(admin, "seen", capacity=1000, error_rate=0.01)
        seen.add("x")
        header: Any = admin.getrange("seen", 0, 63)
        url = server.url.replace("unix://", "unix://worker:secret@")
        with redis.Redis.from_url(url) as client:
            mine = BloomFilter.open(client, "seen")
            admin.execute_command("ACL", "SETUSER", "worker", f"-{denied}")
            with pytest.raises(ServerRefusedError), mine.rebuild():
                pass
        assert admin.getrange("seen", 0, 63) == header
        assert not admin.exists("{seen}:successor")
