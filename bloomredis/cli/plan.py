"""`bloomredis plan`: the size of a filter before it is made."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from bloomredis.bits import sizing
from bloomredis.bits.module_items import ModuleItems, marking
from bloomredis.cli.layouts import OWN
from bloomredis.cli.numbers import MOST
from bloomredis.cli.reports import Json, report
from bloomredis.stored import planning
from bloomredis.stored.header import Header
from bloomredis.stored.layers.record import ScalingRecord
from bloomredis.stored.module.filter import first_link
from bloomredis.stored.shards import record as shard_record
from bloomredis.stored.shards.record import ShardRecord

Fields = dict[str, int | float | str]
GrownTo = Annotated[
    int | None,
    typer.Option(
        min=1, help="Plan a ScalingBloomFilter that begins with the capacity and gets so many items."
    ),
]


def plan(
    *,
    capacity: Annotated[int, typer.Option(min=1, max=MOST, help="Items that the filter is made for.")],
    error_rate: Annotated[float, typer.Option(help="False-positive rate at that many items.")],
    layout: Annotated[
        str | None, typer.Option(help=f"One of {', '.join(OWN)}; {planning.DEFAULT} if not given.")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--shards", help="Plan a ShardedBloomFilter with so many shards.")
    ] = None,
    grown_to: GrownTo = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Plan a ShardedBloomFilter on so many nodes or servers.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the size of a filter, without a server; of a sharded one if one key cannot hold it."""
    rate = sizing.checked_error_rate(error_rate)
    if layout == ModuleItems.name:
        fields, sizes = module_fields(capacity, rate), {"memory": "size_bytes"}
    elif grown_to is not None:
        fields, sizes = scaling_fields(capacity, rate, layout, grown_to), {"memory": "size_bytes"}
    elif count is None and nodes is None and sizing.classic_bits(capacity, rate) <= sizing.MAX_BITS:
        fields = _plan(capacity, rate, layout)
        sizes = {"memory": "size_bytes"}
    else:
        record = shard_record.plan(capacity, rate, shards=count, layout=layout)
        fields = sharded_fields(record, nodes or 1)
        sizes = {"memory": "size_bytes", "memory_per_node": "bytes_per_node"}
    shown = {what: _human(float(fields[field])) for what, field in sizes.items()}
    report(fields, as_json=as_json, shown=shown)


def scaling_fields(capacity: int, error_rate: float, layout: str | None, items: int) -> Fields:
    """Return the sizes of a scaling filter with so many items; `times_fixed` compares with a known size.

    `most_times_fixed` is the most on the way, when a layer has just been begun; the largest layer is made in
    one script, which takes the server `busy_ms`.
    """
    whole = planning.whole(capacity, error_rate, layout, ScalingRecord.kind)
    record = ScalingRecord(head=whole, expansion=2, tightening_ratio=0.5).complete()
    layers: list[Header] = []
    room = size = 0
    worst = 0.0
    while room < items:
        layers.append(record.planned(len(layers)))
        size += layers[-1].size_bytes
        worst = max(worst, size / _fixed_bytes(max(room + 1, capacity), error_rate, layout))
        room += layers[-1].capacity
    return {
        "layout": layers[0].layout,
        "layers": len(layers),
        "room": room,
        "num_bits": sum(layer.num_bits for layer in layers),
        "bits_per_item": round(8 * size / items, 2),
        "size_bytes": size,
        "times_fixed": round(size / _fixed_bytes(items, error_rate, layout), 2),
        "most_times_fixed": round(worst, 2),
        "busy_ms": _busy_ms(layers[-1].size_bytes),
    }


def module_fields(capacity: int, error_rate: float) -> Fields:
    """Return the sizes of a filter in a key of the server's module, which grows: RedisBloom's own formula."""
    link = first_link(capacity, error_rate)
    return {
        "kind": "fixed",
        "layout": ModuleItems.name,
        "num_bits": link.num_bits,
        "num_hashes": link.num_hashes,
        "bits_per_item": round(link.num_bits / capacity, 2),
        "size_bytes": link.num_bits // 8,
        "marking_items": marking(error_rate).total(encoded=False),
    }


def _fixed_bytes(items: int, error_rate: float, layout: str | None) -> float:
    known = min(items, 100_000_000)  # one key need not hold it
    return planning.new_header(known, max(error_rate, 1e-9), layout).size_bytes * items / known


def _busy_ms(size: int) -> int:
    """Return how long a server may take to make a string so long: 0.25 to 0.5 ms a megabyte (measured)."""
    return math.ceil(size / 2**20 / 2)


def sharded_fields(record: ShardRecord, nodes: int) -> Fields:
    """Return the sizes of a sharded filter; those of a node are for the node with the most shards."""
    each, most = record.shard.size_bytes, math.ceil(record.shards / nodes)
    bits = record.head.num_bits * record.shards
    return {
        "kind": "sharded",
        "layout": record.head.layout,
        "shards": record.shards,
        "num_bits": bits,
        "num_hashes": record.head.num_hashes,
        "bits_per_item": round(bits / record.head.capacity, 2),
        "bits_per_shard": record.head.num_bits,
        "bytes_per_shard": each,
        "busy_ms": _busy_ms(each),
        "nodes": nodes,
        "shards_per_node": most,
        "bytes_per_node": each * most,
        "size_bytes": each * record.shards + shard_record.RECORD_BYTES + 8 * record.shards,
    }


def _plan(capacity: int, error_rate: float, layout: str | None) -> Fields:
    head = planning.new_header(capacity, error_rate, layout)
    return {
        "kind": "fixed",
        "layout": head.layout,
        "num_bits": head.num_bits,
        "num_hashes": head.num_hashes,
        "bits_per_item": round(head.num_bits / capacity, 2),
        "size_bytes": head.size_bytes,
        "expected_error_rate": float(f"{planning.expected_error_rate(head, capacity):.3g}"),
        "busy_ms": _busy_ms(head.size_bytes),
    }


def _human(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} PiB"
