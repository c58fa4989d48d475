"""The description of a filter that callers get."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from bloomredis.bits import sizing
from bloomredis.bits.bitmap import Bits
from bloomredis.stored import planning
from bloomredis.stored.foreign.bitmap import ForeignLayout
from bloomredis.stored.header import COUNTING, Header
from bloomredis.stored.layers.record import LayerRecord
from bloomredis.stored.saved.format import Part, Record, Saved
from bloomredis.stored.shards.record import RECORD_BYTES
from bloomredis.stored.state.handle import Description


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterInfo:
    """Parameters of a filter, and how full it is.

    `count` is the exact number of items that were new (of a filter that counts, of adds less removals),
    `approximate_count` an estimate of different items from the share of bits set, or of counters that are not
    0 (`fill_ratio`), `estimated_error_rate` the false-positive rate to expect now.
    `size_bytes` is the length of the stored string, `ttl` the seconds left to live (None: for ever),
    `generation` the hex name that changes whenever the filter is created or cleared, `created_at` an
    aware datetime by the server's clock.  A bitmap of another system (`bloomredis.compat`) has neither:
    its generation is empty, `created_at` None, and `count` is the estimate.  Of a filter in several layers
    `layers` describes each, the newest first, and the rest describes all of them together; the `capacity` of
    one that grows is what its layers hold, and at least what it was made for.
    """

    name: str
    layout: str
    capacity: int
    error_rate: float
    num_bits: int
    num_hashes: int
    size_bytes: int
    count: int
    fill_ratio: float
    approximate_count: int
    estimated_error_rate: float
    ttl: float | None
    generation: str
    created_at: datetime | None
    layers: tuple[FilterInfo, ...] = ()


def known(head: Header | None, layout: ForeignLayout | None) -> dict[str, object]:
    """Return the parameters of a filter as far as they are known without I/O."""
    if head is not None:
        return {"capacity": head.capacity, "error_rate": head.error_rate, "layout": head.layout}
    if layout is None:
        return {}
    return {"layout": layout.name, "num_bits": layout.num_bits, "num_hashes": layout.num_hashes}


def describe(name: str, found: Description, ones: int) -> FilterInfo:
    """Return the info of a filter with that number of bits set."""
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
    if head.blocks_per_item:  # some blocks are fuller than others, so the mean fill is not enough
        return planning.expected_error_rate(head, items)
    equal = sizing.equal_probes(items, head.num_bits) if head.generation else 0.0
    return min(1.0, sizing.expected_error_rate(fill, head.num_hashes) + equal)


def expected_ones(head: Header) -> int:
    """Return the bits to expect set in a bitmap that cannot be read, by the number of its items."""
    return round(sizing.expected_fill_ratio(head.count, head.num_bits, head.num_hashes) * head.num_bits)


def combined(layers: Sequence[FilterInfo], *, grows: bool = False) -> FilterInfo:
    """Return the info of several layers together, the newest first; an item may be in any.

    :param grows: the filter has the parameters of its oldest layer, and more room by now.
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
    """Return the info of a filter of several layers; a rotating one may have none left."""
    if not layers:
        nothing = describe(name, Description(b"", record.head, 0, 0, None), 0)
        return replace(nothing, num_bits=0, num_hashes=0, created_at=None)
    held = sum(layer.capacity for layer in layers)
    return replace(
        combined(layers),
        capacity=record.head.capacity if record.shared else max(record.head.capacity, held),
        error_rate=record.head.error_rate,
        created_at=layers[-1].created_at,
        layers=tuple(layers),
    )


def spread(name: str, parts: Sequence[FilterInfo]) -> FilterInfo:
    """Return the info of several parts together; each item is in one."""
    return replace(
        _summed(parts),
        name=name,
        fill_ratio=sum(part.fill_ratio for part in parts) / len(parts),
        estimated_error_rate=sum(part.estimated_error_rate for part in parts) / len(parts),
    )


def sharded(
    name: str, record: Description, shard: Header, shards: int, parts: Sequence[FilterInfo]
) -> FilterInfo:
    """Return the info of a sharded filter; `parts` are the shards that have been made."""
    absent = replace(shard, generation=record.header.generation, created_at=record.header.created_at)
    empty = describe(name, Description(record.key, absent, 0, 0, record.ttl), 0)
    together = spread(name, [*parts, *[empty] * (shards - len(parts))])
    return replace(
        together,
        capacity=record.header.capacity,
        num_bits=shard.num_bits * shards,
        size_bytes=together.size_bytes + record.size_bytes,
        ttl=record.ttl,
        generation=empty.generation,
        created_at=empty.created_at,
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
    """The parts of a filter that is in this process, from which its info follows.

    :param parts: the newest layer first, or the shards that have been made.
    :param record: that of layers, or of shards with its table.
    """

    parts: Sequence[tuple[Description, Bits]]
    record: Record = None
    ttl: int = 0

    @property
    def size_bytes(self) -> int:
        """Bytes that are stored for all parts."""
        return sum(found.size_bytes for found, _ in self.parts)

    @property
    def saved(self) -> Saved:
        """All but the bits, as it would be saved."""
        heads = [found.header for found, _ in self.parts]
        if self.record is None:
            return Saved(b"", tuple(map(Part, (0,), heads)), self.ttl)
        if isinstance(self.record, LayerRecord):
            return Saved(self.record.pack(), tuple(map(Part, self.record.numbers, heads)), self.ttl)
        record, table = self.record
        made = {number: entry for number, entry in enumerate(table) if entry}
        return Saved(record.pack(made), tuple(map(Part, made, heads)), self.ttl)

    @property
    def is_counting(self) -> bool:
        """True if each bit was a counter."""
        return any(found.header.kind == COUNTING for found, _ in self.parts)

    def info(self, name: str) -> FilterInfo:
        """Return the info of the filter."""
        each = [describe(name, found, bits.ones()) for found, bits in self.parts]
        if self.record is None:
            return each[0]
        if isinstance(self.record, LayerRecord):
            return layered(name, self.record, each)
        record, table = self.record
        size = RECORD_BYTES + 8 * len(table)
        whole = Description(b"", record.head, size, 0, self.ttl / 1000 or None)
        return sharded(name, whole, record.shard, record.shards, each)


def united(one: Description, other: Description, bits: Bits) -> Description:
    """Return the description of the union of two filters, whose count is estimated."""
    head = one.header
    estimate = sizing.approximate_count(bits.ones(), head.num_bits, head.num_hashes)
    most = head.count + other.header.count
    return replace(one, header=replace(head, count=max(head.count, min(most, estimate))))
