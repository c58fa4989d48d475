"""The filters that `at` has returned, kept for the next call with the same name."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, Protocol, TypeVar

F = TypeVar("F")
Key = tuple[str, Hashable]

MOST: Final = 1000
"""Filters that are kept at most, apart from filters with pending calls."""


class MayBePending(Protocol):
    """Operations that may have pending calls."""

    def has_pending(self) -> bool:
        """Return whether a call is pending."""


class Others(Generic[F]):
    """Filters and their operations, by name and ttl.

    The same name gets the same filter, which knows its pending calls.  If there are too many filters, those
    of the older half that have no pending call are dropped.
    """

    def __init__(self) -> None:
        self._kept: dict[Key, tuple[F, MayBePending]] = {}

    def get(self, key: Key) -> F | None:
        """Return a filter; None if it is not kept."""
        found = self._kept.get(key)
        return found and found[0]

    def add(self, key: Key, made: F, operations: MayBePending) -> F:
        """Add a filter; return the filter to use, which another thread may have added first."""
        kept, _ = self._kept.setdefault(key, (made, operations))
        if len(self._kept) > MOST:
            for old, (_, each) in list(self._kept.items())[: MOST // 2]:
                if not each.has_pending():
                    self._kept.pop(old, None)
        return kept
