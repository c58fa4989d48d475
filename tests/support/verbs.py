"""The verbs of all filters, each as a call without a choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

FIRST_CALLS: dict[str, Callable[[Any], object]] = {
    "add": lambda f: f.add("a"),
    "add_many": lambda f: f.add_many(["a", "b"]),
    "dedupe": lambda f: list(f.dedupe(["a", "b"])),
    "update": lambda f: f.update(["a", "b"]),
    "claim": lambda f: f.claim("a"),
    "claim_many": lambda f: f.claim_many(["a", "b"]),
    "create": lambda f: f.create(),
    "clear": lambda f: f.clear(),
}
"""Verbs that make a filter."""

CALLS = FIRST_CALLS | {
    "acknowledge": lambda f: f.acknowledge(),
    "contains": lambda f: f.contains("a"),
    "contains_many": lambda f: f.contains_many(["a", "b"]),
    "info": lambda f: f.info(),
    "delete": lambda f: f.delete(),
}
"""All verbs; the last one deletes the filter."""
