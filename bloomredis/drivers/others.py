"""Filters of other names in one layout, for programs that have a key for each call."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, Protocol, TypeVar

F = TypeVar("F")
Key = tuple[str, Hashable]

MOST: Final = 1000
"""Filters that are kept."""


class Owing(Protocol):
    """Operations that may owe answers."""

    def has_pending(self) -> bool:
        """True if a call has no answer yet."""


class Others(Generic[F]):
    """The filters that were asked for, and their operations, by name and ttl.

    Who asks for one again gets the same one, which knows the answers that are still owed to its callers.  The
    older half is forgotten where there are too many, but for those that owe an answer.
    """

    def __init__(self) -> None:
        self._kept: dict[Key, tuple[F, Owing]] = {}

    def get(self, key: Key) -> F | None:
        """Return a filter, None if it is not kept."""
        found = self._kept.get(key)
        return found and found[0]

    def keep(self, key: Key, made: F, operations: Owing) -> F:
        """Keep a filter; return the one to use, since another thread may have made it too."""
        kept, _ = self._kept.setdefault(key, (made, operations))
        if len(self._kept) > MOST:
            for old, (_, each) in list(self._kept.items())[: MOST // 2]:
                if not each.has_pending():
                    self._kept.pop(old, None)
        return kept
