"""`bloomredis doctor`: its rules, and what it prints; test_trial.py has its trial."""

from __future__ import annotations

import json
import re
from typing import Any

import bloomredis
from bloomredis import BloomFilter, compat
from bloomredis.cli.doctor import rules
from bloomredis.cli.doctor.findings import Finding, Severity
from bloomredis.cli.kinds import CLASSES, Kind
from tests.support.commands import run_command
from tests.support.servers import Server
from tests.support.values import for_each

CRITICAL, WARNING, NOTE, UNCHECKED, OK = sorted(Severity, reverse=True)


def limit(free: int, policy: str = "noeviction") -> dict[str, Any]:
    """Return INFO of a server with that memory limit."""
    return {"maxmemory": 10**9, "used_memory": 10**9 - free, "maxmemory_policy": policy}


RULES: list[tuple[dict[str, Any], Severity, str]] = [
    (limit(10**8), OK, "^maxmemory-policy is noeviction"),
    (limit(10**8, "allkeys-lfu"), CRITICAL, "allkeys-lfu$"),
    (limit(10**8, "volatile-ttl"), WARNING, "volatile-ttl$"),
    ({"maxmemory_policy": "allkeys-lru"}, CRITICAL, "no effect while maxmemory is not set"),
    (limit(10**8), OK, "^900,000,000 bytes are used of maxmemory 1,000,000,000$"),
    (limit(10**8 - 1), WARNING, "^99,999,999 bytes of maxmemory 1,000,000,000 are free"),
    (limit(-5), CRITICAL, "^0 bytes of maxmemory"),
    (limit(-5) | {"mem_not_counted_for_evict": 10**8 + 5}, OK, "^1,000,000,005 bytes"),
    ({"used_memory": 9}, OK, "^9 bytes are used and no maxmemory"),
    ({"used_memory": 0, "maxmemory": 1 << 20}, WARNING, "^1,048,576 bytes of maxmemory 1,048,576 are free"),
    ({"aof_enabled": 0, "save": ""}, WARNING, "^no append-only file; snapshots: none"),
    ({"aof_enabled": 0, "save": "60 1"}, WARNING, "snapshots: 60 1$"),
    ({"aof_enabled": 0}, WARNING, "snapshots: not known$"),
    ({"aof_enabled": 1, "appendfsync": "no"}, WARNING, "appendfsync no$"),
    ({"aof_enabled": 1, "appendfsync": "everysec"}, NOTE, "appendfsync everysec$"),
    ({"aof_enabled": 1, "appendfsync": "always"}, OK, "appendfsync always"),
    ({"aof_enabled": 1}, NOTE, "appendfsync not known"),
    ({"redis_version": "7.2.4", "valkey_version": "9.0.1"}, OK, "Valkey 9.0.1"),
]


@for_each(("facts", "severity", "seen"), RULES)
def test_a_rule(facts: dict[str, Any], severity: Severity, seen: str) -> None:
    """A server's replies to INFO and CONFIG GET have one finding that matches, of this severity."""
    assert [one.severity for one in rules.of_server(facts) if re.search(seen, one.seen)] == [severity]


def test_nothing_is_said_about_what_is_not_known() -> None:
    """Without replies to INFO and CONFIG GET there is no finding."""
    assert not [*rules.of_server({})]


@for_each("policy", ["allkeys-lru", "volatile-ttl"])
def test_every_policy_that_evicts_takes_claims_and_receipts(policy: str) -> None:
    """Every policy that evicts can evict claims and receipts; the advice is `noeviction`."""
    found, *_ = rules.of_server(limit(10**8, policy))
    assert "claims" in found.why
    assert "receipt" in found.why
    assert "noeviction" in found.way_out


# -- a filter


def about(server: Server, name: str, layout: str | None = None) -> list[Finding]:
    """Return the findings about a stored filter."""
    with server.client() as client:
        return [*rules.of_filter(client, name, layout)]


