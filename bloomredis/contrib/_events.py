"""Losses in the event of a call, as hooks count them."""

from __future__ import annotations

from bloomredis import CallEvent


def claims_lost(event: CallEvent) -> int:
    """Return the number of claims that a call found lost."""
    return event.lost + (event.outcome == "lost" and event.verb in ("commit", "release", "extend"))


def filters_lost(event: CallEvent) -> int:
    """Return 1 if a call found its filter lost, else 0."""
    return int(event.outcome == "lost" and not claims_lost(event))
