"""Filters that another system spreads over keys and servers, whose layout says where an item lives."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

from bloomredis.bits.encoding import Item
from bloomredis.operations import info
from bloomredis.operations.filter import FilterOperations
from bloomredis.operations.info import FilterInfo
from bloomredis.operations.routed import Place, RoutedOperations
from bloomredis.protocol.steps import Op
from bloomredis.stored.base import Handle
from bloomredis.stored.foreign import ForeignLayout


@runtime_checkable
class PartitionedLayout(ForeignLayout, Protocol):
    """A layout whose system spreads the items over servers and keys."""

    @property
    def servers(self) -> tuple[Any, ...] | None:
        """What stands for the servers, None for one."""

    @property
    def partitions(self) -> int | None:
        """Keys a server, None for one key that has the filter's own name."""

    def partition(self, encoded: bytes) -> tuple[int, str]:
        """Return which server an item is on, and what follows the filter's name in its key there."""


def operations(name: str, **options: Any) -> FilterOperations:
    """Return the operations of a filter with these parameters, of one shard or of several."""
    layout = options.get("layout")
    if isinstance(layout, PartitionedLayout) and layout.partitions is not None:
        return PartitionedOperations(name, **options)
    return FilterOperations(name, **options)


class PartitionedOperations(RoutedOperations):
    """The operations of a filter whose shards have no header, so there is nothing to agree on."""

    def __init__(self, name: str, *, layout: PartitionedLayout, **options: Any) -> None:
        super().__init__(name, layout=layout, **options)
        self._partitioned = layout
        self._options = {"layout": layout, **options}
        self.servers = len(layout.servers or (None,))
        keys = layout.partitions or 1
        # Every shard that can have an item: those that a checksum can choose.
        period = range(self.servers * keys)
        self._places = sorted({(number % self.servers, f".{number % keys}") for number in period})

    def _place(self, encoded: bytes) -> Place:
        return self._partitioned.partition(encoded)

    def _new_shard(self, place: Place) -> FilterOperations:
        return FilterOperations(f"{self.name}{place[1]}", **self._options)

    def handle(self, item: Item | None = None) -> Op[Handle]:
        if item is not None:
            self._check_one_server()
            return (yield from self._route(item, FilterOperations.handle))
        return (yield from self._everywhere(self._places, FilterOperations.handle))[0]

    def reserve(self) -> Op[None]:
        yield from self._everywhere(self._places, FilterOperations.reserve)

    def info(self) -> Op[FilterInfo]:
        return info.spread(self.name, (yield from self._everywhere(self._places, FilterOperations.info)))

    def clear(self) -> Op[None]:
        self._owed.clear()
        yield from self._everywhere(self._places, FilterOperations.clear)

    def delete(self) -> Op[bool]:
        self._owed.clear()
        return any((yield from self._everywhere(self._places, FilterOperations.delete)))

    def expire(self, seconds: float | timedelta) -> Op[None]:
        yield from self._everywhere(self._places, lambda shard: shard.expire(seconds))
