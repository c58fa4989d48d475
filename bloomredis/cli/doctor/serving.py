"""Checks that the server executes a filter's calls; each takes facts and returns a finding, without I/O."""

from __future__ import annotations

import re
from typing import Final

from bloomredis.bits.module_items import ModuleItems
from bloomredis.cli.doctor.facts import Facts
from bloomredis.cli.doctor.findings import Finding, Severity, ok

SLOW: Final = 0.005  # seconds
OLDEST_TESTED: Final = (6, 2)
OLDEST_WORKING: Final = (5, 0)


def version(facts: Facts) -> Finding | None:
    """Check that the server is not too old."""
    text = str(facts.info.get("redis_version", ""))
    found = re.match(r"(\d+)\.(\d+)", text)
    if not found:
        return None
    major_minor = int(found[1]), int(found[2])
    if major_minor >= OLDEST_TESTED:
        return ok(f"{facts.server} is recent enough")
    works = major_minor >= OLDEST_WORKING
    return Finding(
        Severity.WARNING if works else Severity.CRITICAL,
        f"the server is Redis {text}",
        "bloomredis is tested on Redis 6.2 and later"
        if works
        else "a script may not write after it has read the time, so no filter can be created",
        "update the server to 6.2 or later, or to Valkey",
    )


def role(facts: Facts) -> Finding | None:
    """Check that the server is a primary."""
    if facts.info.get("role") == "master":
        return ok("this is a primary")
    if facts.info.get("role") != "slave":
        return None
    link = facts.info.get("master_link_status")
    return Finding(
        Severity.CRITICAL,
        "this is a replica" + (f", and its link to the primary is {link}" if link != "up" else ""),
        "every write is refused (READONLY), or lost if the replica is writable",
        "give the URL of the primary",
    )


def replicas(facts: Facts) -> Finding | None:
    """Check that a primary has enough replicas."""
    if facts.info.get("role") != "master":
        return None
    good = int(facts.info.get("min_slaves_good_slaves", facts.info.get("connected_slaves", 0)))
    wanted = int(facts.config.get("min-replicas-to-write", 0))
    if good < wanted:
        seen = f"{good} good replicas; min-replicas-to-write is {wanted}"
        return Finding(
            Severity.CRITICAL, seen, "every write is refused (NOREPLICAS)", "bring the replicas back"
        )
    if not good:
        why = "a call with min_replicas above 0 raises OutcomeUnknownError; there is no second copy"
        return Finding(Severity.NOTE, "there is no replica", why, "REPLICAOF makes a server a replica")
    why = "a failover loses the items that the replicas had not yet received: they are new again"
    way_out = f"give filters min_replicas, up to {good}"
    return Finding(Severity.NOTE, f"replicas: {good}, asynchronous", why, way_out)


def module(facts: Facts) -> Finding | None:
    """Check that the server has the module that a filter needs, or report that it could use the module."""
    if facts.layout == ModuleItems.name and not facts.has_module:
        return Finding(
            Severity.CRITICAL,
            "the server has no Bloom filter module (commands BF.*)",
            f"calls of a filter with layout={ModuleItems.name!r} will be refused",
            "use Redis 8, Redis Stack or Valkey with valkey-bloom, or leave the layout out",
        )
    if not facts.has_module or facts.layout is not None:
        return None
    return Finding(
        Severity.NOTE,
        "the server has a Bloom filter module (commands BF.*)",
        f"a new filter with layout={ModuleItems.name!r} takes a third of the server's time in batches",
        "the page Kinds of filters of the documentation says when to use it; the commands BF.* need rights "
        "of their own",
    )


def cluster(facts: Facts) -> Finding | None:
    """Check that a client of one node can reach all keys."""
    if not facts.info.get("cluster_enabled") or facts.node is not None:
        return None
    return Finding(
        Severity.WARNING,
        "the server is a node of a cluster",
        "a client of one node is refused (MOVED) the keys of other nodes, now or after slots have moved",
        "use redis.RedisCluster or redis.asyncio.RedisCluster; here, leave --no-cluster out",
    )


def latency(facts: Facts) -> Finding | None:
    """Check that a round trip, the least duration of a call, is short."""
    seen = f"a round trip takes {facts.round_trip * 1000:.2f} ms"
    if facts.round_trip < SLOW:
        return ok(seen) if facts.round_trip else None
    return Finding(
        Severity.NOTE,
        seen,
        f"one caller makes at most {1 / facts.round_trip:.0f} calls a second",
        "use add_many() or asyncio, which share round trips; or move closer",
    )


def no_info(facts: Facts) -> Finding | None:
    """Report that INFO is refused to the doctor."""
    return _unchecked(
        facts, "INFO", "memory, eviction, persistence, replicas, version and cluster mode are not known"
    )


def no_config(facts: Facts) -> Finding | None:
    """Report that CONFIG GET is refused to the doctor."""
    return _unchecked(
        facts,
        "CONFIG GET",
        "snapshots, appendfsync, min-replicas-to-write and proto-max-bulk-len are not known",
    )


def _unchecked(facts: Facts, command: str, why: str) -> Finding | None:
    error = facts.unchecked.get(command)
    way_out = f"run the doctor as a user who may run {command}, or ask the server's administrator"
    seen = f"{command} is refused: {error}"
    return None if error is None else Finding(Severity.UNCHECKED, seen, why, way_out)
