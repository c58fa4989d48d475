"""Checks of the stored filter; each takes facts and returns a finding, without I/O."""

from __future__ import annotations

from typing import Final

from bloomredis.cli.doctor.facts import Facts
from bloomredis.cli.doctor.findings import Finding, Severity, ok
from bloomredis.cli.doctor.state import State
from bloomredis.cli.kinds import Kind
from bloomredis.errors import (
    BloomError,
    FilterLostError,
    FilterMismatchError,
    FilterNotFoundError,
    ServerRefusedError,
)

SOON: Final = 3600.0  # seconds
MUCH_WORSE: Final = 10  # times the configured false-positive rate


def presence(facts: Facts) -> Finding | None:
    """Check that a filter with the name exists."""
    found, name = facts.stored, facts.name
    if isinstance(found, State):
        return ok(f"{name!r} exists: a {found.called}")
    if isinstance(found, FilterNotFoundError):
        return Finding(
            Severity.CRITICAL if facts.planned is None else Severity.NOTE,
            f"there is no filter {name!r}",
            "programs that used it get FilterLostError; open() without parameters raises FilterNotFoundError",
            "find out whether it was evicted or expired; bloomredis create makes one",
        )
    if found is None:
        return None
    return _unreadable(found, f"{name!r} could not be read: {found.problem}")


def _unreadable(error: BloomError, seen: str) -> Finding:
    """Return the finding about a filter that could not be read."""
    refused = "calls with this name are refused"
    if isinstance(error, FilterMismatchError):
        way_out = "use another name; a bitmap of another system needs --layout here, and a layout in programs"
        return Finding(Severity.CRITICAL, error.problem, refused, way_out)
    if isinstance(error, FilterLostError):
        return Finding(Severity.CRITICAL, error.problem, refused, error.command)
    if isinstance(error, ServerRefusedError):
        return Finding(Severity.CRITICAL, seen, refused, error.command)
    way_out = "in a cluster, give --cluster and the host and port of a node"
    return Finding(Severity.UNCHECKED, seen, "its existence and fill are not known", way_out)


def parameters(facts: Facts) -> Finding | None:
    """Check that a program with the planned parameters may use the filter."""
    head, wanted = facts.stored, facts.planned
    if not isinstance(head, State) or wanted is None:
        return None
    if (head.capacity, head.error_rate) == (wanted.capacity, wanted.error_rate):
        return ok("its capacity and error_rate are as given")
    return Finding(
        Severity.CRITICAL,
        f"{facts.name!r} has capacity {head.capacity:,} and error_rate {head.error_rate:g}, "
        f"not {wanted.capacity:,} and {wanted.error_rate:g}",
        "a program with the latter parameters gets FilterMismatchError",
        f"open it with {head.called}.open(), or use another name",
    )


def fullness(facts: Facts) -> Finding | None:
    """Check that the filter does not hold more than its capacity."""
    found = facts.stored
    if not isinstance(found, State):
        return None
    if found.count <= found.room:
        return ok(f"it holds {found.count:,} of {found.room:,} items")
    return Finding(
        Severity.CRITICAL if found.rate >= MUCH_WORSE * found.error_rate else Severity.WARNING,
        f"{facts.name!r} was made for {found.room:,} items and holds {found.count:,}",
        f"{found.rate:.2g} of new items are reported as present, not {found.error_rate:.2g}",
        _way_out(found, facts.name or "NAME"),
    )


def _way_out(found: State, name: str) -> str:
    """Return what to do about a filter that holds too many items."""
    create = f"create another one, for {2 * found.count:,} items or more, or one that grows (--kind scaling)"
    if found.kind is not Kind.FIXED:
        return create
    return (
        f"run bloomredis adopt {name}, which loses no item, then use ScalingBloomFilter in all programs; or "
        f"{create}"
    )


def ttl_seconds(facts: Facts) -> Finding | None:
    """Check that the filter does not expire soon; a rotating filter does so by design."""
    found = facts.stored
    if not isinstance(found, State) or found.kind is Kind.ROTATING or found.ttl is None or found.ttl >= SOON:
        return None
    return Finding(
        Severity.WARNING,
        f"{facts.name!r} expires in {found.ttl:.0f} seconds",
        "then all its items are lost, and programs that used it get FilterLostError",
        f"if this is not intended: bloomredis expire {facts.name} 30d",
    )
