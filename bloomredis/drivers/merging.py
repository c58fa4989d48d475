"""Checks of two filters before a merge: their classes, and the slots of their keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bloomredis import arguments
from bloomredis.drivers.binding import Bound
from bloomredis.later import later
from bloomredis.protocol.cluster import is_cluster

if TYPE_CHECKING:
    from bloomredis.stored.saved import mergeable
else:
    mergeable = later("bloomredis.stored.saved", "mergeable")


def check_same_class(one: Bound[Any], other: object) -> None:
    """Raise `TypeError` for a filter that cannot be merged into another."""
    own = type(one).__name__
    mergeable.check_class(one.name, own)
    if not isinstance(other, type(one)):
        kind = type(other).__name__
        if kind == own:
            kind = "one of bloomredis" if one._is_asyncio else "one of bloomredis.asyncio"
        given = kind if isinstance(other, Bound) else f"{kind} {arguments.shown(other)}"
        raise TypeError(f"{one.name!r} is merged with another {own} or a LocalFilter, not with {given}")


def share_node(one: Any, other: Any) -> Callable[[bytes, bytes], bool]:
    """Return a function that is true for two keys in one slot of one server, one key of each client."""
    if one is not other:
        return lambda *_: False
    kind: type = type(one)
    if not is_cluster(kind):
        return lambda *_: True
    return lambda first, second: one.keyslot(first) == one.keyslot(second)
