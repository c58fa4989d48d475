"""The command on a cluster, which it detects or is told about by an option."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import redis

import bloomredis
from bloomredis.cli.kinds import CLASSES, Kind
from tests.support.clusters import cluster
from tests.support.commands import printed, run_command, run_process
from tests.support.servers import binaries

NAMES = [f"seen-{number}" for number in range(4)]
"""Names whose slots belong to several nodes."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL of one node of a cluster of three."""
    with cluster(binaries()["valkey-9"], primaries=3, replicas=0) as nodes:
        yield f"redis://127.0.0.1:{nodes.nodes[0].port}"


def test_names_on_all_nodes(url: str) -> None:
    """Whichever node has the key, every command finds it by the URL of any node."""
    for name in NAMES[1:3]:
        assert printed("dedupe", "--url", url, "--name", name, data=b"a\nb\na\n") == b"a\nb\n"
        assert printed("check", name, "a", "--url", url) == b"a\n"
        assert json.loads(printed("info", name, "--url", url, "--json"))["count"] == 2
        assert run_command("doctor", name, "--url", url).returncode == 0
        assert run_command("delete", name, "--url", url).returncode == 0


@pytest.mark.parametrize("kind", CLASSES)
def test_each_kind(url: str, kind: Kind) -> None:
    """Filters of every kind work on a cluster, including private filters."""
    own = ("--window", "1h") if kind is Kind.ROTATING else ()
    command = ("dedupe", "--url", url, "--kind", kind.value, *own)
    assert printed(*command, data=b"a\nb\na\n") == b"a\nb\n"


def test_by_option(url: str) -> None:
    """--cluster skips the detection; with --no-cluster only one node is used, which refuses other slots."""
    command = ["create", "--url", url, "--capacity", 1000, "--error-rate", 0.01]
    done = [run_command(*command, "--no-cluster", name) for name in NAMES]
    assert 3 in [one.returncode for one in done]
    assert any(b"--cluster" in one.stderr for one in done)
    assert all(run_command(*command, "--cluster", name).returncode == 0 for name in NAMES)


def test_a_set_is_imported(url: str) -> None:
    """A set is imported from its own node into a filter on another node."""
    with redis.RedisCluster.from_url(url) as client:
        client.sadd("members", *range(1000))
    report = printed("import", "new", "--from-set", "members", "--url", url, "--json")
    assert json.loads(report) == {"read": 1000, "count": 1000}


def test_demo(url: str) -> None:
    """The demo's workers use the cluster too."""
    command = ("demo", "--url", url, "--events", 2000, "--workers", 2, "--json")
    found = json.loads(printed(*command, run=run_process))
    assert (found["events"], found["processed_twice"]) == (2000, 0)


def test_the_doctor_asks_every_node(url: str) -> None:
    """A bad setting of one of three nodes is reported with its name; a trial leaves no key."""
    with redis.RedisCluster.from_url(url) as client:
        bad, keys = client.get_primaries()[2], {*client.scan_iter()}
        client.config_set("maxmemory-policy", "allkeys-lru", target_nodes=bad)
        try:
            done = run_command("doctor", "--url", url, "--json", "--trial", "--yes")
        finally:
            client.config_set("maxmemory-policy", "noeviction", target_nodes=bad)
        assert {*client.scan_iter()} == keys
    findings = json.loads(done.stdout)["findings"]
    assert (done.returncode, done.stderr) == (1, b"")
    assert [one["node"] for one in findings if one["severity"] == "critical"] == [bad.name]
    assert findings[0]["seen"].startswith("maxmemory-policy is allkeys-lru")
    assert len({one["node"] for one in findings} - {""}) == 3


def test_list_asks_every_node(url: str) -> None:
    """Filters on every node are listed once; shards are not listed."""
    with redis.RedisCluster.from_url(url) as client:
        for name in NAMES:
            bloomredis.BloomFilter(client, f"listed-{name}", capacity=10, error_rate=0.1).create()
        bloomredis.ShardedBloomFilter(client, "listed", capacity=1000, error_rate=0.01).add_many(range(100))
    lines = printed("list", "--url", url, "--match", "*listed*", "--json").splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["listed", *(f"listed-{name}" for name in NAMES)]
