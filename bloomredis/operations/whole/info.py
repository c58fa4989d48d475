"""The parameters and the fill of a filter, as `info` returns them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bloomredis.bits import sizing
from bloomredis.bits.bitmap import Bits
from bloomredis.later import later
from bloomredis.stored import planning
from bloomredis.stored.foreign.bitmap import ForeignLayout
from bloomredis.stored.header import Header
from bloomredis.stored.layers.record import LayerRecord
from bloomredis.stored.shards.record import RECORD_BYTES
from bloomredis.stored.state.handle import Description

if TYPE_CHECKING:
    from bloomredis.stored.saved import format as saved
    from bloomredis.stored.saved.format import Record, Saved
else:
    saved = later("bloomredis.stored.saved", "format")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterInfo:
    """Parameters of a filter, and how full it is.

    For a filter in several layers the fields describe all layers together; `layers` describes each.

    :ivar name: the filter's key.
    :ivar layout: `"blocked"`, `"classic"`, `"module"`, or the name of another system's layout.
    :ivar capacity: number of items that the filter is sized for.  For a scaling filter, the number that its
        layers hold; this is less than the constructor's `capacity` if one key cannot hold so many and further
        layers are not needed yet.
    :ivar error_rate: the false-positive rate at `capacity`.
    :ivar num_bits: number of bits of the filter; for a counting filter the number of counters.
    :ivar num_hashes: number of bits that an item sets.
    :ivar size_bytes: number of bytes stored.
    :ivar count: exact number of items that were new when they were added.  For a counting filter, adds minus
        removals; for a bitmap of another system, the estimate.
    :ivar fill_ratio: the share of bits that are set, or of counters that are not 0; about half at capacity.
    :ivar approximate_count: number of different items, estimated from `fill_ratio`.
    :ivar estimated_error_rate: the false-positive rate to expect now.
    :ivar ttl: seconds left to live; None if the filter does not expire.
    :ivar generation: a hexadecimal text that changes whenever the filter is created or cleared; empty for a
        bitmap of another system.
    :ivar created_at: an aware datetime by the server's clock; None for a bitmap of another system.
    :ivar layers: the info of each layer, the newest first; empty for a filter in one key.
    :ivar window: seconds for which a rotating filter finds an item at least; None for other classes.
    :ivar slices: number of slices of the window; None for other classes.
    :ivar expansion: room of a layer of a scaling filter divided by that of the layer before; None for other
        classes.
    :ivar tightening_ratio: error rate of a layer of a scaling filter divided by that of the layer before;
        None for other classes.
    :ivar shards: number of shards of a sharded filter; None for other classes.
    """

    name: str
    """The filter's key."""
    layout: str
    """`"blocked"`, `"classic"`, `"module"`, or the name of another system's layout."""
    capacity: int
    """Number of items that the filter is sized for.  For a scaling filter, the number that its layers hold;
    this is less than the constructor's `capacity` if one key cannot hold so many and further layers are not
    needed yet."""
    error_rate: float
    """The false-positive rate at `capacity`."""
    num_bits: int
    """Number of bits of the filter; for a counting filter the number of counters."""
    num_hashes: int
    """Number of bits that an item sets."""
    size_bytes: int
    """Number of bytes stored."""
    count: int
    """Exact number of items that were new when they were added.  For a counting filter, adds minus removals;
    for a bitmap of another system, the estimate."""
    fill_ratio: float
    """The share of bits that are set, or of counters that are not 0; about half at capacity."""
    approximate_count: int
    """Number of different items, estimated from `fill_ratio`."""
    estimated_error_rate: float
    """The false-positive rate to expect now."""
    ttl: float | None
    """Seconds left to live; None if the filter does not expire."""
    generation: str
    """A hexadecimal text that changes whenever the filter is created or cleared; empty for a bitmap of
    another system."""
    created_at: datetime | None
    """An aware datetime by the server's clock; None for a bitmap of another system."""
    layers: tuple[FilterInfo, ...] = ()
    """The info of each layer, the newest first; empty for a filter in one key."""
    window: float | None = None
    """Seconds for which a rotating filter finds an item at least; None for other classes."""
    slices: int | None = None
    """Number of slices of the window; None for other classes."""
    expansion: int | None = None
    """Room of a layer of a scaling filter divided by that of the layer before; None for other classes."""
    tightening_ratio: float | None = None
    """Error rate of a layer of a scaling filter divided by that of the layer before; None for other
    classes."""
    shards: int | None = None
    """Number of shards of a sharded filter; None for other classes."""


def local_parameters(head: Header | None, layout: ForeignLayout | None) -> dict[str, object]:
    """Return the parameters of a filter that are known without I/O."""
    if head is not None:
        return {"capacity": head.capacity, "error_rate": head.error_rate, "layout": head.layout}
    if layout is None:
        return {}
    return {"layout": layout.name, "num_bits": layout.num_bits, "num_hashes": layout.num_hashes}


