"""Findings of `bloomredis doctor`: scripted facts through its checks, real servers through the command."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import redis

import bloomredis
from bloomredis import BloomFilter, compat, connect
from bloomredis.cli.doctor import condition, keeping
from bloomredis.cli.doctor.checkup import checkup
from bloomredis.cli.doctor.facts import Facts, gather
from bloomredis.cli.doctor.findings import Finding, Severity
from bloomredis.cli.doctor.state import State, of_header
from bloomredis.cli.kinds import CLASSES, Kind
from bloomredis.errors import BloomError, FilterMismatchError, FilterNotFoundError, ServerRefusedError
from bloomredis.stored import planning
from tests.support.clusters import ports
from tests.support.commands import run_command
from tests.support.readme import acl_rule
from tests.support.servers import Server, binaries, running
from tests.support.values import for_each

CRITICAL, WARNING, NOTE, UNCHECKED, OK = sorted(Severity, reverse=True)
PLAN = planning.new_header(1_000_000, 0.01, "classic")
SIZE = PLAN.size_bytes
LASTING = ("--appendonly", "yes", "--appendfsync", "always")


def stored(*, count: int = 0, ttl: float | None = None) -> State:
    return of_header(replace(PLAN, count=count), ttl)


def limit(free: int, policy: str = "noeviction") -> dict[str, Any]:
    """Return INFO of a server with that memory limit."""
    return {"maxmemory": 10**8, "used_memory": 10**8 - free, "maxmemory_policy": policy}


def config(**settings: str) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in settings.items()}


WORST = {
    # The facts, and the level of their worst finding; None if they have no finding.
    "nothing is known": (Facts(), None),
    "a good server": (Facts(info={**limit(10**7 * 5), "role": "?"}, stored=stored(count=10)), None),
    "allkeys": (Facts(info=limit(10**8, "allkeys-lfu")), (CRITICAL, "allkeys-lfu")),
    "allkeys, no limit": (Facts(info={"maxmemory_policy": "allkeys-lru"}), (CRITICAL, "is not set")),
    "volatile, no ttl": (
        Facts(info=limit(10**8, "volatile-ttl"), stored=stored()),
        (WARNING, "volatile-ttl"),
    ),
    "volatile, ttl": (
        Facts(info=limit(10**8, "volatile-lru"), stored=stored(ttl=1e6)),
        (CRITICAL, "volatile"),
    ),
    "no room": (
        Facts(info=limit(SIZE), planned=PLAN),
        (CRITICAL, f"^{SIZE:,} bytes of maxmemory 100,000,000 are"),
    ),
    "little room": (Facts(info=limit(SIZE + 1), planned=PLAN), (WARNING, f"takes {SIZE:,}$")),
    "room": (Facts(info=limit(SIZE + 10**7), planned=PLAN), None),
    "stored already": (Facts(info=limit(10**7), planned=PLAN, stored=stored()), None),
    "full": (Facts(info=limit(-5), stored=stored()), (CRITICAL, "^0 bytes of maxmemory")),
    "buffers do not count": (Facts(info=limit(-5) | {"mem_not_counted_for_evict": 10**7 + 5}), None),
    "small machine": (
        Facts(info={"used_memory": 9, "total_system_memory": SIZE}, planned=PLAN),
        (CRITICAL, "machine"),
    ),
    "short strings": (
        Facts(config=config(proto_max_bulk_len="1048576"), planned=PLAN),
        (CRITICAL, "is 1,048,576 bytes"),
    ),
    "no persistence": (Facts(info={"aof_enabled": 0}, config=config(save="")), (WARNING, "no snapshots")),
    "snapshots": (
        Facts(info={"aof_enabled": 0, "rdb_changes_since_last_save": 7}, config=config(save="60 1")),
        (WARNING, r"save 60 1\), and 7 changes"),
    ),
    "no appendonly": (Facts(info={"aof_enabled": 0}), (WARNING, "could not be read")),
    "appendfsync no": (
        Facts(info={"aof_enabled": 1}, config=config(appendfsync="no")),
        (WARNING, "fsync no"),
    ),
    "everysec": (Facts(info={"aof_enabled": 1}, config=config(appendfsync="everysec")), (NOTE, "everysec")),
    "always": (Facts(info={"aof_enabled": 1}, config=config(appendfsync="always")), None),
    "no disk": (
        Facts(info={"rdb_last_bgsave_status": "err"}, config=config(save="60 1")),
        (CRITICAL, "rdb_last_bgsave_status is err"),
    ),
    "no disk, unused": (Facts(info={"rdb_last_bgsave_status": "err"}, config=config(save="")), None),
    "no log": (Facts(info={"aof_enabled": 1, "aof_last_write_status": "err"}), (CRITICAL, "aof_last_write")),
    "replica": (Facts(info={"role": "slave", "master_link_status": "down"}), (CRITICAL, "primary is down")),
    "no replica": (Facts(info={"role": "master", "connected_slaves": 0}), (NOTE, "no replica")),
    "replicas": (Facts(info={"role": "master", "connected_slaves": 2}), (NOTE, "replicas: 2")),
    "few replicas": (
        Facts(info={"role": "master", "min_slaves_good_slaves": 1}, config=config(min_replicas_to_write="2")),
        (CRITICAL, "1 good replicas; min-replicas-to-write is 2"),
    ),
    "ancient": (Facts(info={"redis_version": "4.0.14"}), (CRITICAL, "4.0.14")),
    "old": (Facts(info={"redis_version": "6.0.16"}), (WARNING, "6.0.16")),
    "old enough": (Facts(info={"redis_version": "6.2.0"}), None),
    "cluster": (Facts(info={"cluster_enabled": 1}), (WARNING, "node of a cluster")),
    "far away": (Facts(round_trip=0.02), (NOTE, "20.00 ms")),
    "no INFO": (Facts(unchecked={"INFO": "NOPERM"}), (UNCHECKED, "INFO is refused: NOPERM")),
    "missing": (Facts(name="n", stored=FilterNotFoundError("x")), (CRITICAL, "no filter 'n'")),
    "not yet": (Facts(name="n", stored=FilterNotFoundError("x"), planned=PLAN), (NOTE, "no filter 'n'")),
    "foreign": (
        Facts(name="n", stored=FilterMismatchError("no Bloom filter")),
        (CRITICAL, "no Bloom filter"),
    ),
    "unreadable": (
        Facts(name="n", stored=ServerRefusedError("x", "MASTERDOWN")),
        (CRITICAL, "'n' could not"),
    ),
    "elsewhere": (Facts(name="n", stored=BloomError("MovedError: 1 h:1")), (UNCHECKED, "MovedError")),
    "other parameters": (
        Facts(name="n", stored=stored(), planned=planning.new_header(5, 0.5, None)),
        (CRITICAL, "capacity 1,000,000 and error_rate 0.01, not 5 and 0.5"),
    ),
    "full to the brim": (Facts(name="n", stored=stored(count=1_000_000)), None),
    "overfull": (Facts(name="n", stored=stored(count=1_000_001)), (WARNING, "and holds 1,000,001")),
    "useless": (Facts(name="n", stored=stored(count=3_000_000)), (CRITICAL, "and holds 3,000,000")),
    "ends soon": (Facts(name="n", stored=stored(ttl=59.6)), (WARNING, "expires in 60 seconds")),
}


@for_each(("facts", "worst"), WORST.values())
def test_what_bites(facts: Facts, worst: tuple[Severity, str] | None) -> None:
    """The worst finding of each bad state stands first, and a good state has no finding."""
    found = checkup(facts)
    if worst is None:
        assert {finding.severity for finding in found} <= {OK}
    else:
        assert found[0].severity is worst[0]
        assert re.search(worst[1], found[0].seen)
    assert [finding.severity for finding in found] == sorted((f.severity for f in found), reverse=True)


@for_each("policy", ["allkeys-lru", "volatile-ttl"])
def test_every_policy_that_evicts_takes_claims_and_receipts(policy: str) -> None:
    """Every policy that evicts can evict claims and receipts; the advice is `noeviction`."""
    found = checkup(Facts(info=limit(10**8, policy), stored=stored()))[0]
    assert "claims" in found.why
    assert "receipt" in found.why
    assert "noeviction" in found.way_out


def test_an_overfull_filter_is_described_by_its_rate() -> None:
    """At three times the capacity nearly half of new items look known: (1 - e^(-7 * 3 / 9.585))^7."""
    found = checkup(Facts(name="n", stored=stored(count=3_000_000)))[0]
    assert "0.44 of new items" in found.why


# -- on real servers


@contextmanager
def user(server: Server, *rules: str) -> Iterator[str]:
    """Create a user with these rights and yield the user's URL."""
    with server.client() as admin:
        admin.execute_command("ACL", "SETUSER", "somebody", "reset", "on", ">hunter2", *rules)
        yield server.url.replace("unix://", "unix://somebody:hunter2@")
        admin.acl_deluser("somebody")


