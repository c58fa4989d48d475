"""Holes of filters that are rebuilt, as in `holes`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from bloomredis.stored.rebuilding import Rebuild, StoredRebuildable
from bloomredis.stored.single import StoredFilter
from tests.support.holes_of_many import Patch


def _items_go_to_the_filter_alone(patch: Patch) -> None:
    """A client that finds a filter which is being rebuilt leaves its successor out."""

    def accept(self: StoredRebuildable, found: Any) -> Any:
        return StoredFilter._accept(self, found.filter if isinstance(found, Rebuild) else found)

    patch(StoredRebuildable, "_accept", accept)


def _who_follows_creates(patch: Patch) -> None:
    """A client that is a step behind opens the filter as if it had never used it."""

    def recover(self: StoredRebuildable, *_: object) -> Iterator[Any]:
        self.handle = None
        yield from ()

    patch(StoredRebuildable, "RECOVERY", {**StoredRebuildable.RECOVERY, "BLOOMCHANGED": recover})


HOLES_OF_REBUILDING: Final[dict[str, Callable[[Patch], None]]] = {
    "successor-left-out": _items_go_to_the_filter_alone,
    "follower-creates": _who_follows_creates,
}
