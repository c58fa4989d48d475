"""`bloomredis plan`: how large a filter would be."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from bloomredis import layouts, sizing
from bloomredis.cli.output import show, write
from bloomredis.header import Header


def plan(
    *,
    capacity: Annotated[int, typer.Option(help="Items that the filter is made for.")],
    error_rate: Annotated[float, typer.Option(help="False-positive rate at that many items.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print the size of a filter, without a server."""
    fields = _plan(capacity, error_rate)
    if as_json:
        write(json.dumps(fields).encode() + b"\n")
    else:
        show(fields | {"memory": _human(fields["size_bytes"])})


def _plan(capacity: int, error_rate: float) -> dict[str, int | float]:
    sizing.checked_capacity(capacity)
    sizing.checked_error_rate(error_rate)
    layout = layouts.plan(layouts.DEFAULT, capacity, error_rate)
    head = Header(
        layout=layout.name,
        num_hashes=layout.num_hashes,
        num_bits=layout.num_bits,
        capacity=capacity,
        error_rate=error_rate,
        generation=bytes(8),
    )
    return {
        "num_bits": layout.num_bits,
        "num_hashes": layout.num_hashes,
        "bits_per_item": round(layout.num_bits / capacity, 2),
        "size_bytes": head.size_bytes,
    }


def _human(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} GiB"
