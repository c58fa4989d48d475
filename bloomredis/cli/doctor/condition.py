"""Checks of the stored filter; each takes facts and yields findings, without I/O."""

from __future__ import annotations

from typing import Final

from bloomredis.cli.doctor.facts import Facts
from bloomredis.cli.doctor.findings import Finding, Findings, Severity
from bloomredis.cli.doctor.state import State
from bloomredis.cli.kinds import Kind
from bloomredis.errors import FilterLostError, FilterMismatchError, FilterNotFoundError, ServerRefusedError

SOON: Final = 3600.0  # seconds
MUCH_WORSE: Final = 10  # times the configured false-positive rate


def presence(facts: Facts) -> Findings:
    """Check that a filter with the name exists."""
    found, name = facts.stored, facts.name
    if isinstance(found, FilterNotFoundError):
        yield Finding(
            Severity.CRITICAL if facts.planned is None else Severity.NOTE,
            f"there is no filter {name!r}",
            "programs that used it get FilterLostError; open() without parameters raises FilterNotFoundError",
            "find out whether it was evicted or expired; bloomredis create makes one",
        )
    elif isinstance(found, FilterMismatchError):
        way_out = "use another name; a bitmap of another system needs --layout here, and a layout in programs"
        yield Finding(Severity.CRITICAL, str(found), "calls with this name are refused", way_out)
    elif isinstance(found, FilterLostError):
        without, empty = (
            f"bloomredis reserve {name} continues without that part",
            f"bloomredis clear {name} starts empty",
        )
        text, _, ways = str(found).partition(" Call ")
        way_out = f"{without}; {empty}" if "reserve()" in ways else empty
        yield Finding(Severity.CRITICAL, text.rstrip("."), "calls with this name are refused", way_out)
    elif isinstance(found, ServerRefusedError):
        if found.word != "NOPERM":  # the check of rights reports it in full
            why = "calls with this name are refused"
            yield Finding(Severity.CRITICAL, f"{name!r} could not be read", why, str(found))
    elif isinstance(found, Exception):
        seen = f"{name!r} could not be read: {found}"
        why = "its existence and fill are not known"
        yield Finding(
            Severity.UNCHECKED, seen, why, "in a cluster, give --cluster and the host and port of a node"
        )


def parameters(facts: Facts) -> Findings:
    """Check that a program with the planned parameters may use the filter."""
    if not isinstance(facts.stored, State) or facts.planned is None:
        return
    head, wanted = facts.stored, facts.planned
    if (head.capacity, head.error_rate) != (wanted.capacity, wanted.error_rate):
        yield Finding(
            Severity.CRITICAL,
            f"{facts.name!r} has capacity {head.capacity:,} and error_rate {head.error_rate:g}, "
            f"not {wanted.capacity:,} and {wanted.error_rate:g}",
            "a program with the latter parameters gets FilterMismatchError",
            f"open it with {head.called}.open(), or use another name",
        )


def fullness(facts: Facts) -> Findings:
    """Check that the filter does not hold more than its capacity."""
    found = facts.stored
    if isinstance(found, State) and found.count > found.room:
        yield Finding(
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
        f"make the programs ScalingBloomFilter, then run bloomredis adopt {name}, which loses no item; or "
        f"{create}"
    )


def ttl_seconds(facts: Facts) -> Findings:
    """Check that the filter does not expire soon; a rotating filter does so by design."""
    found = facts.stored
    if not isinstance(found, State) or found.ttl is None or found.kind is Kind.ROTATING:
        return
    if found.ttl < SOON:
        yield Finding(
            Severity.WARNING,
            f"{facts.name!r} expires in {found.ttl:.0f} seconds",
            "then all its items are lost, and programs that used it get FilterLostError",
            f"if this is not intended: bloomredis expire {facts.name} 30d",
        )
