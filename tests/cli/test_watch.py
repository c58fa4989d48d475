"""`bloomredis watch`: filters as they fill."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from typing import Any

import pytest

import bloomredis as library
from bloomredis.cli import watch
from tests.support.commands import COMMAND, ENVIRONMENT, printed, run_command, started
from tests.support.servers import Server
from tests.support.values import for_each

SIZE: dict[str, Any] = {"capacity": 1000, "error_rate": 0.01}


def once(server: Server, *names: str) -> list[dict[str, Any]]:
    """Return what one look at filters prints."""
    text = printed("watch", *names, "--url", server.url, "--once", "--json", "--every", 0.1)
    return [json.loads(line) for line in text.splitlines()]


def test_a_look_is_what_info_says(any_server: Server) -> None:
    """A look shows what `info` shows, under the same names."""
    with any_server.client() as client:
        f = library.BloomFilter(client, "seen", **SIZE, ttl=3600)
        f.add_many([str(i) for i in range(500)])
        (fields,) = once(any_server, "seen")
        info = f.info()
    assert (fields["count"], fields["capacity"], fields["capacity_used"]) == (
        info.count,
        1000,
        info.count / 1000,
    )
    shared = set(info.__dataclass_fields__) & fields.keys() - {"ttl"}
    assert {name: fields[name] for name in shared} == {name: getattr(info, name) or None for name in shared}
    assert shared >= {"error_rate", "estimated_error_rate", "fill_ratio", "layers", "size_bytes"}
    assert 3500 < fields["ttl"] <= 3600
    assert (fields["new_per_second"], fields["layers"], fields["shards"]) == (0, None, None)


@for_each("kind", ["BloomFilter", "RotatingBloomFilter", "ShardedBloomFilter"])
def test_claims_that_are_held_are_counted(any_server: Server, kind: str) -> None:
    """Pending claims of this filter are counted, and of no other, whatever its name."""
    more: dict[str, Any] = {"RotatingBloomFilter": {"window": 60}}.get(kind, {})
    with any_server.client() as client:
        for name in ("a[b]*", "a[b]xx"):
            f = getattr(library, kind)(client, name, **SIZE, **more)
            f.add("x")
            f.claim_many(["1", "2", "3"])
    assert [fields["claims"] for fields in once(any_server, "a[b]*")] == [3]


def test_claims_on_a_large_server_are_not_counted(
    any_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since that visits every key."""
    assert watch.MOST_KEYS == 100_000
    with any_server.client() as client:
        library.BloomFilter(client, "seen", **SIZE).claim("x")
        monkeypatch.setattr(watch, "MOST_KEYS", client.dbsize() - 1)
    assert [fields["claims"] for fields in once(any_server, "seen")] == [None]


def test_layers_and_shards(any_server: Server) -> None:
    """A look counts the layers and shards of each filter."""
    with any_server.client() as client:
        grown = library.ScalingBloomFilter(client, "grown", capacity=100, error_rate=0.01)
        grown.add_many([str(i) for i in range(250)])
        library.ShardedBloomFilter(client, "parts", **SIZE, shards=5).add("a")
        layers = len(grown.info().layers)
    first, second = once(any_server, "grown", "parts")
    assert (first["layers"], first["shards"], second["shards"]) == (layers, None, 5)
    assert layers > 1


def test_new_items_a_second(any_server: Server) -> None:
    """The rate of new items is the growth of the count since the look before."""
    with any_server.client() as client:
        f = library.BloomFilter(client, "seen", **SIZE)
        f.add("a")
        with started("watch", "seen", "--url", any_server.url, "--json", "--every", 0.1) as process:
            assert process.stdout is not None
            before = json.loads(process.stdout.readline())
            f.add_many([str(i) for i in range(100)])
            look = before
            while look["count"] == before["count"]:
                look = json.loads(process.stdout.readline())
    gained = look["count"] - before["count"]
    assert 0 < look["new_per_second"] <= gained / 0.1


def test_text_has_a_line_for_each_field(any_server: Server) -> None:
    """With `--once` the text has a line for each field."""
    with any_server.client() as client:
        library.BloomFilter(client, "seen", **SIZE).add("a")
    text = printed("watch", "seen", "--url", any_server.url, "--once", "--every", 0.1).decode()
    fields = dict(line.split(None, 1) for line in text.splitlines())
    assert (fields["name"], fields["capacity"], fields["capacity_used"]) == ("seen", "1,000", "0.1%")


def test_a_terminal_shows_a_table(any_server: Server) -> None:
    """At a terminal a table is shown until the command is interrupted."""
    with any_server.client() as client:
        library.BloomFilter(client, "seen", **SIZE).add("a")
    ours, theirs = pty.openpty()
    command = [*COMMAND, "watch", "seen", "--url", any_server.url, "--every", "0.1"]
    environment = ENVIRONMENT | {"TERM": "xterm"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        while b"estimated error rate" not in shown:
            shown += os.read(ours, 10_000)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 128 + signal.SIGINT
    os.close(ours)
    assert b"seen" in shown


def test_a_filter_that_is_not_there(any_server: Server) -> None:
    """For a missing filter one line is printed, with the status of bad usage."""
    done = run_command("watch", "none", "--url", any_server.url)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
