"""Findings of checks: an observation, its consequence and the way out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum


class Severity(IntEnum):
    """Severity of a finding; the worst is the largest."""

    UNCHECKED = 0
    """The server did not say, so a risk is possible."""

    NOTE = 1
    """Nothing is wrong, but programs must not rely on more than the finding says."""

    WARNING = 2
    """After a crash, a failover or further growth, data is lost or calls are refused."""

    CRITICAL = 3
    """In normal operation data is lost or calls are refused, now or when memory runs short."""

    @property
    def is_risk(self) -> bool:
        """True if data or calls can be lost."""
        return self >= Severity.WARNING


@dataclass(frozen=True, slots=True)
class Finding:
    """One observation; each text is a sentence without its full stop."""

    severity: Severity
    seen: str
    why: str
    way_out: str
    nodes: tuple[str, ...] = ()
    """The nodes of a cluster that the finding concerns."""


Findings = Iterator[Finding]
