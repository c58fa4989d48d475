"""Operations of filters that another system spreads over keys and servers, by a rule of the layout."""

from __future__ import annotations

from typing import Any, Protocol, Unpack, cast

from bloomredis import arguments
from bloomredis.operations.codec import Codec
from bloomredis.operations.kinds.filter import FilterOperations
from bloomredis.operations.kinds.pipelines import Queueing
from bloomredis.operations.kinds.plain import PlainOperations
from bloomredis.operations.kinds.routed import PartId, RoutedOperations
from bloomredis.operations.options import PlainParameters, Seconds, lifetime
from bloomredis.operations.whole import info
from bloomredis.operations.whole.info import FilterInfo
from bloomredis.operations.whole.snapshot import LocalFilter
from bloomredis.protocol.steps import Op
from bloomredis.stored.foreign.bitmap import ForeignLayout


class PartitionedLayout(ForeignLayout, Protocol):
    """A layout whose system spreads the items over servers and keys."""

    @property
    def servers(self) -> tuple[object, ...] | None:
        """The servers as the system names them; None for a single server."""

    @property
    def partitions(self) -> int | None:
        """Number of keys on each server; None for one key with the filter's own name."""

    def partition(self, encoded: bytes) -> tuple[int, str]:
        """Return the number of an item's server, and the suffix of its key after the filter's name."""

    def parts(self) -> list[tuple[int, str]]:
        """Return the server and suffix of every part that can have an item."""


def operations(
    name: str, **parameters: Unpack[PlainParameters[Any]]
) -> PlainOperations | PartitionedOperations:
    """Return the operations of a `BloomFilter` with these parameters, in one key or in several."""
    layout = parameters.get("layout")
    if getattr(layout, "partitions", None) is not None:
        return PartitionedOperations(name, cast("PartitionedLayout", layout), parameters)
    return PlainOperations(name, **parameters)


class PartitionedOperations(RoutedOperations):
    """The operations of a filter in several bitmaps of another system."""

    def __init__(self, name: str, layout: PartitionedLayout, parameters: PlainParameters[Any]) -> None:
        sample = PlainOperations(arguments.name(name), **parameters)  # checks the parameters
        super().__init__(name, Codec(sample.options.encode, layout), sample.options)
        self.layout = layout
        self._parameters = parameters
        self._insert_ttl: Seconds | None = None
        self.servers = len(layout.servers or (None,))
        self._places = layout.parts()

    def _place(self, encoded: bytes) -> PartId:
        return self.layout.partition(encoded)

    def _num_parts(self) -> int:
        return len(self._places)

    def _new_part(self, place: PartId) -> Queueing:
        part = PlainOperations(f"{self.name}{place[1]}", **self._parameters)
        return part if self._insert_ttl is None else part.at(part.name, self._insert_ttl)

    def at(self, name: str, ttl: Seconds | None) -> PartitionedOperations:
        """Return the operations of another filter in this layout; each insert renews its `ttl`."""
        lifetime(ttl)
        other = PartitionedOperations(name, self.layout, self._parameters)
        other._insert_ttl = self._insert_ttl if ttl is None else ttl
        return other

    def snapshot(self) -> Op[LocalFilter[object]]:
        """Raise `TypeError`: several bitmaps cannot be copied."""
        raise TypeError(f"{self.name!r} is in several bitmaps, which cannot be copied")

    def local_parameters(self) -> dict[str, object]:
        """Return the parameters that are known without I/O."""
        return info.local_parameters(None, self.layout)

    def reserve(self, *, marks: bool | None = None) -> Op[None]:  # noqa: ARG002 - bitmaps have no loss
        """Check that no key holds another type."""
        yield from self._everywhere(self._places, FilterOperations.reserve)

    def info(self) -> Op[FilterInfo]:
        """Return the filter's parameters and how full it is."""
        return info.partitioned(self.name, (yield from self._everywhere(self._places, FilterOperations.info)))

    def clear(self) -> Op[None]:
        """Empty the filter."""
        yield from self._everywhere(self._places, FilterOperations.clear)

    def delete(self) -> Op[bool]:
        """Delete the filter; True if it existed."""
        return any((yield from self._everywhere(self._places, FilterOperations.delete)))

    def expire(self, seconds: Seconds) -> Op[None]:
        """Let all keys of the filter expire that many seconds (or a timedelta) from now."""
        yield from self._everywhere(self._places, lambda part: part.expire(seconds))
