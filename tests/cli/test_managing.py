"""`bloomredis create`, `list`, `remove`, `expire`, `clear` and `acknowledge` on real servers."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest

import bloomredis
from bloomredis.cli import reports
from bloomredis.cli.kinds import CLASSES, Kind
from tests.support.commands import COMMAND, ENVIRONMENT, printed, run_command
from tests.support.proxy import passed, proxied, refused
from tests.support.servers import Server, binaries, running
from tests.support.values import for_each

PLAN = ("--capacity", "1000", "--error-rate", "0.01")


def create(server: Server, name: str, *options: str) -> None:
    """Create a filter."""
    printed("create", name, "--url", server.url, *PLAN, *options)


def test_create_takes_what_is_stored(any_server: Server) -> None:
    """`create` compares only the given options with an existing filter; a new one needs both numbers."""
    create(any_server, "seen", "--kind", "scaling")
    url = ("--url", any_server.url)
    for options in ((), ("--capacity", "1e3"), ("--error-rate", "1%"), ("--expansion", "2")):
        assert b"scaling" in printed("create", "seen", *url, *options)
    for options, words in ((("--capacity", "5"), b"1000, not 5"), (("--window", "1h"), b"--kind scaling")):
        refused = run_command("create", "seen", *url, *options)
        assert (refused.returncode, words in refused.stderr) == (2, True)
    refused = run_command("create", "other", *url, "--error-rate", "0.1")
    assert (refused.returncode, refused.stderr) == (2, b"bloomredis: a new filter needs --capacity\n")


def test_a_bitmap_is_not_there_before_its_first_add(any_server: Server) -> None:
    """`create` says that a bitmap exists only after its first add, and that every command needs --layout."""
    done = run_command("create", "bits", "--url", any_server.url, "--layout", "go_zero:20000")
    assert (done.returncode, any_server.keys()) == (0, [])
    assert b"nothing is stored before the first add; give --layout go_zero:20000 each time" in done.stderr


def test_a_filter_that_a_server_has_no_room_for() -> None:
    """`create` refuses a filter that is too large for the server, and says both sizes."""
    with running(binaries()["redis-8"], "--maxmemory", "3mb") as server:
        done = run_command(
            "create", "seen", "--url", server.url, "--capacity", 10_000_000, "--error-rate", 0.01
        )
        assert server.client().exists("seen") == 0
    assert done.returncode == 3
    assert re.search(rb"OOM 13\d{6} bytes are wanted at once, and \d+ of maxmemory \(3145728\)", done.stderr)


def rows(server: Server, *options: str) -> dict[str, dict[str, Any]]:
    """Return what `list` prints, by the filters' names."""
    lines = printed("list", "--url", server.url, "--json", *options).splitlines()
    return {row["name"]: row for row in map(json.loads, lines)}


TAGGED = ("{tag}:users:seen", "{scaling}:seen", "fixed::seen")
"""Names that begin like the keys of a filter's parts."""


def test_list(any_server: Server) -> None:
    """`list` prints filters of every kind, but neither their parts nor other keys."""
    for kind in CLASSES:
        create(any_server, kind.value, "--kind", kind.value, *(("--window", "1h") * (kind is Kind.ROTATING)))
        printed("add", kind.value, "x", "y", "--url", any_server.url)
    with any_server.client() as client:
        client.set("string", "x" * 100)
        client.sadd("set", "x")
        for name in TAGGED:
            bloomredis.BloomFilter(client, name, capacity=10, error_rate=0.1).create()
    found = rows(any_server)
    assert {name: row["kind"] for name, row in found.items()} == {
        **{kind.value: kind.value for kind in CLASSES},
        **dict.fromkeys(TAGGED, "fixed"),
    }
    assert found["fixed"]["count"] == found["counting"]["count"] == 2
    assert found["fixed"]["capacity"] == 1000
    assert list(rows(any_server, "--match", "s*")) == ["scaling", "sharded"]
    heading, first, *_ = printed("list", "--url", any_server.url, "--match", "f*").decode().splitlines()
    assert heading.split() == ["name", "kind", "capacity", "error_rate", "count", "ttl"]
    assert first.split() == ["fixed", "fixed", "1000", "0.01", "2", "-"]


def test_nothing_to_list(any_server: Server) -> None:
    """Without filters `list` prints nothing and succeeds; it refuses clients that decode replies."""
    assert printed("list", "--url", any_server.url) == b""
    refused = run_command("list", "--url", f"{any_server.url}?decode_responses=true")
    assert (refused.returncode, b"leave decode_responses out" in refused.stderr) == (2, True)


def test_remove(any_server: Server) -> None:
    """`remove` removes items from a counting filter; for other kinds the error names what can."""
    url = ("--url", any_server.url)
    create(any_server, "online", "--kind", "counting")
    printed("add", "online", "ann", "bob", *url)
    assert printed("remove", "online", "ann", "carl", *url) == b"read     2\nremoved  1\n"
    assert run_command("remove", "online", *url, data=b"ann\n").returncode == 1
    assert printed("check", "online", "ann", "bob", *url) == b"bob\n"
    create(any_server, "seen")
    refused = run_command("remove", "seen", "x", *url)
    assert (refused.returncode, b"--kind counting" in refused.stderr) == (2, True)


