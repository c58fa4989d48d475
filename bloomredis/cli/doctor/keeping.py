"""Checks of memory and persistence; each takes facts and returns a finding, without I/O."""

from __future__ import annotations

from typing import Final

from bloomredis.cli.doctor.facts import Facts
from bloomredis.cli.doctor.findings import Finding, Severity, ok
from bloomredis.cli.doctor.state import State

LITTLE_SHARE: Final = 0.1  # of maxmemory; less will be used up soon


def eviction(facts: Facts) -> Finding | None:
    """Check that the server does not evict filters or their auxiliary keys when memory runs short."""
    policy = str(facts.info.get("maxmemory_policy", ""))
    if policy == "noeviction":
        return ok("maxmemory-policy is noeviction: nothing is evicted")
    if not policy.startswith(("allkeys", "volatile")):
        return None
    seen = f"maxmemory-policy is {policy}"
    if not facts.info.get("maxmemory"):
        seen += "; it has no effect while maxmemory is not set"
    others = (
        "claims, so that two workers hold an item; receipts, so that a retried call reports its own items as "
        "present"
    )
    severity, why = (
        Severity.CRITICAL,
        f"the server may evict any key: the filter, which loses all its items; {others}",
    )
    if policy.startswith("volatile"):
        if isinstance(facts.stored, State) and facts.stored.ttl is not None:
            why = f"the server may evict {facts.name!r}, which has a ttl; {others}"
        else:
            severity, why = Severity.WARNING, f"the server evicts keys with a ttl: filters; {others}"
    way_out = "CONFIG SET maxmemory-policy noeviction; keep filters and caches on different servers"
    return Finding(severity, seen, f"when memory runs short {why}", way_out)


def _planned_bytes(facts: Facts) -> int:
    """Return the size of the planned filter; 0 if it is stored, and so a part of the used memory."""
    return 0 if facts.planned is None or isinstance(facts.stored, State) else facts.planned.size_bytes


def memory(facts: Facts) -> Finding | None:
    """Check that the memory suffices for the planned filter and for calls.

    `clear()` frees the memory of a stored filter before it allocates the same again.
    """
    info, size = facts.info, _planned_bytes(facts)
    needed = allocated(size, str(info.get("mem_allocator", "")))
    purpose = f"the new filter takes {needed:,}" if size else "every call takes a little"
    used, limit = info.get("used_memory", 0), info.get("maxmemory", 0)
    way_out = "raise maxmemory, free memory, or plan a smaller filter (bloomredis plan)"
    free = max(0, limit - used + info.get("mem_not_counted_for_evict", 0))
    if limit and free - needed < LITTLE_SHARE * limit:
        why = "above maxmemory " + (
            "each add is refused (OOM), though a new filter is still created and reads go on"
            if info.get("maxmemory_policy") == "noeviction"
            else "the server evicts keys to make room, and refuses each add (OOM) if it has none to evict"
        )
        severity = Severity.CRITICAL if free <= needed else Severity.WARNING
        return Finding(severity, f"{free:,} bytes of maxmemory {limit:,} are free; {purpose}", why, way_out)
    if not limit and needed + used > (machine := info.get("total_system_memory", needed + used)):
        seen = f"the machine has {machine:,} bytes and the server uses {used:,} of them; {purpose}"
        return Finding(Severity.CRITICAL, seen, "the system kills a server that needs more", way_out)
    if "used_memory" not in info:
        return None
    room = f" of maxmemory {limit:,}" if limit else ", no maxmemory is set"
    return ok(f"enough memory: {used:,} bytes are used{room}")


def length(facts: Facts) -> Finding | None:
    """Check that the server allows a string as long as the planned filter."""
    size = _planned_bytes(facts)
    longest = int(facts.config.get("proto-max-bulk-len", size))
    if size <= longest:
        return None
    seen = f"proto-max-bulk-len is {longest:,} bytes; the new filter takes {size:,}"
    why = "the server refuses to create a longer string"
    return Finding(Severity.CRITICAL, seen, why, f"CONFIG SET proto-max-bulk-len {size}")


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


def persistence(facts: Facts) -> Finding | None:
    """Report the data loss that a crash or a restart of the server causes."""
    if "aof_enabled" not in facts.info:
        return None
    save = facts.config.get("save")
    if facts.info["aof_enabled"]:
        mode = facts.config.get("appendfsync", "")
    else:
        mode = "not known" if save is None else "snapshots" if save else "none"
    if mode not in _PERSISTENCE:
        return ok("each confirmed write is on disk (appendfsync always)") if mode == "always" else None
    severity, seen, why, way_out = _PERSISTENCE[mode]
    changes = facts.info.get("rdb_changes_since_last_save", "an unknown number of")
    return Finding(severity, seen.format(save=save, changes=changes), why, way_out)


def snapshots(facts: Facts) -> Finding | None:
    """Check that the server does not refuse writes because it fails to save a snapshot."""
    status = facts.info.get("rdb_last_bgsave_status")
    if status == "ok":
        return ok("the last save succeeded")
    stops = facts.config.get("stop-writes-on-bgsave-error", "yes") == "yes"
    return _fails("rdb_last_bgsave_status", status) if status and stops and facts.config.get("save") else None


def log(facts: Facts) -> Finding | None:
    """Check that the server does not refuse writes because it fails to write its append-only file."""
    status = facts.info.get("aof_last_write_status", "ok")
    return (
        _fails("aof_last_write_status", status) if facts.info.get("aof_enabled") and status != "ok" else None
    )


def _fails(what: str, status: str) -> Finding:
    return Finding(
        Severity.CRITICAL,
        f"{what} is {status}",
        "the server cannot save its data and refuses writes (MISCONF)",
        "see its log; free disk space, or repair the disk",
    )
