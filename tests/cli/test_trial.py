"""`bloomredis doctor --trial`, on real servers, good and restricted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import redis

import bloomredis
from bloomredis import BloomFilter
from bloomredis.cli.doctor import trials
from bloomredis.cli.doctor.findings import Severity
from tests.support.clusters import ports
from tests.support.commands import run_command
from tests.support.modules import needs_module
from tests.support.readme import acl_rule, sharded_rule
from tests.support.servers import IN_MEMORY, Server, binaries, module_options, running
from tests.support.values import for_each

CRITICAL, OK = Severity.CRITICAL, Severity.OK


@contextmanager
def user(server: Server, *rights: str) -> Iterator[str]:
    """Create a user with these rights and yield the user's URL."""
    with server.client() as admin:
        admin.execute_command("ACL", "SETUSER", "somebody", "reset", "on", ">hunter2", *rights)
        yield server.url.replace("unix://", "unix://somebody:hunter2@")
        admin.acl_deluser("somebody")


def tried(url: str, *more: object) -> dict[str, tuple[str, str]]:
    """Return the severity of each finding of a trial and the words that follow it, by what was seen."""
    done = run_command("doctor", *more, "--url", url, "--trial", "--yes", "--json")
    assert done.stderr == b""
    found = json.loads(done.stdout)["findings"]
    assert done.returncode == any(one["severity"] == "critical" for one in found)
    return {one["seen"]: (one["severity"], one["why"]) for one in found}


def trial_of(url: str, *more: object) -> bytes:
    """Return what a trial prints."""
    return run_command("doctor", *more, "--url", url, "--trial", "--yes").stdout


def refused(found: dict[str, tuple[str, str]]) -> dict[str, str]:
    """Return the server's words, by what it refuses."""
    return {seen: words for seen, (severity, words) in found.items() if severity == "critical"}


OWN = ["fixed", "scaling", "rotating", "sharded", "counting", "classic"]
ONLY = {
    "remove": ["counting"],
    "adopt": ["scaling"],
    "snapshot": ["fixed", "classic"],
    "merge": ["fixed", "sharded", "classic"],
    "queue_add": ["fixed", "sharded", "counting", "classic"],
    "expire": ["fixed", "scaling", "sharded", "counting", "classic"],
}
"""The kinds that have a verb, if some lack it."""


@pytest.mark.parametrize("name", binaries())
def test_a_good_server(name: str) -> None:
    """Every verb of every kind is tried and succeeds; the exit status is 0, and no key is left."""
    with running(binaries()[name]) as server:
        found = tried(server.url)
        assert not server.keys()
    assert not refused(found)
    verbs = {verb: ONLY.get(verb, OWN) for verb in trials.VERBS}
    expected = {*trials.OTHERS, *(f"{verb}: {', '.join(kinds)}" for verb, kinds in verbs.items())}
    assert expected <= {*found}
    assert found["create: module"][0] == found[f"add(min_replicas=1): {', '.join(OWN)}"][0] == "note"


def test_a_module() -> None:
    """A module is tried too; where it is missing, that is critical if the filter needs it."""
    binary = binaries()["redis-8"]
    with running(binary, *IN_MEMORY, *module_options(binary)) as server:
        with server.client() as client:
            needs_module(client)
        found = tried(server.url, "--layout", "module")
        assert found[f"add: {', '.join(OWN)}, module"] == ("ok", "")
        assert not refused(found)
        assert not server.keys()
    with running(binary) as server:
        assert [*refused(tried(server.url, "--layout", "module"))] == ["create: module"]


def test_every_key_lives_for_a_minute_at_most(server: Server) -> None:
    """After each verb, each key has a time to live of at most 60 seconds."""
    longest = 0
    with server.client() as client:
        f = BloomFilter(client, "trial", capacity=1000, error_rate=1e-9, ttl=60)
        for verb, _ in trials.try_verbs(f, client):
            left = [client.pttl(key) for key in client.scan_iter(count=1000)]
            assert all(0 < each <= 60_000 for each in left), verb
            longest = max(longest, len(left))
        assert client.dbsize() == 0
    assert longest > len(["the filter", "a receipt", "a claim"])


def test_nothing_else_is_touched(server: Server) -> None:
    """Another filter stays as it is, and no command of the trial concerns the whole server."""
    with server.client() as client:
        BloomFilter(client, "seen", capacity=1000, error_rate=0.01).add("a")
        before = {key: client.dump(key) for key in client.scan_iter()}
        client.config_resetstat()
        assert [*trials.try_all(client, "seen", None)]
        sent = {name.removeprefix("cmdstat_") for name in client.info("commandstats")}
        assert {key: client.dump(key) for key in client.scan_iter()} == before
    allowed = {*needed(), "scan", "dump"}  # the last two are sent by this test itself
    by_client = {
        "config|resetstat",
        "config",
        "info",
        "hello",
        "client|setinfo",
        "client|maint_notifications",
        "client",
    }
    assert {name for name in sent - by_client if not name.startswith("bf.")} <= allowed


def needed() -> list[str]:
    """Return the commands of the documented rule."""
    return [rule[1:] for rule in acl_rule() if rule.startswith("+")]


