"""`bloomredis create`, `add`, `check` and `delete` on real servers."""

from __future__ import annotations

import json
from typing import Any

import pytest

import bloomredis
import bloomredis.compat
from bloomredis.cli.kinds import CLASSES, Kind
from tests.support.commands import printed, run_command
from tests.support.servers import Server

PLAN = ("--capacity", 1000, "--error-rate", 0.01)


def made(server: Server, kind: Kind, *options: object) -> dict[str, Any]:
    """Create a filter `seen` of that kind; return the command's report."""
    own = ("--window", "1h") if kind is Kind.ROTATING else ()
    command = ("create", "seen", "--url", server.url, "--kind", kind.value, *PLAN, *own, *options)
    found: dict[str, Any] = json.loads(printed(*command, "--json"))
    return found


@pytest.mark.parametrize("kind", CLASSES)
def test_the_life_of_a_filter_of_each_kind(any_server: Server, kind: Kind) -> None:
    """A filter is created, has exactly the items that were added, and is deleted with all its keys."""
    url = ("--url", any_server.url)
    assert made(any_server, kind)["kind"] == kind
    with any_server.client() as client:
        getattr(bloomredis, CLASSES[kind]).open(client, "seen")
    assert printed("add", "seen", "x", "y", "x", *url) == b"read  3\nnew   2\n"
    assert printed("check", "seen", "x", "z", "y", *url) == b"x\ny\n"
    assert run_command("check", "seen", "z", *url).returncode == 1
    assert printed("delete", "seen", *url) == b"name     seen\ndeleted  True\n"
    assert set(filter(lambda key: ":receipt:" not in key, any_server.keys())) == set()
    assert run_command("delete", "seen", *url).returncode == 4


def test_the_server_without_a_url(any_server: Server) -> None:
    """BLOOMREDIS_URL names it, else it is the local one, which an error says."""
    made(any_server, Kind.COUNTING)
    found = [
        run_command(verb, "seen", "x", BLOOMREDIS_URL=any_server.url) for verb in ("add", "check", "remove")
    ]
    assert [done.returncode for done in found] == [0, 0, 0]
    for verb in ("add", "check", "remove"):
        done = run_command(verb, "bloomredis-test-no-such-filter", "x")
        assert done.returncode in (3, 4)
        assert b"without --url and BLOOMREDIS_URL, the server is redis://localhost:6379\n" in done.stderr


def test_lines_of_stdin(any_server: Server) -> None:
    """Without items as arguments, the lines of stdin are added and checked, whatever bytes they have."""
    made(any_server, Kind.FIXED)
    url = ("--url", any_server.url)
    lines = b"caf\xe9\n\nx y\nno newline"
    assert printed("add", "seen", *url, data=lines) == b"read  4\nnew   4\n"
    assert printed("check", "seen", *url, data=lines + b"\nz") == lines + b"\n"
    assert printed("check", "seen", "--count", *url, data=lines + b"\nz") == b"read   5\nfound  4\n"
    assert printed("check", "seen", "-", *url, data=lines) == lines + b"\n"
    done = run_command("add", "seen", "a", "-", *url, data=lines)
    assert (done.returncode, b"stands alone" in done.stderr) == (2, True)
    assert run_command("check", "seen", "a", *url).returncode == 1


def test_reports_as_json(any_server: Server) -> None:
    """--json prints one object; for `check` it has the items that were found."""
    made(any_server, Kind.FIXED)
    url = ("--url", any_server.url, "--json")
    assert json.loads(printed("add", "seen", "x", "y", *url)) == {"read": 2, "new": 2}
    found = json.loads(printed("check", "seen", "x", "z", *url))
    assert found == {"read": 2, "found": 1, "items": ["x"]}
    none = run_command("check", "seen", "z", *url)
    assert (none.returncode, json.loads(none.stdout)) == (1, {"read": 1, "found": 0, "items": []})
    assert json.loads(printed("delete", "seen", *url)) == {"name": "seen", "deleted": True}


def test_create_again(any_server: Server) -> None:
    """A second `create` changes nothing; with other parameters it is refused, and the error names options."""
    made(any_server, Kind.FIXED)
    printed("add", "seen", "x", "--url", any_server.url)
    assert made(any_server, Kind.FIXED)["count"] == 1
    other = ("create", "seen", "--url", any_server.url, "--capacity", 7, "--error-rate", 0.01)
    done = run_command(*other)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"--capacity 1000, not 7" in done.stderr
    assert b"open()" not in done.stderr


def test_time_to_live(any_server: Server) -> None:
    """--ttl takes a time with a unit."""
    assert 7190 < made(any_server, Kind.SCALING, "--ttl", "2h")["ttl"] <= 7200
    with any_server.client() as client:
        assert all(0 < client.pttl(key) <= 7_200_000 for key in client.scan_iter("*seen*"))


def test_a_bitmap_of_another_system(any_server: Server) -> None:
    """`--layout go_zero:20000` sets the bits that go-zero would."""
    options = ("--url", any_server.url, "--layout", "go_zero:20000")
    assert printed("add", "bits", "x", *options) == b"read  1\nnew   1\n"
    with any_server.client() as client:
        layout = bloomredis.compat.go_zero(20_000)
        assert all(client.getbit("bits", offset) for offset in layout.offsets("x"))
    assert printed("check", "bits", "x", *options) == b"x\n"
    assert run_command("delete", "bits", *options).returncode == 0
    with any_server.client() as client:
        assert not client.exists("bits")


def test_a_damaged_filter_can_be_deleted(any_server: Server) -> None:
    """A sharded filter that has lost a shard is deleted like any other."""
    made(any_server, Kind.SHARDED)
    printed("add", "seen", "x", "--url", any_server.url)
    with any_server.client() as client:
        client.unlink(*client.scan_iter("{seen:*"))
    assert run_command("check", "seen", "x", "--url", any_server.url).returncode == 3
    assert run_command("delete", "seen", "--url", any_server.url).returncode == 0
    with any_server.client() as client:
        assert not client.exists("seen")


@pytest.mark.parametrize("command", ["add", "check", "info", "delete"])
def test_a_name_that_is_not_there(any_server: Server, command: str) -> None:
    """The message names the command that creates the filter."""
    items = ["x"] if command in ("add", "check") else []
    done = run_command(command, "nosuch", *items, "--url", any_server.url)
    assert (done.returncode, done.stdout) == (4, b"")
    assert b"there is no filter 'nosuch'" in done.stderr
    assert b"capacity and error_rate" not in done.stderr


def test_a_server_that_refuses(any_server: Server) -> None:
    """A refusal of the server is exit status 3, with its reason."""
    made(any_server, Kind.FIXED)
    with any_server.client() as client:
        client.config_set("min-replicas-to-write", 1)
        try:
            done = run_command("add", "seen", "x", "--url", any_server.url)
        finally:
            client.config_set("min-replicas-to-write", 0)
    assert (done.returncode, done.stdout) == (3, b"")
    assert b"NOREPLICAS" in done.stderr