def look(url: str, name: str | None = None) -> list[Finding]:
    """Return the findings about a server, without running the command."""
    with connect(url) as client:
        return checkup(gather(client, name, None))


def writes(client: redis.Redis) -> int:
    """Return how many changes the server has counted."""
    return int(client.info("persistence")["rdb_changes_since_last_save"])


def said(found: list[Finding], severity: Severity) -> str:
    return "\n".join(finding.seen for finding in found if finding.severity is severity)


@for_each("binary", binaries().values())
def test_a_good_server(binary: str) -> None:
    """A server that keeps its data has no finding above a note, and exit status 0."""
    with running(binary, *LASTING) as server:
        done = run_command("doctor", "--url", server.url, "--capacity", 1000, "--error-rate", 0.01)
        assert (done.returncode, done.stderr) == (0, b"")
        assert not said(look(server.url), CRITICAL) + said(look(server.url), WARNING)


CRITICAL_OPTIONS = {
    "eviction": (("--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru"), "is allkeys-lru$"),
    "small maxmemory": (
        ("--maxmemory", "10mb"),
        r"bytes of maxmemory 10,485,760 are free; the new filter takes 1[0-9],\d{3},\d{3}$",
    ),
    "replica": (("--replicaof", "127.0.0.1", "1"), "replica, and its link to the primary is down$"),
    "min-replicas": (("--min-replicas-to-write", "1"), "^0 good replicas; min-replicas-to-write is 1$"),
}


