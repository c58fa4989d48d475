"""Holes of filters during a rebuild, as in `holes`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from bloomredis.errors import FilterMismatchError
from bloomredis.protocol.steps import Op
from bloomredis.stored.header import Header
from bloomredis.stored.one_key.rebuilding import Rebuild, StoredRebuildable
from bloomredis.stored.one_key.single import StoredFilter
from tests.support.holes_of_many import Patch


def _items_go_to_the_filter_alone(patch: Patch) -> None:
    """A client that finds a filter in a rebuild leaves its successor out."""

    def accept(self: StoredRebuildable, found: Any) -> Any:
        return StoredFilter._accept(self, found.filter if isinstance(found, Rebuild) else found)

    patch(StoredRebuildable, "_accept", accept)


def _who_follows_creates(patch: Patch) -> None:
    """A client that is a step behind opens the filter as if it had never used it."""

    def recover(self: StoredRebuildable, *_: object) -> Iterator[Any]:
        self.handle = None
        yield from ()

    patch(StoredRebuildable, "RECOVERY", {**StoredRebuildable.RECOVERY, "BLOOMCHANGED": recover})


def _the_unreadable_is_missing(patch: Patch) -> None:
    """A successor that cannot be read counts as vanished, and is read again."""
    find: Any = StoredRebuildable._find_successor

    def find_readable(self: StoredRebuildable, head: Header) -> Op[Header | None]:
        try:
            found: Header | None = yield from find(self, head)
        except FilterMismatchError:
            return None
        return found

    patch(StoredRebuildable, "_find_successor", find_readable)


HOLES_OF_REBUILDING: Final[dict[str, Callable[[Patch], None]]] = {
    "successor-left-out": _items_go_to_the_filter_alone,
    "follower-creates": _who_follows_creates,
    "unreadable-is-missing": _the_unreadable_is_missing,
}
