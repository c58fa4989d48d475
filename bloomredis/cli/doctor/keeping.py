"""Checks of memory and persistence; each takes facts and yields findings, without I/O."""

from __future__ import annotations

from typing import Final

from bloomredis.cli.doctor.facts import Facts
from bloomredis.cli.doctor.findings import Finding, Findings, Severity
from bloomredis.cli.doctor.state import State

LITTLE_SHARE: Final = 0.1  # of maxmemory; less will be used up soon


def eviction(facts: Facts) -> Findings:
    """Check that the server does not evict filters or their auxiliary keys when memory runs short."""
    policy = str(facts.info.get("maxmemory_policy", ""))
    expires = isinstance(facts.stored, State) and facts.stored.ttl is not None
    seen = f"maxmemory-policy is {policy}"
    if not facts.info.get("maxmemory"):
        seen += "; it has no effect while maxmemory is not set"
    way_out = "CONFIG SET maxmemory-policy noeviction; keep filters and caches on different servers"
    if policy.startswith("allkeys"):
        why = (
            "when memory runs short the server may evict any key: the filter, which loses all its items; "
            "claims, so that two workers hold an item; receipts, so that a retried call reports its own "
            "items as present"
        )
        yield Finding(Severity.CRITICAL, seen, why, way_out)
    elif policy.startswith("volatile") and expires:
        why = f"when memory runs short the server may evict {facts.name!r}, which has a ttl"
        yield Finding(Severity.CRITICAL, seen, why, way_out)
    elif policy.startswith("volatile"):
        why = (
            "when memory runs short the server evicts keys with a ttl: filters; claims, so that two workers "
            "hold an item; receipts, so that a retried call reports its own items as present"
        )
        yield Finding(Severity.WARNING, seen, why, way_out)


def memory(facts: Facts) -> Findings:
    """Check that the memory suffices for the planned filter and for calls.

    A stored filter is part of the used memory; `clear()` frees it before it allocates the same again.
    """
    size = 0 if facts.planned is None or isinstance(facts.stored, State) else facts.planned.size_bytes
    needed = allocated(size, str(facts.info.get("mem_allocator", "")))
    purpose = f"the new filter takes {needed:,}" if size else "every call takes a little"
    used = facts.info.get("used_memory", 0)
    way_out = "raise maxmemory, free memory, or plan a smaller filter (bloomredis plan)"
    if limit := facts.info.get("maxmemory", 0):
        free = max(0, limit - used + facts.info.get("mem_not_counted_for_evict", 0))
        seen = f"{free:,} bytes of maxmemory {limit:,} are free; {purpose}"
        why = "above maxmemory " + (
            "each add is refused (OOM), though a new filter is still created and reads go on"
            if facts.info.get("maxmemory_policy") == "noeviction"
            else "the server evicts keys to make room, and refuses each add (OOM) if it has none to evict"
        )
        if free <= needed:
            yield Finding(Severity.CRITICAL, seen, why, way_out)
        elif free - needed < LITTLE_SHARE * limit:
            yield Finding(Severity.WARNING, seen, why, way_out)
    elif size and needed + used > (machine := facts.info.get("total_system_memory", needed + used)):
        seen = f"the machine has {machine:,} bytes and the server uses {used:,} of them; {purpose}"
        yield Finding(Severity.CRITICAL, seen, "the system kills a server that needs more", way_out)
    longest = int(facts.config.get("proto-max-bulk-len", size))
    if size > longest:
        seen = f"proto-max-bulk-len is {longest:,} bytes; {purpose}"
        why = "the server refuses to create a longer string"
        yield Finding(Severity.CRITICAL, seen, why, f"CONFIG SET proto-max-bulk-len {size}")


def allocated(size: int, allocator: str) -> int:
    """Return the bytes that a server allocates for a string; jemalloc has four sizes in each doubling."""
    if not allocator.startswith("jemalloc") or size < 16384:
        return size
    step = 1 << ((size - 1).bit_length() - 3)
    return -(-size // step) * step


_DURABLE: Final = "CONFIG SET appendonly yes; with appendfsync always no confirmed call is lost"
_PERSISTENCE: Final = {
    "none": (
        Severity.WARNING,
        "no append-only file and no snapshots",
        "a restart of the server loses every filter",
        _DURABLE,
    ),
    "snapshots": (
        Severity.WARNING,
        "snapshots only (save {save}), and {changes} changes since the last one",
        "a crash of the server loses the items added since the last snapshot: they are new again",
        _DURABLE,
    ),
    "not known": (
        Severity.WARNING,
        "no append-only file; the settings of snapshots could not be read",
        "a crash of the server loses the items added since the last snapshot, if there is one",
        _DURABLE,
    ),
    "no": (
        Severity.WARNING,
        "an append-only file with appendfsync no",
        "a crash of the machine loses the items that were not yet on disk, up to half a minute",
        "CONFIG SET appendfsync everysec, or always",
    ),
    "everysec": (
        Severity.NOTE,
        "an append-only file with appendfsync everysec",
        "a crash of the machine loses the items of the last one or two seconds: they are new again",
        "CONFIG SET appendfsync always, so that each write waits for the disk",
    ),
}


def persistence(facts: Facts) -> Findings:
    """Report the data loss that a crash or a restart of the server causes."""
    if "aof_enabled" not in facts.info:
        return
    save = facts.config.get("save")
    if facts.info["aof_enabled"]:
        mode = facts.config.get("appendfsync", "")
    else:
        mode = "not known" if save is None else "snapshots" if save else "none"
    if mode in _PERSISTENCE:
        severity, seen, why, way_out = _PERSISTENCE[mode]
        changes = facts.info.get("rdb_changes_since_last_save", "an unknown number of")
        yield Finding(severity, seen.format(save=save, changes=changes), why, way_out)


def saving(facts: Facts) -> Findings:
    """Check that the server does not refuse writes because it fails to save."""
    stops = facts.config.get("save") and facts.config.get("stop-writes-on-bgsave-error", "yes") == "yes"
    for status, refuses in (
        ("rdb_last_bgsave_status", stops),
        ("aof_last_write_status", facts.info.get("aof_enabled")),
    ):
        if refuses and facts.info.get(status, "ok") != "ok":
            yield Finding(
                Severity.CRITICAL,
                f"{status} is {facts.info[status]}",
                "the server cannot save its data and refuses writes (MISCONF)",
                "see its log; free disk space, or repair the disk",
            )
