"""The sizes of filters of every kind, computed without a server."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, SupportsIndex, get_args

from bloomredis.arguments import shown
from bloomredis.bits import sizing
from bloomredis.bits.module_items import ModuleItems, marking
from bloomredis.stored import planning
from bloomredis.stored.header import COUNTING, FILTER, Header
from bloomredis.stored.layers.record import MAX_SLICES, RotatingRecord, ScalingRecord, new_record
from bloomredis.stored.module.filter import first_link
from bloomredis.stored.shards import record as shard_record
from bloomredis.stored.shards.record import ShardRecord

KindName = Literal["fixed", "scaling", "rotating", "sharded", "counting"]
LayoutName = Literal["classic", "blocked", "module"]

_STORED_KINDS: Final = {"counting": COUNTING}
_ONLY_OF: Final = {
    "grown_to": "scaling",
    "expansion": "scaling",
    "slices": "rotating",
    "shards": "sharded",
    "nodes": "sharded",
}
"""Parameters that only one kind has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterPlan:
    """The size of a filter that has not been created.

    Fields that its kind does not have are None.

    :ivar kind: `"fixed"` (`BloomFilter`), `"scaling"`, `"rotating"`, `"sharded"` or `"counting"`.
    :ivar layout: `"blocked"`, `"classic"` or `"module"`.
    :ivar capacity: number of items that the filter is planned for.
    :ivar error_rate: the requested false-positive rate at that many items.
    :ivar num_bits: bits of all keys together; for a counting filter the number of 4-bit counters.
    :ivar num_hashes: bits that an item sets; for a scaling or rotating filter, in its first layer.
    :ivar bits_per_item: bits of memory for each item of `capacity`, or of `grown_to`.
    :ivar size_bytes: bytes of all keys; for a rotating filter the maximum, with the same traffic in every
        window.
    :ivar busy_ms: milliseconds for which the server is blocked at most, while it creates the largest key.
    :ivar expected_error_rate: false-positive rate to expect of this size; it may be better than `error_rate`.
    :ivar layers: number of layers of a rotating filter, or of a scaling filter with `grown_to` items.
    :ivar room: number of items that these layers hold.
    :ivar times_fixed: size of the filter divided by the size of a `BloomFilter` for as many items.
    :ivar most_times_fixed: the same at the worst moment, just after a layer was added.
    :ivar shards: number of shards of a sharded filter.
    :ivar bits_per_shard: bits of one shard.
    :ivar bytes_per_shard: bytes of one shard.
    :ivar nodes: number of nodes or servers over which the shards are spread.
    :ivar shards_per_node: number of shards of the node that has the most.
    :ivar bytes_per_node: bytes on that node.
    :ivar marking_items: number of items by which the library recognises a filter with `layout="module"`.
    """

    kind: KindName
    layout: str
    capacity: int
    error_rate: float
    num_bits: int
    num_hashes: int
    bits_per_item: float
    size_bytes: int
    busy_ms: int
    expected_error_rate: float | None = None
    layers: int | None = None
    room: int | None = None
    times_fixed: float | None = None
    most_times_fixed: float | None = None
    shards: int | None = None
    bits_per_shard: int | None = None
    bytes_per_shard: int | None = None
    nodes: int | None = None
    shards_per_node: int | None = None
    bytes_per_node: int | None = None
    marking_items: int | None = None


def plan(
    capacity: SupportsIndex,
    error_rate: float,
    *,
    kind: KindName = "fixed",
    layout: LayoutName | None = None,
    grown_to: int | None = None,
    expansion: int | None = None,
    slices: int | None = None,
    shards: int | None = None,
    nodes: int | None = None,
) -> FilterPlan:
    """Return the size that a filter will have, without a server.

    :param capacity: number of items that the filter is sized for.
    :param error_rate: the false-positive rate at that many items, strictly between 0 and 1.
    :param kind: `"fixed"` for `BloomFilter`; the other kinds are the first words of the class names.
    :param layout: `"blocked"` (the default), `"classic"`, or for a `BloomFilter` `"module"`.
    :param grown_to: number of items that a scaling filter has in the end; by default `capacity`.
    :param expansion: expansion of a scaling filter; by default 2.
    :param slices: slices of a rotating filter; by default 4.
    :param shards: shards of a sharded filter; by default as many as the class makes.
    :param nodes: nodes or servers over which a sharded filter is spread; by default 1.
    :raises ValueError, TypeError: for bad arguments, and for a size that one key cannot hold.
    """
    items, rate = sizing.checked_capacity(capacity), sizing.checked_error_rate(error_rate)
    given = {"grown_to": grown_to, "expansion": expansion, "slices": slices, "shards": shards, "nodes": nodes}
    _check_options(kind, layout, given)
    if layout == ModuleItems.name and kind == "fixed":
        return _module_plan(items, rate)
    planning.check_name(layout or planning.DEFAULT)
    if kind == "scaling":
        return _scaling(items, rate, layout, grown_to, 2 if expansion is None else expansion)
    if kind == "rotating":
        return _rotating(items, rate, layout, 4 if slices is None else slices)
    if kind == "sharded":
        count = None if shards is None else sizing.positive("shards", shards, shard_record.MAX_SHARDS)
        record = shard_record.plan_record(items, rate, shards=count, layout=layout)
        return sharded(record, 1 if nodes is None else sizing.positive("nodes", nodes))
    return _one_key(kind, planning.new_header(items, rate, layout, _STORED_KINDS.get(kind, FILTER)), rate)


