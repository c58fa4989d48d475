"""Commits that end before they have an answer."""

from __future__ import annotations

from typing import Any


def commit_once(claim: Any) -> None:
    """Try to commit a claim once, as a call does that is interrupted before it tries again."""
    claim._run(claim._operations.commit_now(claim._held))
