"""Checks that the server executes a filter's calls; each takes facts and yields findings, without I/O."""

from __future__ import annotations

import re
from typing import Final

from bloomredis.bits.module_items import ModuleItems
from bloomredis.cli.doctor.facts import Facts
from bloomredis.cli.doctor.findings import Finding, Findings, Severity
from bloomredis.protocol.keys import auxiliary_prefix

SLOW: Final = 0.005  # seconds
OLDEST_TESTED: Final = (6, 2)
OLDEST_WORKING: Final = (5, 0)

_RULE: Final = "the ACL rule in bloomredis's docs/rights.md suffices"
ONLY_FOR: Final = {
    "bitcount": "info() and approximate_count()",
    "bitop": "load()",
    "wait": "calls with min_replicas",
    "bitfield": "filters that count",
    "rename": "layout='module' and filters restored from other systems",
}
"""Commands that only some features need, with these features."""

_UNCHECKED: Final = {
    "INFO": "memory, eviction, persistence, replicas, version and cluster mode are not known",
    "CONFIG GET": "snapshots, appendfsync, min-replicas-to-write and proto-max-bulk-len are not known",
}


def version(facts: Facts) -> Findings:
    """Check that the server is not too old."""
    text = str(facts.info.get("redis_version", ""))
    found = re.match(r"(\d+)\.(\d+)", text)
    if found and (major_minor := (int(found[1]), int(found[2]))) < OLDEST_TESTED:
        works = major_minor >= OLDEST_WORKING
        yield Finding(
            Severity.WARNING if works else Severity.CRITICAL,
            f"the server is Redis {text}",
            "bloomredis is tested on Redis 6.2 and later"
            if works
            else "a script may not write after it has read the time, so no filter can be created",
            "update the server to 6.2 or later, or to Valkey",
        )


def role(facts: Facts) -> Findings:
    """Check that the server is a primary with enough replicas."""
    info = facts.info
    if info.get("role") == "slave":
        link = info.get("master_link_status")
        yield Finding(
            Severity.CRITICAL,
            "this is a replica" + (f", and its link to the primary is {link}" if link != "up" else ""),
            "every write is refused (READONLY), or lost if the replica is writable",
            "give the URL of the primary",
        )
    elif info.get("role") == "master":
        replicas = int(info.get("min_slaves_good_slaves", info.get("connected_slaves", 0)))
        wanted = int(facts.config.get("min-replicas-to-write", 0))
        if replicas < wanted:
            seen = f"{replicas} good replicas; min-replicas-to-write is {wanted}"
            why = "every write is refused (NOREPLICAS)"
            yield Finding(Severity.CRITICAL, seen, why, "bring the replicas back")
        elif not replicas:
            why = "a call with min_replicas above 0 raises OutcomeUnknownError; there is no second copy"
            yield Finding(Severity.NOTE, "there is no replica", why, "REPLICAOF makes a server a replica")
        else:
            why = "a failover loses the items that the replicas had not yet received: they are new again"
            way_out = f"give filters min_replicas, up to {replicas}"
            yield Finding(Severity.NOTE, f"replicas: {replicas}, asynchronous", why, way_out)


def lua(facts: Facts) -> Findings:
    """Check that scripts may run, and have the library that makes them fast."""
    if facts.lua_error is not None:
        seen = f"a script is refused; {facts.lua_error}"
        why = "every call of a filter is a script"
        yield Finding(Severity.CRITICAL, seen, why, f"allow EVAL and EVALSHA: {_RULE}")
    elif not facts.has_struct:
        seen, why = "scripts lack the library struct", "they unpack numbers in Lua itself, which is slower"
        yield Finding(Severity.NOTE, seen, why, "use Redis or Valkey itself")


def module(facts: Facts) -> Findings:
    """Check that the server has the module that a filter needs, or report that it could use the module."""
    if facts.layout == ModuleItems.name and not facts.has_module:
        yield Finding(
            Severity.CRITICAL,
            "the server has no Bloom filter module (commands BF.*)",
            f"calls of a filter with layout={ModuleItems.name!r} will be refused",
            "use Redis 8, Redis Stack or Valkey with valkey-bloom, or leave the layout out",
        )
    elif facts.has_module and facts.layout is None:
        yield Finding(
            Severity.NOTE,
            "the server has a Bloom filter module (commands BF.*)",
            f"a new filter with layout={ModuleItems.name!r} takes a third of the server's time in batches",
            "docs/kinds.md says when to use it; the commands BF.* need rights of their own",
        )


def rights(facts: Facts) -> Findings:
    """Check that the user may run all commands of the scripts on the filter's keys."""
    found, user = facts.rights, facts.rights.user or "<user>"
    for limited in (False, True):
        missing = [command for command in found.commands if (command in ONLY_FOR) is limited]
        if missing:
            refused = (
                " and ".join(dict.fromkeys(ONLY_FOR[command] for command in missing)) if limited else "calls"
            )
            yield Finding(
                Severity.WARNING if limited else Severity.CRITICAL,
                f"this user may not run {', '.join(missing)}",
                f"{refused} will be refused (NOPERM)",
                f"ACL SETUSER {user} {' '.join(f'+{command}' for command in missing)}; {_RULE}",
            )
    if found.keys is not None:
        prefix = auxiliary_prefix(str(facts.name).encode()).decode()
        yield Finding(
            Severity.CRITICAL,
            f"this user may not use all keys of {facts.name!r}; {found.keys}",
            "calls will be refused (NOPERM); receipts and claims are keys of their own",
            f"ACL SETUSER {user} ~{facts.name} ~{prefix}*; {_RULE}",
        )


def cluster(facts: Facts) -> Findings:
    """Check that a client of one node can reach all keys."""
    if facts.info.get("cluster_enabled") and facts.node is None:
        yield Finding(
            Severity.WARNING,
            "the server is a node of a cluster",
            "a client of one node is refused (MOVED) the keys of other nodes, now or after slots have moved",
            "use redis.RedisCluster or redis.asyncio.RedisCluster; here, leave --no-cluster out",
        )


def latency(facts: Facts) -> Findings:
    """Check that a round trip, the least duration of a call, is short."""
    if facts.round_trip >= SLOW:
        yield Finding(
            Severity.NOTE,
            f"a round trip takes {facts.round_trip * 1000:.1f} ms",
            f"one caller makes at most {1 / facts.round_trip:.0f} calls a second",
            "use add_many(), asyncio or coalesce=True, which share round trips; or move closer",
        )


def unchecked(facts: Facts) -> Findings:
    """Report the commands that the server refused to the doctor."""
    for command, error in facts.unchecked.items():
        way_out = f"run the doctor as a user who may run {command}, or ask the server's administrator"
        yield Finding(Severity.UNCHECKED, f"{command} is refused: {error}", _UNCHECKED[command], way_out)
    if facts.rights.unchecked and facts.lua_error is None:
        yield Finding(
            Severity.UNCHECKED,
            f"the right to run {', '.join(facts.rights.unchecked)} could not be tried",
            f"the server said: {next(iter(facts.rights.unchecked.values()))}",
            "allow ACL WHOAMI and ACL DRYRUN (Redis 7.0 or later)" + (", or give NAME" * (not facts.name)),
        )