@pytest.mark.parametrize(("options", "seen"), CRITICAL_OPTIONS.values(), ids=CRITICAL_OPTIONS)
@pytest.mark.parametrize("binary", binaries().values(), ids=binaries())
def test_a_bad_server(binary: str, options: tuple[str, ...], seen: str) -> None:
    """A setting that loses data or refuses calls stands first, and the exit status is 1."""
    with running(binary, *LASTING, *options) as server:
        done = run_command(
            "doctor", "--url", server.url, "--capacity", 10_000_000, "--error-rate", 0.01, "--json"
        )
    first, *_ = json.loads(done.stdout)["findings"]
    assert (done.returncode, done.stderr, first["severity"]) == (1, b"", "critical")
    assert re.search(seen, first["seen"])


PERSISTENCE = {
    "none": (("--save", "", "--appendonly", "no"), WARNING, "no append-only file and no snapshots"),
    "snapshots": (("--save", "3600", "1"), WARNING, "snapshots only (save 3600 1), and 0 changes"),
    "everysec": (("--appendonly", "yes"), NOTE, "appendfsync everysec"),
    "no fsync": (("--appendonly", "yes", "--appendfsync", "no"), WARNING, "appendfsync no"),
}


@for_each(("options", "severity", "seen"), PERSISTENCE.values())
@for_each("binary", binaries().values())
def test_persistence(binary: str, options: tuple[str, ...], severity: Severity, seen: str) -> None:
    """The finding says how much data a crash would lose under this configuration."""
    with running(binary, *options) as server:
        assert seen in said(look(server.url), severity)


def test_the_size_is_what_the_server_takes(server: Server) -> None:
    """The reported size of a new filter is the memory that the server uses for it, within 64 KiB."""
    head = planning.new_header(10_000_000, 0.01, None)
    with server.client() as client:
        # From 7.0 on, the first run of a command allocates memory for its statistics.
        BloomFilter(client, "first", capacity=10, error_rate=0.01).create()
        before = client.info("memory")
        BloomFilter(client, "seen", capacity=10_000_000, error_rate=0.01).create()
        grown = client.info("memory")["used_memory"] - before["used_memory"]
    assert abs(grown - keeping.allocated(head.size_bytes, before["mem_allocator"])) < 65536