def refusals(url: str) -> set[str]:
    """Return what a trial of two kinds, which use all commands, comes to if it is refused."""
    with redis.Redis.from_url(url) as client:
        filters: list[Any] = [
            BloomFilter(client, "trial", capacity=1000, error_rate=1e-9, layout="classic", ttl=60),
            bloomredis.CountingBloomFilter(client, "trial", capacity=1000, error_rate=1e-9, ttl=60),
        ]
        outcomes = [outcome for f in filters for _, outcome in trials.try_verbs(f, client)]
        outcomes += [
            trials.outcome_of(partial(call, client, "x"), right) for call, right in trials.OTHERS.values()
        ]
    return {words for severity, words in outcomes if severity is not OK}


@for_each("command", needed())
def test_each_missing_command_is_found(server_name: str, command: str) -> None:
    """If a command that filters need is renamed away, something is refused for it, by name."""
    with running(binaries()[server_name], *IN_MEMORY, "--rename-command", command, "") as server:
        assert any(re.search(f"nknown command.*{command.upper()}", words) for words in refusals(server.url))
        assert not server.keys()


@for_each("command", needed())
def test_each_missing_right_is_found(server: Server, command: str) -> None:
    """If the user lacks a right of the documented rule, something is refused for it (NOPERM)."""
    with user(server, "~*", "+@all", f"-{command}") as url:
        assert any(re.search("NOPERM|no permissions", words) for words in refusals(url))


def test_the_documented_rights_suffice(server: Server) -> None:
    """With the documented rule nothing is refused but sharded filters, and with their rule nothing."""
    with server.client() as client:
        BloomFilter(client, "seen", capacity=1000, error_rate=0.01).add("a")
    with user(server, *acl_rule()) as url:
        found = tried(url, "seen")
        assert [*refused(found)] == ["create: sharded"]
        assert sum(seen.endswith(", or not all of them") for _, seen in found.values()) == len(
            ["INFO", "CONFIG"]
        )
    with user(server, *acl_rule(), sharded_rule(), "~seen:trial:*") as url:
        assert not refused(tried(url, "seen"))
    with user(server, "~other", "+@all") as url:
        assert f"create: {', '.join(OWN)}" in refused(tried(url, "seen"))
        assert b"-> give the NAME of a filter that this user may use" in trial_of(url)
        assert b"-> give the NAME" not in trial_of(url, "seen")


REFUSING = {
    "replica": (("--replicaof", "127.0.0.1", "1"), "READONLY"),
    "few replicas": (("--min-replicas-to-write", "1"), "NOREPLICAS"),
    "full": (("--maxmemory", "1"), "OOM"),
    "no PEXPIRE": (("--rename-command", "pexpire", ""), "nknown "),
}


@for_each(("options", "word"), REFUSING.values())
def test_a_server_that_refuses_writes(server_name: str, options: tuple[str, ...], word: str) -> None:
    """No kind of filter can be made, the server's own word says why, and no key is left."""
    with running(binaries()[server_name], *IN_MEMORY, *options) as server:
        assert word in refused(tried(server.url))[f"create: {', '.join(OWN)}"]
        assert not server.keys()


def test_a_server_with_little_memory(server_name: str) -> None:
    """With 1 MB of free memory, that is a warning; what is refused is refused for it, and no key is left."""
    with running(binaries()[server_name]) as server, server.client() as client:
        client.config_set("maxmemory", client.info("memory")["used_memory"] + (1 << 20))
        found = tried(server.url)
        assert not server.keys()
    assert any(re.match("[0-9,]+ bytes of maxmemory .* are free", seen) for seen in found)
    assert all("OOM" in words for words in refused(found).values()), refused(found)


def test_a_wrong_answer_is_critical(any_client: redis.Redis) -> None:
    """A server that answers wrongly is not taken for a good one."""
    f = BloomFilter(any_client, "trial", capacity=1000, error_rate=1e-9)
    f.add("a")
    outcomes = dict(trials.try_verbs(f, any_client))
    assert outcomes["add"] == (CRITICAL, "the answer is [False, False], not [True, False]")


def test_a_node_of_a_cluster() -> None:
    """A node that does not serve the slot of the trial is reported, not an exception."""
    with ports(1) as (port,):  # the default would be the port plus 10,000
        pass
    options = ("--bind", "127.0.0.1", "--cluster-enabled", "yes", "--cluster-port", str(port))
    with running(binaries()["redis-8"], *options) as server:
        assert "CLUSTERDOWN" in refused(tried(server.url))[f"create: {', '.join(OWN)}"]


@for_each("yes", [(), ("--yes",)])
def test_a_trial_is_allowed_explicitly(any_server: Server, yes: tuple[str, ...]) -> None:
    """On a server that others may use, --trial needs --yes; without it nothing is sent."""
    with any_server.client() as client:
        before = client.info("stats")["total_connections_received"]
        done = run_command("doctor", "--url", any_server.url, "--trial", *yes)
        assert done.returncode == (0 if yes else 2)
        assert (client.info("stats")["total_connections_received"] == before) is not bool(yes)
    assert (b"--yes" in done.stderr) is not bool(yes)


def test_a_private_server() -> None:
    """A server of this process is tried without --yes."""
    done = run_command("doctor", "--url", "embedded://", "--trial")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\nok         add: fixed, scaling" in done.stdout
