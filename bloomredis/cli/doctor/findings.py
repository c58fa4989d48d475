"""What a check reports: something seen on a server, why it bites, and the way out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum


class Severity(IntEnum):
    """How much a finding matters; the worst is the largest."""

    UNCHECKED = 0
    """The server did not say, so there may be something or nothing."""

    NOTE = 1
    """Nothing is wrong; somebody who relies on more than is promised wants to know."""

    WARNING = 2
    """A crash, a failover or further growth loses data or has calls refused."""

    CRITICAL = 3
    """In normal operation data gets lost or calls are refused, now or whenever memory runs short."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing seen; each text is a sentence without its full stop."""

    severity: Severity
    seen: str
    why: str
    way_out: str


Findings = Iterator[Finding]
