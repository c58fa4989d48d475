"""Processes that are killed while they restore a filter."""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import bloomredis
from bloomredis import FilterNotFoundError
from tests.support.commands import COMMAND, ENVIRONMENT
from tests.support.saving import ABSENT, ITEMS
from tests.support.servers import Server

ASKED = [*ITEMS, *ABSENT]
LARGE: dict[str, dict[str, Any]] = {
    "BloomFilter": {"capacity": 50_000_000},
    "ScalingBloomFilter": {"capacity": 1_000, "expansion": 4_000},
    "ShardedBloomFilter": {"capacity": 50_000_000, "shards": 64},
}


@pytest.mark.faults
@pytest.mark.parametrize("of", LARGE)
def test_a_killed_restore_leaves_all_or_nothing(any_server: Server, of: str, tmp_path: Path) -> None:
    """At any moment: the whole filter is there, or there is none, and all that is left expires."""
    dice, seen = random.Random(7), set()
    path = tmp_path / "seen.bloom"
    with any_server.client() as client:
        f = getattr(bloomredis, of)(client, "seen", error_rate=0.01, **LARGE[of])
        f.add_many(ITEMS)
        wanted = f.contains_many(ASKED)
        f.save(path)
        begin = time.monotonic()
        restore(any_server, path).communicate()
        lasting = time.monotonic() - begin
        for _ in range(25):
            client.flushall()
            process = restore(any_server, path)
            try:
                process.communicate(timeout=dice.uniform(0.4, 1.0) * lasting)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
            try:
                assert getattr(bloomredis, of).open(client, "copy").contains_many(ASKED) == wanted
                seen.add("whole")
            except FilterNotFoundError:
                seen.add("none" if client.dbsize() else "nothing yet")
                assert all(0 <= client.pttl(key) <= 1_200_000 for key in client.scan_iter())
    assert seen >= {"whole", "none"}


def restore(server: Server, path: Path) -> subprocess.Popen[bytes]:
    """Start the command."""
    command = [*COMMAND, "restore", "copy", str(path), "--url", server.url]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)
