"""`bloomredis adopt` on a real server."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis

import bloomredis
from bloomredis import BloomFilter, FilterLostError, FilterMismatchError, ScalingBloomFilter
from bloomredis.cli.kinds import CLASSES, Kind
from bloomredis.compat import go_zero
from tests.support.commands import printed, run_command
from tests.support.modules import MODULE, needs_module
from tests.support.proxy import lost, passed, proxied
from tests.support.servers import Server
from tests.support.values import for_each

PLAN: Any = {"capacity": 1000, "error_rate": 0.01}


def test_a_filter_grows_from_now_on(any_server: Server) -> None:
    """The command prints what it made; all items are found afterwards, and more than the capacity fit."""
    url, old, new = ("--url", any_server.url), range(1000), range(1000, 5000)
    with any_server.client() as client:
        BloomFilter(client, "seen", **PLAN, ttl=500).update(old)
        done = run_command("adopt", "seen", *url, "--expansion", 4, "--tightening-ratio", "20%", "--json")
        assert done.returncode == 0
        made = json.loads(done.stdout)
        assert (made["kind"], made["expansion"], made["tightening_ratio"]) == ("scaling", 4, 0.2)
        assert made["error_rate"] == pytest.approx(0.01 / 0.8)
        assert 490 < made["ttl"] <= 500
        assert [layer["capacity"] for layer in made["layers"]] == [1000]
        printed("add", "seen", *url, data=b"".join(b"%d\n" % item for item in new))
        grown = ScalingBloomFilter[int].open(client, "seen")
        assert all(grown.contains_many([*old, *new]))
        assert [layer.capacity for layer in grown.info().layers] == [4000, 1000]


def test_what_it_prints(any_server: Server) -> None:
    """The output has the fields of `info`; the defaults are those of `ScalingBloomFilter`."""
    url = ("--url", any_server.url)
    with any_server.client() as client:
        BloomFilter(client, "seen", **PLAN).add("x")
    done = run_command("adopt", "seen", *url)
    fields = dict(line.split(maxsplit=1) for line in done.stdout.decode().splitlines())
    shown = {name: fields[name] for name in ("kind", "capacity", "expansion", "tightening_ratio", "layers")}
    assert shown == {
        "kind": "scaling",
        "capacity": "1000",
        "expansion": "2",
        "tightening_ratio": "0.5",
        "layers": "1, holding 1/1000 items",
    }
    assert done.stdout == printed("info", "seen", *url)


def test_what_the_warning_says(any_server: Server) -> None:
    """Held claims end; users of the old class get the errors that the warning and the help name."""
    with any_server.client() as client:
        seen = BloomFilter(client, "seen", **PLAN)
        again = BloomFilter(client, "seen", **PLAN, on_lost="recreate")
        again.add("x")
        claim = seen.claim("held", lease=600)
        warning = run_command("adopt", "seen", "--url", any_server.url).stderr.decode()
        assert ScalingBloomFilter(client, "seen", capacity=1000, error_rate=0.02).claim("held")
        for call in (seen.contains, seen.add):
            with pytest.raises(FilterLostError):
                call("x")
        with pytest.raises(FilterLostError):
            claim.commit()
        for call in (again.add, BloomFilter(client, "seen").contains):
            with pytest.raises(FilterMismatchError):
                call("x")
    told = " ".join(run_command("adopt", "--help").stdout.decode().split())
    for text in (warning, told):
        assert "claims that are held" in text
        for name in ("FilterLostError", "FilterMismatchError", "ScalingBloomFilter"):
            assert name in text


def test_items_that_a_program_encodes(any_server: Server) -> None:
    """A filter with `encode=` is adopted too: the command needs no item."""

    def encode(item: str) -> bytes:
        return item.upper().encode()

    with any_server.client() as client:
        BloomFilter(client, "seen", **PLAN, encode=encode).add("x")
        assert run_command("adopt", "seen", "--url", any_server.url).returncode == 0
        assert "X" in ScalingBloomFilter.open(client, "seen", encode=encode)


def test_no_filter(any_server: Server) -> None:
    """A missing filter ends the command with status 4, and without a warning."""
    done = run_command("adopt", "seen", "--url", any_server.url)
    assert (done.returncode, done.stdout, any_server.keys()) == (4, b"", [])
    assert done.stderr.startswith(b"bloomredis: there is no filter 'seen'; bloomredis create makes one")


def refused(server: Server, *options: object) -> str:
    """Return the message of an `adopt` that is refused with status 2, before the warning."""
    done = run_command("adopt", "seen", "--url", server.url, *options)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"warning" not in done.stderr
    return done.stderr.decode()


@for_each("kind", [kind for kind in CLASSES if kind is not Kind.FIXED])
def test_other_kinds(any_server: Server, kind: Kind) -> None:
    """A filter of another kind is refused, and stays as it was."""
    with any_server.client() as client:
        more = {"window": 60} if kind is Kind.ROTATING else {}
        seen = getattr(bloomredis, CLASSES[kind])(client, "seen", **PLAN, **more)
        seen.add("x")
        assert f"'seen' has --kind {kind} and" in refused(any_server)
        assert not seen.add("x")
        seen.delete()


def a_bitmap(client: redis.Redis) -> None:
    """Store a bitmap of another system."""
    BloomFilter(client, "seen", layout=go_zero(20_000)).add("x")


def a_list(client: redis.Redis) -> None:
    """Store a list."""
    client.lpush("seen", "x")


def a_damaged_filter(client: redis.Redis) -> None:
    """Store the beginning of a filter."""
    BloomFilter(client, "other", **PLAN).add("x")
    client.set("seen", client.getrange("other", 0, 99))


@for_each(
    ("store", "says"),
    [
        (a_bitmap, "for a bitmap of another system, give its --layout"),
        (a_list, "the wrong kind of value"),
        (a_damaged_filter, "'seen' is damaged"),
    ],
)
def test_other_keys(any_server: Server, any_client: redis.Redis, store: Any, says: str) -> None:
    """A key that is no filter of this library is refused, and stays as it was."""
    store(any_client)
    before = any_client.dump("seen")
    assert says in refused(any_server)
    assert any_client.dump("seen") == before
    any_client.delete("seen")


def test_a_key_of_the_module(any_server: Server, any_client: redis.Redis) -> None:
    """A key of the server's module grows by itself and is refused."""
    BloomFilter(needs_module(any_client), "seen", **MODULE).add("x")
    assert "--layout module; adopt takes a filter of --kind fixed with" in refused(any_server)


