"""Filters of all sizes are saved and restored in constant memory."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import bloomredis
from tests.support.commands import ENVIRONMENT
from tests.support.saving import KINDS, comparable
from tests.support.servers import IN_MEMORY, Server, binaries, running

log = logging.getLogger(__name__)
ITEMS = range(20_000)
PROBES = range(100_000)
MEGABYTE = 1 << 20
LARGE: dict[str, tuple[str, dict[str, Any], int]] = {
    "blocked": ("BloomFilter", {"capacity": 400_000_000}, 470),
    "classic": ("BloomFilter", {"capacity": 440_000_000, "layout": "classic"}, 500),
    "counting": ("CountingBloomFilter", {"capacity": 110_000_000}, 500),
    "scaling": ("ScalingBloomFilter", {"capacity": 2_000, "expansion": 400_000}, 500),
    "rotating": ("RotatingBloomFilter", {"capacity": 300_000_000, "window": 3600, "slices": 1}, 400),
    "sharded": ("ShardedBloomFilter", {"capacity": 850_000_000}, 1000),
}
"""Class, parameters, and the least size in megabytes; a string of a server has at most 512."""

PROGRAM = """
import json, resource, sys, time
import redis, bloomredis
url, of, path = sys.argv[1:]
client = redis.Redis.from_url(url, socket_timeout=120)
kind = getattr(bloomredis, of)
found = kind.open(client, "seen")
found.contains_many(range(1000))
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
def took(call):
    begin = time.perf_counter()
    call()
    return round(time.perf_counter() - begin, 2)
before = peak()
saving = took(lambda: found.save(path))
restoring = took(lambda: kind.restore(client, "restored", path))
copying = took(lambda: found.copy(client, "copied"))
print(json.dumps({"save": saving, "restore": restoring, "copy": copying, "before": before, "peak": peak()}))
"""


@pytest.fixture
def own_server(server_name: str) -> Iterator[Server]:
    """A server for one test, whose memory is freed at the end."""
    with running(binaries()[server_name], *IN_MEMORY) as server:
        yield server


def check_alike(found: Any, other: Any) -> None:
    """Compare the answers to all probes, and the infos."""
    assert other.contains_many(PROBES) == found.contains_many(PROBES)
    assert comparable(other.info()) == comparable(found.info())


@pytest.mark.parametrize("kind", KINDS)
def test_filters_without_items(client: redis.Redis, kind: str, tmp_path: Path) -> None:
    """They are saved, restored and copied too; a sharded one then has no bits."""
    of, parameters = KINDS[kind]
    found = getattr(bloomredis, of)(client, "seen", **parameters)
    found.create()
    found.save(tmp_path / "seen.bloom")
    restored = getattr(bloomredis, of).restore(client, "restored", tmp_path / "seen.bloom")
    for other in (restored, found.copy(client, "copied")):
        assert not any(other.contains_many(range(1000)))
        assert comparable(other.info()) == comparable(found.info())


@pytest.mark.long
@pytest.mark.parametrize("kind", LARGE)
def test_large_filters(own_server: Server, kind: str, tmp_path: Path) -> None:
    """Up to a gigabyte, restored filters and copies give the same answers in constant client memory."""
    of, parameters, megabytes = LARGE[kind]
    path = tmp_path / "seen.bloom"
    with own_server.client() as client:
        found = getattr(bloomredis, of)(client, "seen", error_rate=0.01, **parameters)
        found.update(ITEMS)
        run = [sys.executable, "-c", PROGRAM, own_server.url, of, str(path)]
        report = json.loads(subprocess.run(run, stdout=subprocess.PIPE, env=ENVIRONMENT, check=True).stdout)
        size = path.stat().st_size
        path.unlink()
        log.info("%s: %d MB; seconds, and MB of memory: %s", kind, size / MEGABYTE, report)
        assert size >= megabytes * MEGABYTE
        assert report["peak"] < report["before"] + 32
        for name in ("restored", "copied"):
            check_alike(found, getattr(bloomredis, of).open(client, name))