def test_the_state_of_a_filter(any_server: Server) -> None:
    """A missing, foreign, overfull, expiring or damaged filter is told from a good one."""
    with any_server.client() as client:
        BloomFilter(client, "good", capacity=10, error_rate=0.01, ttl=10**6).add_many(range(10))
        BloomFilter(client, "bad", capacity=10, error_rate=0.01, ttl=100).add_many(range(100))
        client.set("foreign", "x" * 100)
        bloomredis.ShardedBloomFilter(client, "clicks", capacity=1000, error_rate=0.01).add("x")
        client.unlink(*(key for key in client.scan_iter() if key.startswith(b"{clicks:")))
    for name, severity, seen in [
        ("good", OK, "'good', a BloomFilter, holds 10 of 10 items"),
        ("missing", CRITICAL, "no filter 'missing'"),
        ("foreign", CRITICAL, "'foreign' holds no Bloom filter"),
        ("bad", CRITICAL, "'bad' was made for 10 items and holds [0-9]+$"),
        ("bad", WARNING, "'bad' expires in [0-9]+ seconds"),
        ("clicks", CRITICAL, "clicks"),
    ]:
        found = about(any_server, name)
        assert [one.severity for one in found if re.search(seen, one.seen)] == [severity], name


@for_each("kind", CLASSES)
def test_a_filter_of_each_kind(any_server: Server, kind: Kind) -> None:
    """A filter that holds its capacity is in order; more items are reported, unless it grows."""
    own: dict[str, Any] = {"window": 60} if kind is Kind.ROTATING else {}
    with any_server.client() as client:
        made = getattr(bloomredis, CLASSES[kind])(client, "clicks", capacity=100, error_rate=0.01, **own)
        made.add_many(range(90))
        assert [one.severity for one in about(any_server, "clicks")] == [OK]
        for start in range(0, 1000, 100):
            made.add_many(range(start, start + 100))
    (found,) = about(any_server, "clicks")
    assert (found.severity is OK) is (kind is Kind.SCALING)


def test_an_overfull_filter_is_described_by_its_rate(any_server: Server) -> None:
    """At three times the capacity nearly half of new items look known: (1 - e^(-7 * 3 / 9.585))^7."""
    with any_server.client() as client:
        BloomFilter(client, "n", capacity=1000, error_rate=0.01, layout="classic").update(range(3000))
    (found,) = about(any_server, "n")
    assert re.match(r"0\.4\d of new items", found.why)


def test_a_bitmap_of_another_system(any_server: Server) -> None:
    """With its --layout a bitmap is checked like any filter; without it, the finding names the option."""
    with any_server.client() as client:
        BloomFilter(client, "bits", layout=compat.go_zero(20_000)).add("x")
    assert [one.severity for one in about(any_server, "bits", "go_zero:20000")] == [OK]
    assert b"--layout" in run_command("doctor", "bits", "--url", any_server.url).stdout


# -- the command


def test_fakeredis() -> None:
    """A server without INFO is checked as far as it goes."""
    done = run_command("doctor", "--url", "memory://")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"unchecked  INFO is refused" in done.stdout


def test_the_text_has_what_json_has(any_server: Server) -> None:
    """The worst finding is the first, in both forms; without a trial, that is said."""
    printed = json.loads(run_command("doctor", "x", "--url", any_server.url, "--json").stdout)
    text = run_command("doctor", "x", "--url", any_server.url).stdout.decode()
    lines = [line for line in re.findall(r"^\w.*", text, re.MULTILINE) if " bytes are used" not in line]
    said = [f"{one['severity']:<9}  {one['seen']}" for one in printed["findings"]]
    assert lines == [line for line in said if " bytes are used" not in line]
    assert lines[0].startswith("critical   there is no filter 'x'")
    assert "unchecked  rights, scripts and writes were not tried" in lines
    assert printed["url"] == any_server.url


@for_each("user", ["somebody", "hunter3"])
def test_a_server_that_lets_nobody_in(server: Server, user: str) -> None:
    """A wrong password is exit status 3, and is not printed."""
    with server.client() as admin:
        admin.execute_command("ACL", "SETUSER", "somebody", "reset", "on", ">hunter2", "~*", "+@all")
        done = run_command("doctor", "--url", server.url.replace("unix://", f"unix://{user}:hunter3@"))
        admin.acl_deluser("somebody")
    assert (done.returncode, done.stdout) == (3, b"")
    assert b"hunter3" not in done.stderr


@for_each("arguments", [["--yes", "--capacity", "5"], ["", "--url", "memory://"], []])
def test_bad_usage(arguments: list[str]) -> None:
    """An unknown option, no name and no URL are exit status 2."""
    done = run_command("doctor", *arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"Traceback" not in done.stderr
