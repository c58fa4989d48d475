"""`bloomredis plan`: the size of a filter before it is made."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from bloomredis.bits import sizing
from bloomredis.cli.numbers import MOST
from bloomredis.cli.reports import Json, report
from bloomredis.stored import planning, shard_record
from bloomredis.stored.shard_record import ShardRecord

Fields = dict[str, int | float | str]


def plan(
    *,
    capacity: Annotated[int, typer.Option(min=1, max=MOST, help="Items that the filter is made for.")],
    error_rate: Annotated[float, typer.Option(help="False-positive rate at that many items.")],
    layout: Annotated[
        str | None, typer.Option(help=f"One of {', '.join(planning.NAMES)}; {planning.DEFAULT} if not given.")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--shards", help="Plan a ShardedBloomFilter with so many shards.")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Plan a ShardedBloomFilter on so many nodes or servers.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the size of a filter, without a server; of a sharded one if one key cannot hold it."""
    rate = sizing.checked_error_rate(error_rate)
    if count is None and nodes is None and sizing.classic_bits(capacity, rate) <= sizing.MAX_BITS:
        fields = _plan(capacity, rate, layout)
        sizes = {"memory": "size_bytes"}
    else:
        record = shard_record.plan(capacity, rate, shards=count, layout=layout)
        fields = sharded_fields(record, nodes or 1)
        sizes = {"memory": "size_bytes", "memory_per_node": "bytes_per_node"}
    shown = {what: _human(float(fields[field])) for what, field in sizes.items()}
    report(fields, as_json=as_json, shown=shown)


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
    }


def _human(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} PiB"
