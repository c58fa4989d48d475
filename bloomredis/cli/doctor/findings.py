"""Findings of checks: an observation, its consequence and the way out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum


class Severity(IntEnum):
    """Severity of a finding; the worst is the largest."""

    UNCHECKED = 0
    """The server did not say, so there may be a risk or none."""

    NOTE = 1
    """Nothing is wrong, but relying on more than is promised would be."""

    WARNING = 2
    """After a crash, a failover or further growth, data is lost or calls are refused."""

    CRITICAL = 3
    """In normal operation data is lost or calls are refused, now or when memory runs short."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One observation; each text is a sentence without its full stop."""

    severity: Severity
    seen: str
    why: str
    way_out: str


Findings = Iterator[Finding]
