"""Processes that are killed during a restore."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import bloomredis
from bloomredis import FilterNotFoundError
from tests.support.commands import ENVIRONMENT
from tests.support.saving import ABSENT, ITEMS
from tests.support.servers import Server
from tests.support.waiting import wait_until

ASKED = [*ITEMS, *ABSENT]
LARGE: dict[str, dict[str, Any]] = {
    "BloomFilter": {"capacity": 50_000_000},
    "ScalingBloomFilter": {"capacity": 1_000, "expansion": 4_000},
    "ShardedBloomFilter": {"capacity": 50_000_000, "shards": 64},
}


@pytest.mark.long
@pytest.mark.parametrize("of", LARGE)
def test_a_killed_restore_leaves_all_or_nothing(any_server: Server, of: str, tmp_path: Path) -> None:
    """At any moment the whole filter exists or none, and all leftover keys expire."""
    dice, seen = random.Random(7), set()
    path = tmp_path / "seen.bloom"
    with any_server.client() as client:
        f = getattr(bloomredis, of)(client, "seen", error_rate=0.01, **LARGE[of])
        f.add_many(ITEMS)
        wanted = f.contains_many(ASKED)
        f.save(path)
        lasting = 0.0
        for number in range(25):
            client.flushall()
            process = restore(any_server, of, path)
            wait_until("it writes", client.dbsize, every=0)
            begun = time.monotonic()
            with contextlib.suppress(subprocess.TimeoutExpired):  # the first of the series runs to its end
                process.wait(timeout=dice.choice((0, dice.random())) * lasting if number else None)
            lasting = lasting or time.monotonic() - begun
            process.kill()
            process.wait()
            try:
                assert getattr(bloomredis, of).open(client, "copy").contains_many(ASKED) == wanted
                seen.add("whole")
            except FilterNotFoundError:
                seen.add("none")
                assert all(0 <= client.pttl(key) <= 1_200_000 for key in client.scan_iter())
    assert seen >= {"whole", "none"}


PROGRAM = """
import sys, redis, bloomredis
url, of, path = sys.argv[1:]
client = redis.Redis.from_url(url)
client.ping()
print("ready", flush=True)
getattr(bloomredis, of).restore(client, "copy", path)
"""


def restore(server: Server, of: str, path: Path) -> subprocess.Popen[bytes]:
    """Start a process that restores the filter; return just before it begins."""
    command = [sys.executable, "-c", PROGRAM, server.url, of, str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process