def test_the_state_of_a_filter(server: Server) -> None:
    """A missing, foreign, overfull or soon expiring filter is distinguished from a good one."""
    with server.client() as client:
        BloomFilter(client, "good", capacity=10, error_rate=0.01, ttl=10**6).add_many(range(10))
        BloomFilter(client, "bad", capacity=10, error_rate=0.01, ttl=100).add_many(range(100))
        client.set("foreign", "x" * 100)
    assert "good" not in said(look(server.url, "good"), CRITICAL) + said(look(server.url, "good"), WARNING)
    assert "'missing'" in said(look(server.url, "missing"), CRITICAL)
    assert "'foreign' holds no Bloom filter" in said(look(server.url, "foreign"), CRITICAL)
    assert re.search("'bad' was made for 10 items and holds [0-9]+$", said(look(server.url, "bad"), CRITICAL))
    assert re.search("'bad' expires in [0-9]+ seconds", said(look(server.url, "bad"), WARNING))


def test_a_user_with_just_the_documented_rights(server: Server) -> None:
    """With exactly the documented rights no finding is critical; refused checks are listed."""
    with server.client() as client:
        BloomFilter(client, "seen", capacity=1000, error_rate=0.01).add("a")
    with user(server, *acl_rule()) as url:
        done = run_command("doctor", "seen", "--url", url)
    assert (done.returncode, done.stderr) == (0, b"")
    assert re.findall(r"^unchecked  (INFO|CONFIG GET) is refused", done.stdout.decode(), re.MULTILINE)
    assert b"critical" not in done.stdout
    assert b"hunter2" not in done.stdout


@for_each("more", [(), ("-acl",)])
def test_nothing_is_changed(server: Server, more: tuple[str, ...]) -> None:
    """The filter and the number of keys stay the same, and the server counts no write."""
    with server.client() as client, user(server, "~*", "+@all", *more) as url:
        BloomFilter(client, "seen", capacity=1000, error_rate=0.01).add("a")
        before = client.dump("seen"), client.dbsize(), writes(client)
        look(url, "seen")
        look(url, "missing")
        assert (client.dump("seen"), client.dbsize(), writes(client)) == before


def test_only_harmless_commands_are_sent() -> None:
    """The doctor sends these commands and no others."""
    with running(binaries()["valkey-9"]) as server, server.client() as client:
        BloomFilter(client, "seen", capacity=1000, error_rate=0.01).add("a")
        client.config_resetstat()
        look(server.url, "seen")
        sent = {name.removeprefix("cmdstat_") for name in client.info("commandstats")}
    sent -= {"config|resetstat", "hello", "client|setinfo", "client|maint_notifications"}
    inside_describe = {"getrange", "strlen", "pttl", "eval", "evalsha"}
    assert sent - inside_describe == {
        "ping",
        "info",
        "config|get",
    }


def test_a_cluster() -> None:
    """A cluster node that does not serve the name's slot is reported, not an exception."""
    with ports(1) as (port,):  # the default would be the port plus 10,000
        pass
    options = ("--bind", "127.0.0.1", "--cluster-enabled", "yes", "--cluster-port", str(port))
    with running(binaries()["redis-8"], *options) as server:
        found = look(server.url, "seen")
    assert "node of a cluster" in said(found, WARNING)
    assert "'seen' could not be read" in said(found, CRITICAL)


# -- the command


def test_fakeredis() -> None:
    """A server with neither INFO nor ACL is checked as far as possible."""
    done = run_command("doctor", "x", "--url", "memory://", "--capacity", 10, "--error-rate", 0.1)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"unchecked  INFO is refused" in done.stdout


def test_json(any_server: Server) -> None:
    """--json prints one object with the findings of the text."""
    printed = json.loads(run_command("doctor", "--url", any_server.url, "--json").stdout)
    text = run_command("doctor", "--url", any_server.url).stdout.decode()
    assert printed["url"] == any_server.url
    assert printed["server"] in text
    said = [f"{one['severity']:<9}  {one['seen']}" for one in printed["findings"]]
    said += [f"{'ok':<9}  {one}" for one in printed["well"] if not re.search("round trip|memory:", one)]
    lines = re.findall(r"^\w.*", text, re.MULTILINE)[1:]
    assert said == [one for one in lines if not re.match("ok .*(round trip|memory:)", one)]