def describe(name: str, found: Description, ones: int) -> FilterInfo:
    """Return the info of a filter with `ones` bits set."""
    head = found.header
    fill = ones / head.num_bits
    estimate = sizing.approximate_count(ones, head.num_bits, head.num_hashes)
    has_header = bool(head.generation)
    return FilterInfo(
        name=name,
        layout=head.layout,
        capacity=head.capacity,
        error_rate=head.error_rate,
        num_bits=head.num_bits,
        num_hashes=head.num_hashes,
        size_bytes=found.size_bytes,
        count=head.count if has_header else estimate,
        fill_ratio=fill,
        approximate_count=estimate,
        estimated_error_rate=_estimated_error_rate(head, fill, estimate),
        ttl=found.ttl,
        generation=head.generation.hex(),
        created_at=datetime.fromtimestamp(head.created_at / 1e6, UTC) if head.created_at else None,
    )


def _estimated_error_rate(head: Header, fill: float, items: int) -> float:
    if head.blocks_per_item:  # the mean fill gives a lower bound, since some blocks are fuller than others
        return max(
            planning.expected_error_rate(head, items), sizing.expected_error_rate(fill, head.num_hashes)
        )
    equal = sizing.equal_probes(items, head.num_bits) if head.generation else 0.0
    return min(1.0, sizing.expected_error_rate(fill, head.num_hashes) + equal)


def expected_ones(head: Header) -> int:
    """Return the number of bits that are probably set in a bitmap that cannot be read, by its item count."""
    return round(sizing.expected_fill_ratio(head.count, head.num_bits, head.num_hashes) * head.num_bits)


def combined(layers: Sequence[FilterInfo], *, grows: bool = False) -> FilterInfo:
    """Return the info of several layers together (newest first); an item may be in any layer.

    :param grows: the capacity is that of the oldest layer, although the filter has more room by now.
    """
    if len(layers) == 1:
        return layers[0]
    bits = sum(layer.num_bits for layer in layers)
    return replace(
        _summed(layers),
        capacity=layers[-1 if grows else 0].capacity,
        num_bits=bits,
        fill_ratio=sum(layer.fill_ratio * layer.num_bits for layer in layers) / bits,
        estimated_error_rate=1 - math.prod(1 - layer.estimated_error_rate for layer in layers),
        layers=tuple(layers),
    )


def layered(name: str, record: LayerRecord, layers: Sequence[FilterInfo]) -> FilterInfo:
    """Return the info of a filter in layers; a rotating filter may have no layer left."""
    if not layers:
        nothing = describe(name, Description(b"", record.head, 0, 0, None), 0)
        return replace(nothing, num_bits=0, num_hashes=0, created_at=None, **record.own_parameters)
    held = sum(layer.capacity for layer in layers)
    return replace(
        combined(layers),
        capacity=record.head.capacity if record.shared else held,
        error_rate=record.head.error_rate,
        created_at=layers[-1].created_at,
        layers=tuple(layers),
        **record.own_parameters,
    )


def sharded(
    name: str, record: Description, shard: Header, shards: int, parts: Sequence[FilterInfo]
) -> FilterInfo:
    """Return the info of a sharded filter; `parts` are all shards, or those that have items."""
    absent = replace(shard, generation=record.header.generation, created_at=record.header.created_at)
    empty = describe(name, Description(record.key, absent, 0, 0, record.ttl), 0)
    each = [*parts, *[empty] * (shards - len(parts))]
    whole = _summed(each)
    return replace(
        whole,
        name=name,
        fill_ratio=sum(part.fill_ratio for part in each) / shards,
        estimated_error_rate=sum(part.estimated_error_rate for part in each) / shards,
        capacity=record.header.capacity,
        num_bits=shard.num_bits * shards,
        size_bytes=whole.size_bytes + record.size_bytes,
        ttl=record.ttl,
        generation=empty.generation,
        created_at=empty.created_at,
        shards=shards,
    )


def _summed(parts: Sequence[FilterInfo]) -> FilterInfo:
    return replace(
        parts[0],
        size_bytes=sum(part.size_bytes for part in parts),
        count=sum(part.count for part in parts),
        approximate_count=sum(part.approximate_count for part in parts),
    )


@dataclass(frozen=True)
class Parts:
    """The parts of a filter in this process, with all that its info needs.

    :param parts: layers (newest first), or the shards that have items.
    :param record: the record of the layers or shards; None for a filter in one key.
    """

    parts: Sequence[tuple[Description, Bits]]
    record: Record = None
    ttl: int = 0

    @property
    def size_bytes(self) -> int:
        """Number of bytes stored for all parts."""
        return sum(found.size_bytes for found, _ in self.parts)

    @property
    def saved(self) -> Saved:
        """The filter without its bits, in the form in which it is saved."""
        heads = [found.header for found, _ in self.parts]
        if self.record is None:
            return saved.Saved(b"", tuple(map(saved.Part, (0,), heads)), self.ttl)
        if isinstance(self.record, LayerRecord):
            parts = tuple(map(saved.Part, self.record.numbers, heads))
            return saved.Saved(self.record.pack(), parts, self.ttl)
        written = [number for number, made in enumerate(self.record.made) if made]
        return saved.Saved(self.record.pack(), tuple(map(saved.Part, written, heads)), self.ttl)

    def info(self, name: str) -> FilterInfo:
        """Return the info of the filter."""
        each = [describe(name, found, bits.ones()) for found, bits in self.parts]
        if self.record is None:
            return each[0]
        if isinstance(self.record, LayerRecord):
            return layered(name, self.record, each)
        record = self.record
        size = RECORD_BYTES + len(record.table)
        whole = Description(b"", record.head, size, 0, self.ttl / 1000 or None)
        return sharded(name, whole, record.shard, record.shards, each)
