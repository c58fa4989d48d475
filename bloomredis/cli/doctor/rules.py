"""The rules about a server and a filter: risks that no trial shows before it is too late."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from redis.exceptions import ResponseError

from bloomredis.bits.module_items import ModuleItems
from bloomredis.cli import filters
from bloomredis.cli.doctor.findings import Finding, Severity
from bloomredis.cli.kinds import Kind
from bloomredis.cli.server import nodes, product
from bloomredis.cli.stderr import problem
from bloomredis.errors import BloomError
from bloomredis.protocol import replies

LITTLE: Final = 1 << 24
LITTLE_SHARE: Final = 0.1
"""Less free memory, in bytes or as a share of maxmemory, will be used up soon."""
SOON: Final = 3600.0  # seconds
MUCH_WORSE: Final = 10  # times the configured false-positive rate


def of_servers(client: Any) -> Iterator[Finding]:
    """Yield the findings about the server, or about each primary of a cluster."""
    for node, one in nodes(client).items():
        facts: dict[str, Any] = {}
        for command, parts in {"info": ("all",), "config_get": ("save", "appendfsync")}.items():
            try:
                facts |= {key: value for part in parts for key, value in getattr(one, command)(part).items()}
            except ResponseError as error:
                seen = f"{command.upper().replace('_', ' ')} is refused: {error}"
                why = "eviction, memory and persistence are not known, or not all of them"
                yield Finding(Severity.UNCHECKED, seen, why, "ask the server's administrator", node)
        for finding in of_server(facts):
            yield replace(finding, node=node)


def of_server(facts: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the findings about a server by its replies to INFO and CONFIG GET; parts may be missing."""
    if "redis_version" in facts:
        yield Finding(Severity.OK, f"the server is {product(facts)}")
    if policy := facts.get("maxmemory_policy"):
        yield _eviction(policy, facts.get("maxmemory"))
    if "used_memory" in facts:
        yield _memory(facts, facts["used_memory"], facts.get("maxmemory", 0))
    if "aof_enabled" in facts:
        yield _persistence(facts, facts.get("appendfsync", "not known") if facts["aof_enabled"] else "")


def _eviction(policy: str, limit: int | None) -> Finding:
    seen = f"maxmemory-policy is {policy}"
    if policy == "noeviction":
        return Finding(Severity.OK, f"{seen}: nothing is evicted")
    any_key = policy.startswith("allkeys")
    return Finding(
        Severity.CRITICAL if any_key else Severity.WARNING,
        seen + "; it has no effect while maxmemory is not set" * (not limit),
        f"when memory runs short the server evicts {'any key' if any_key else 'keys with a ttl'}: filters, "
        "which lose all items; claims, so that two workers hold an item; receipts, so that a retried call "
        "reports its own items as present",
        "CONFIG SET maxmemory-policy noeviction; keep filters and caches on different servers",
    )


def _memory(facts: Mapping[str, Any], used: int, limit: int) -> Finding:
    free = max(0, limit - used + facts.get("mem_not_counted_for_evict", 0))
    if not limit or free >= max(LITTLE, LITTLE_SHARE * limit):
        room = f"of maxmemory {limit:,}" if limit else "and no maxmemory is set"
        return Finding(Severity.OK, f"{used:,} bytes are used {room}")
    return Finding(
        Severity.WARNING if free else Severity.CRITICAL,
        f"{free:,} bytes of maxmemory {limit:,} are free",
        "above maxmemory the server refuses each add (OOM), after it has evicted what its policy allows",
        "raise maxmemory, or free memory",
    )


def _persistence(facts: Mapping[str, Any], fsync: str) -> Finding:
    """Return the data loss that a crash causes; `fsync` is empty without an append-only file."""
    if fsync == "always":
        return Finding(Severity.OK, "each confirmed write is on disk (appendfsync always)")
    if fsync:
        return Finding(
            Severity.WARNING if fsync == "no" else Severity.NOTE,
            f"an append-only file with appendfsync {fsync}",
            "a crash of the machine loses the items of the last one or two seconds (with appendfsync no, of "
            "half a minute): they are new again",
            "CONFIG SET appendfsync always, so that each write waits for the disk",
        )
    return Finding(
        Severity.WARNING,
        f"no append-only file; snapshots: {facts.get('save', 'not known') or 'none'}",
        "a crash of the server loses the items added since the last snapshot, or all: they are new again",
        "CONFIG SET appendonly yes; with appendfsync always no confirmed call is lost",
    )


def of_filter(client: Any, name: str, layout: str | None) -> Iterator[Finding]:
    """Yield the findings about a stored filter, or about the error of reading it."""
    try:
        found = filters.opened(client, name, layout)
        about = found.info()
    except (BloomError, ResponseError) as error:
        meaning = replies.explained(error, name)
        why = "programs that use it get an error"
        yield Finding(Severity.CRITICAL, problem(meaning), why, getattr(meaning, "command", ""))
        return
    kind = filters.kind_of(found)
    count = about.approximate_count if kind is Kind.COUNTING else about.count
    grown = sum(layer.capacity for layer in about.layers) if about.layout == ModuleItems.name else 0
    room = max(about.capacity, grown)
    if count <= room:
        yield Finding(Severity.OK, f"{name!r}, a {type(found).__name__}, holds {count:,} of {room:,} items")
    else:
        rate = about.estimated_error_rate
        yield Finding(
            Severity.CRITICAL if rate >= MUCH_WORSE * about.error_rate else Severity.WARNING,
            f"{name!r} was made for {room:,} items and holds {count:,}",
            f"{rate:.2g} of new items are reported as present, not {about.error_rate:.2g}",
            f"create another one, for {2 * count:,} items or more, or one that grows (--kind scaling)"
            + f"; bloomredis adopt {name} loses no item" * (kind is Kind.FIXED),
        )
    if about.ttl is not None and about.ttl < SOON and kind is not Kind.ROTATING:
        yield Finding(
            Severity.WARNING,
            f"{name!r} expires in {about.ttl:.0f} seconds",
            "then all its items are lost, and programs that used it get FilterLostError",
            f"if this is not intended: bloomredis expire {name} 30d",
        )