@for_each("login", ["somebody:hunter3@", "hunter3:hunter3@"])
def test_a_server_that_lets_nobody_in(server: Server, login: str) -> None:
    """A wrong password is exit status 3, and is not printed."""
    with user(server, "~*", "+@all"):
        done = run_command("doctor", "--url", server.url.replace("unix://", f"unix://{login}"))
    assert (done.returncode, done.stdout) == (3, b"")
    assert b"hunter3" not in done.stderr


@pytest.mark.parametrize(
    "arguments", [["--capacity", "5"], [""], ["--capacity", "5", "--error-rate", "2"], []]
)
def test_bad_usage(arguments: list[str]) -> None:
    """Half a plan, no name, an invalid rate and no URL are exit status 2."""
    url = ["--url", "memory://"] if arguments else []
    done = run_command("doctor", *url, *arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"Traceback" not in done.stderr


# -- every kind of filter


@pytest.mark.parametrize("kind", CLASSES)
def test_a_healthy_filter_of_each_kind(any_server: Server, kind: Kind) -> None:
    """A filter that works has no critical finding, and neither have its planned parameters."""
    own: dict[str, Any] = {"window": 60} if kind is Kind.ROTATING else {}
    plan = {"capacity": 1000, "error_rate": 0.01}
    with any_server.client() as client:
        getattr(bloomredis, CLASSES[kind])(client, "clicks", **plan, **own).add_many(range(900))
    options = ["--capacity", 1000, "--error-rate", 0.01, "--json"]
    done = run_command("doctor", "clicks", "--url", any_server.url, *options)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "'clicks'" not in str(json.loads(done.stdout)["findings"])


@for_each("kind", [kind for kind in CLASSES if kind is not Kind.SCALING])
def test_an_overfull_filter_of_each_kind(any_server: Server, kind: Kind) -> None:
    """More items than planned are reported; a scaling filter is never too small."""
    own: dict[str, Any] = {"window": 60} if kind is Kind.ROTATING else {}
    with any_server.client() as client:
        made = getattr(bloomredis, CLASSES[kind])(client, "clicks", capacity=100, error_rate=0.01, **own)
        for start in range(0, 1000, 100):
            made.add_many(range(start, start + 100))
    assert re.search("'clicks' was made for 100 items and holds", str(look(any_server.url, "clicks")))


def test_other_parameters_of_a_filter_that_grows(any_server: Server) -> None:
    """The parameters of a filter that grows are those of its creation, whatever its size now."""
    with any_server.client() as client:
        grown = bloomredis.ScalingBloomFilter(client, "clicks", capacity=100, error_rate=0.01)
        grown.add_many(range(1000))
        finding = condition.parameters(gather(client, "clicks", planning.new_header(700, 0.01, None)))
    assert finding
    assert "capacity 100 and error_rate 0.01, not 700" in finding.seen
    assert "ScalingBloomFilter.open()" in finding.way_out


def test_a_bitmap_of_another_system(any_server: Server) -> None:
    """With its --layout a bitmap is checked like any filter; without it, the finding names the option."""
    with any_server.client() as client:
        BloomFilter(client, "bits", layout=compat.go_zero(20_000)).add("x")
    command = ["doctor", "--url", any_server.url, "bits"]
    assert run_command(*command, "--layout", "go_zero:20000").returncode == 0
    assert b"--layout" in run_command(*command).stdout


def test_a_sharded_filter_that_has_lost_a_shard(any_server: Server) -> None:
    """The loss of a shard is a critical finding, and every text says so."""
    with any_server.client() as client:
        bloomredis.ShardedBloomFilter(client, "clicks", capacity=1000, error_rate=0.01).add("x")
        client.unlink(*(key for key in client.scan_iter() if key.startswith(b"{clicks:")))
    assert "clicks" in said(look(any_server.url, "clicks"), CRITICAL)
