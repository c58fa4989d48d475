"""Commits that end without an answer."""

from __future__ import annotations

from typing import Any

from bloomredis.operations.claims.calls import Claims


def commit_once(claim: Any) -> None:
    """Commit a claim with a single attempt, as a call that is interrupted before its retry."""
    claim._run(claim._operations.on_claim(Claims.commit, claim._state))