def test_a_remove_that_is_interrupted_says_where(any_server: Server) -> None:
    """So that no item is removed twice."""
    create(any_server, "online", "--kind", "counting")
    printed("add", "online", "ann", "bob", "carl", "--url", any_server.url)
    run_command("remove", "online", "nobody", "--url", any_server.url)  # loads the script
    with proxied(any_server.socket) as proxy:
        proxy.plan("remove", passed, passed, refused("OOM command not allowed"))
        done = run_command(
            "remove", "online", "ann", "bob", "carl", "--url", f"redis://127.0.0.1:{proxy.port}"
        )
    assert (done.returncode, done.stdout) == (3, b"")
    assert b"the first 2 items are done" in done.stderr


def test_a_message_that_cannot_be_written_changes_no_status() -> None:
    """A script that asks `check` would else hear that the item is not there."""
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        command = [*COMMAND, "check", "seen", "x", "--url", "redis://127.0.0.1:1"]
        assert subprocess.run(command, stderr=full, env=ENVIRONMENT, check=False).returncode == 3


@for_each("kind", [kind for kind in CLASSES if kind is not Kind.ROTATING])
def test_expire_and_clear(any_server: Server, kind: Kind) -> None:
    """`expire` and `clear` act on all keys of a filter."""
    url = ("--url", any_server.url)
    create(any_server, "seen", "--kind", kind.value)
    printed("add", "seen", "x", *url)
    assert 7190 < json.loads(printed("expire", "seen", "2h", *url, "--json"))["ttl"] <= 7200
    assert json.loads(printed("clear", "seen", *url, "--json"))["count"] == 0
    assert run_command("check", "seen", "x", *url).returncode == 1
    printed("delete", "seen", *url)


def test_a_rotating_filter_expires_by_itself(any_server: Server) -> None:
    """`expire` refuses a rotating filter, which expires by itself."""
    create(any_server, "seen", "--window", "1h")
    refused = run_command("expire", "seen", "2h", "--url", any_server.url)
    assert (refused.returncode, b"expires by itself" in refused.stderr) == (2, True)


@for_each(("kind", "part"), [(Kind.SHARDED, "{seen:*"), (Kind.SCALING, "{seen}:layer:*")])
@for_each("way_out", ["acknowledge", "clear"])
def test_a_loss_has_a_way_out(any_server: Server, kind: Kind, part: str, way_out: str) -> None:
    """The message about a loss names existing commands; after them the filter works again."""
    url = ("--url", any_server.url)
    create(any_server, "seen", "--kind", kind.value)
    printed("add", "seen", *url, data=b"\n".join(b"%d" % i for i in range(100)))
    with any_server.client() as client:
        client.unlink(next(key for key in client.scan_iter(part) if b"receipt" not in key))
    lost = run_command("info", "seen", *url)
    assert lost.returncode == 3
    if f"bloomredis {way_out}" in lost.stderr.decode():
        assert run_command(way_out, "seen", *url).returncode == 0
        left = json.loads(printed("info", "seen", *url, "--json"))["count"]
        assert left == 0 if way_out == "clear" else 50 < left < 100
    else:
        assert (kind, way_out) == (Kind.SCALING, "acknowledge")  # no layer is left
        assert run_command(way_out, "seen", *url).returncode == 3
    printed("delete", "seen", *url)


@for_each("way_out", ["acknowledge", "clear"])
def test_workers_go_on(any_server: Server, way_out: str) -> None:
    """An object that used the filter raises once afterwards."""
    items = [f"{i}" for i in range(100)]
    with any_server.client() as client:
        running_worker = bloomredis.ShardedBloomFilter(client, "seen", capacity=1000, error_rate=0.01)
        running_worker.add_many(items)
        client.unlink(next(key for key in client.scan_iter("{seen:*") if b"receipt" not in key))
        done = run_command(way_out, "seen", "--url", any_server.url)
        assert done.returncode == 0
        told = b"; what was added before is forgotten: the items of that part are new again\n"
        assert done.stderr.endswith(told) is (way_out == "acknowledge")
        with pytest.raises(bloomredis.FilterLostError):
            running_worker.contains_many(items)
        assert any(running_worker.add_many(items))
        running_worker.delete()


def test_numbers_for_people(any_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a terminal numbers have separators and units; in a file and in JSON they are exact."""
    create(any_server, "seen")
    exact = printed("create", "seen", "--url", any_server.url)
    assert b"capacity    1000\n" in exact
    monkeypatch.setattr(reports, "for_a_person", lambda: True)
    assert b"capacity    1,000\n" in printed("create", "seen", "--url", any_server.url)
    texts = {
        ("size_bytes", 207_142_176): "207,142,176 (198 MiB)",
        ("fill_ratio", 0.0011160714285714285): "0.11%",
        ("estimated_error_rate", 2.523814490729137e-11): "2.52e-11",
        ("count", 1234): "1,234",
        ("deleted", True): True,
    }
    assert {field: reports.person(*field) for field in texts} == texts