def test_a_rate_that_leaves_none_for_other_layers(any_server: Server) -> None:
    """The error names the option that makes it possible."""
    with any_server.client() as client:
        BloomFilter(client, "seen", capacity=100, error_rate=0.6).add("x")
        command = ("adopt", "seen", "--url", any_server.url)
        done = run_command(*command)
        assert (done.returncode, b"use a smaller tightening_ratio" in done.stderr) == (2, True)
        assert "x" in BloomFilter.open(client, "seen")
        assert run_command(*command, "--tightening-ratio", 0.2).returncode == 0


def test_a_lost_reply_does_not_adopt_twice(any_server: Server) -> None:
    """The command sends the call again, and succeeds."""
    if redis.VERSION < (6,):
        pytest.skip("redis-py 5 sends nothing again by itself")
    with any_server.client() as client:
        for name in ("first", "seen"):
            BloomFilter(client, name, **PLAN).add("x")
        ScalingBloomFilter.adopt(client, "first")  # loads the script
        with proxied(any_server.socket) as proxy:
            proxy.plan("adopt", lost, passed)
            done = run_command("adopt", "seen", "--url", f"redis://127.0.0.1:{proxy.port}")
        assert done.returncode == 0
        assert "x" in ScalingBloomFilter.open(client, "seen")
