"""Commits that end without an answer."""

from __future__ import annotations

from typing import Any


def commit_once(claim: Any) -> None:
    """Commit a claim with a single attempt, as a call that is interrupted before its retry."""
    claim._run(claim._operations.commit_now(claim._state))
