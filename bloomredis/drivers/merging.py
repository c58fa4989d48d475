"""Checks of two filters before a merge: their classes, and the slots of their keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bloomredis import arguments
from bloomredis.drivers.binding import Bound
from bloomredis.protocol.cluster import is_cluster


def check_same_class(one: Bound[Any], other: object) -> None:
    """Raise `TypeError` for a filter that cannot be merged into another."""
    if not isinstance(other, type(one)):
        kind, own = type(other), type(one)
        name = f"{kind.__module__}.{kind.__name__}" if kind.__name__ == own.__name__ else kind.__name__
        raise TypeError(
            f"a {own.__name__} is merged with another one or with a LocalFilter, not with "
            f"{name} {arguments.shown(other)}"
        )


def share_node(one: Any, other: Any) -> Callable[[bytes, bytes], bool]:
    """Return a function that is true for two keys in one slot of one server, one key of each client."""
    if one is not other:
        return lambda *_: False
    kind: type = type(one)
    if not is_cluster(kind):
        return lambda *_: True
    return lambda first, second: one.keyslot(first) == one.keyslot(second)
