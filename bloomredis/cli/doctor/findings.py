"""Findings of checks: an observation, its consequence and the way out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Severity(IntEnum):
    """Severity of a finding; the worst is the largest."""

    OK = -1
    """The check found no risk."""

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
    """One observation; each text is a sentence without its full stop, empty if there is no risk."""

    severity: Severity
    seen: str
    why: str = ""
    way_out: str = ""
    nodes: tuple[str, ...] = ()
    """The nodes of a cluster that the finding concerns."""


def ok(text: str) -> Finding:
    """Return the finding of a check that found no risk."""
    return Finding(Severity.OK, text)


def one_line(text: object) -> str:
    """Return a server's text as one line."""
    return " ".join(str(text).split())