def _check_options(kind: KindName, layout: LayoutName | None, given: Mapping[str, object]) -> None:
    """Raise `ValueError` for an unknown kind of filter, or an option of another kind."""
    if kind not in get_args(KindName):
        raise ValueError(f"kind must be one of {', '.join(map(repr, get_args(KindName)))}, not {shown(kind)}")
    if kind == "counting" and layout is not None:
        raise ValueError("a CountingBloomFilter has one layout only; leave layout out")
    for name, value in given.items():
        if value is not None and _ONLY_OF[name] != kind:
            raise ValueError(f"{name} is for kind={_ONLY_OF[name]!r}, not for kind={kind!r}")


def fits_one_key(capacity: int, error_rate: float) -> bool:
    """Return whether one key can hold a `BloomFilter` of this capacity."""
    return sizing.classic_bits(capacity, error_rate) <= sizing.MAX_BITS


def sharded(record: ShardRecord, nodes: int) -> FilterPlan:
    """Return the size of a sharded filter; numbers for a node are for the node with the most shards."""
    head, each, most = record.head, record.shard.size_bytes, math.ceil(record.shards / nodes)
    bits = head.num_bits * record.shards
    return FilterPlan(
        kind="sharded",
        layout=head.layout,
        capacity=head.capacity,
        error_rate=head.error_rate,
        num_bits=bits,
        num_hashes=head.num_hashes,
        bits_per_item=round(bits / head.capacity, 2),
        size_bytes=each * record.shards + shard_record.RECORD_BYTES + 8 * record.shards,
        busy_ms=_busy_ms(each),
        shards=record.shards,
        bits_per_shard=head.num_bits,
        bytes_per_shard=each,
        nodes=nodes,
        shards_per_node=most,
        bytes_per_node=each * most,
    )


def _one_key(kind: KindName, head: Header, rate: float) -> FilterPlan:
    return FilterPlan(
        kind=kind,
        layout=head.layout,
        capacity=head.capacity,
        error_rate=rate,
        num_bits=head.num_bits,
        num_hashes=head.num_hashes,
        bits_per_item=round(8 * (head.size_bytes - 64) / head.capacity, 2),
        size_bytes=head.size_bytes,
        busy_ms=_busy_ms(head.size_bytes),
        expected_error_rate=float(f"{planning.expected_error_rate(head, head.capacity):.3g}"),
    )


def _module_plan(capacity: int, rate: float) -> FilterPlan:
    """Return the size of a new filter in a key of the server's module, by RedisBloom's own formula."""
    link = first_link(capacity, rate)
    size = link.num_bits // 8
    return FilterPlan(
        kind="fixed",
        layout=ModuleItems.name,
        capacity=capacity,
        error_rate=rate,
        num_bits=link.num_bits,
        num_hashes=link.num_hashes,
        bits_per_item=round(link.num_bits / capacity, 2),
        size_bytes=size,
        busy_ms=_busy_ms(size),
        marking_items=marking(rate).total(encoded=False),
    )


def _scaling(
    capacity: int, rate: float, layout: str | None, grown_to: int | None, expansion: int
) -> FilterPlan:
    items = capacity if grown_to is None else sizing.positive("grown_to", grown_to)
    growth = sizing.positive("expansion", expansion)
    record = new_record(ScalingRecord, capacity, rate, layout, expansion=growth, tightening_ratio=0.5)
    layers: list[Header] = []
    room = size = 0
    worst = 0.0
    while room < items:
        layers.append(record.planned(len(layers)))
        size += layers[-1].size_bytes
        worst = max(worst, size / _fixed_bytes(max(room + 1, capacity), rate, layout))
        room += layers[-1].capacity
    return FilterPlan(
        kind="scaling",
        layout=layers[0].layout,
        capacity=capacity,
        error_rate=rate,
        num_bits=sum(layer.num_bits for layer in layers),
        num_hashes=layers[0].num_hashes,
        bits_per_item=round(8 * size / items, 2),
        size_bytes=size,
        busy_ms=_busy_ms(layers[-1].size_bytes),
        layers=len(layers),
        room=room,
        times_fixed=round(size / _fixed_bytes(items, rate, layout), 2),
        most_times_fixed=round(worst, 2),
    )


def _rotating(capacity: int, rate: float, layout: str | None, slices: int) -> FilterPlan:
    count = sizing.positive("slices", slices, MAX_SLICES)
    # The size does not depend on the width of a slice.
    record = new_record(RotatingRecord, capacity, rate, layout, width=60_000_000, slices=count)
    layer = record.planned(0)
    layers = count + 1  # the current slice, and the slices of the window before it
    size = layers * layer.size_bytes + len(record.template()) + 8 * layers
    return FilterPlan(
        kind="rotating",
        layout=layer.layout,
        capacity=capacity,
        error_rate=rate,
        num_bits=layers * layer.num_bits,
        num_hashes=layer.num_hashes,
        bits_per_item=round(8 * size / capacity, 2),
        size_bytes=size,
        busy_ms=_busy_ms(layer.size_bytes),
        layers=layers,
        room=layers * layer.capacity,
        times_fixed=round(size / _fixed_bytes(capacity, rate, layout), 2),
    )


def _fixed_bytes(items: int, rate: float, layout: str | None) -> float:
    known = min(items, 100_000_000)  # more items are extrapolated, since one key may not hold them
    return planning.new_header(known, max(rate, 1e-9), layout).size_bytes * items / known


def _busy_ms(size: int) -> int:
    """Return the milliseconds that a server needs to create a string: 0.25 to 0.5 a megabyte (measured)."""
    return math.ceil(size / 2**20 / 2)
