"""Checks of the stored filter itself; each takes facts and yields findings, without I/O."""

from __future__ import annotations

from typing import Final

from bloomredis.cli.doctor.facts import Facts
from bloomredis.cli.doctor.findings import Finding, Findings, Severity
from bloomredis.errors import FilterMismatchError, FilterNotFoundError, ServerRefusedError
from bloomredis.stored.handle import Description
from bloomredis.stored.planning import expected_error_rate

SOON: Final = 3600.0  # seconds
MUCH_WORSE: Final = 10  # times the false-positive rate that was asked for


def presence(facts: Facts) -> Findings:
    """Check that there is a filter with the name."""
    found, name = facts.stored, facts.name
    if isinstance(found, FilterNotFoundError):
        yield Finding(
            Severity.CRITICAL if facts.planned is None else Severity.NOTE,
            f"there is no filter {name!r}",
            "programs that used it get FilterLostError; open() without parameters raises FilterNotFoundError",
            "find out whether it was evicted or expired; a use with capacity and error_rate creates it",
        )
    elif isinstance(found, FilterMismatchError):
        way_out = "use another name; a bitmap of another system needs its layout from bloomredis.compat"
        yield Finding(Severity.CRITICAL, str(found), "calls with this name are refused", way_out)
    elif isinstance(found, ServerRefusedError):
        if found.word != "NOPERM":  # the check of rights reports it in full
            why = "calls with this name are refused"
            yield Finding(Severity.CRITICAL, f"{name!r} could not be read", why, str(found))
    elif isinstance(found, Exception):
        seen = f"{name!r} could not be read: {found}"
        why = "its existence and fill are not known"
        yield Finding(Severity.UNCHECKED, seen, why, "in a cluster, give the URL of the node that holds it")


def parameters(facts: Facts) -> Findings:
    """Check that a program with the planned parameters may use the filter."""
    if not isinstance(facts.stored, Description) or facts.planned is None:
        return
    head, wanted = facts.stored.header, facts.planned
    if (head.capacity, head.error_rate) != (wanted.capacity, wanted.error_rate):
        yield Finding(
            Severity.CRITICAL,
            f"{facts.name!r} has capacity {head.capacity} and error_rate {head.error_rate:g}, "
            f"not {wanted.capacity} and {wanted.error_rate:g}",
            "a program with the latter parameters gets FilterMismatchError",
            "open it with BloomFilter.open(), or use another name",
        )


def fullness(facts: Facts) -> Findings:
    """Check that the filter does not hold more than its capacity."""
    if not isinstance(facts.stored, Description):
        return
    head = facts.stored.header
    if head.count > head.capacity:
        rate = expected_error_rate(head, head.count)
        yield Finding(
            Severity.CRITICAL if rate >= MUCH_WORSE * head.error_rate else Severity.WARNING,
            f"{facts.name!r} was made for {head.capacity} items and holds {head.count}",
            f"{rate:.2g} of new items are reported as present, not {head.error_rate:.2g}",
            f"start another filter with a capacity of {2 * head.count} or more",
        )


def ttl_seconds(facts: Facts) -> Findings:
    """Check that the filter does not expire soon."""
    if isinstance(facts.stored, Description) and facts.stored.ttl is not None and facts.stored.ttl < SOON:
        yield Finding(
            Severity.WARNING,
            f"{facts.name!r} expires in {facts.stored.ttl:.0f} seconds",
            "then all its items are lost, and programs that used it get FilterLostError",
            "if this is not intended, extend it with expire(seconds)",
        )
