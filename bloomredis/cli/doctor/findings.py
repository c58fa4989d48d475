"""Findings of rules and trials: an observation, its consequence and the way out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Severity(IntEnum):
    """Severity of a finding; the worst is the largest."""

    OK = -1
    """There is no risk, or the trial succeeded."""

    UNCHECKED = 0
    """The server did not say, so a risk is possible."""

    NOTE = 1
    """Nothing is wrong, but programs must not rely on more than the finding says."""

    WARNING = 2
    """After a crash, a failover or further growth, data is lost or calls are refused."""

    CRITICAL = 3
    """In normal operation data is lost or calls are refused, now or when memory runs short."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One observation; each text is a sentence without its full stop, or empty."""

    severity: Severity
    seen: str
    why: str = ""
    way_out: str = ""
    node: str = ""
    """Host and port of the node of a cluster that the finding concerns."""
