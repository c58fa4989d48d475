"""Commits that end without an answer."""

from __future__ import annotations

from typing import Any

from bloomredis.operations.claims.requests import ClaimRequest


def commit_once(claim: Any) -> None:
    """Commit a claim with a single attempt, as a call that is interrupted before its retry."""
    request = ClaimRequest("commit", claim._state)
    claim._state.end()
    claim._filter._run(claim._operations.attempt_one(request))
