"""`bloomredis plan`: how large a filter would be."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from bloomredis import arguments, layouts
from bloomredis.cli.output import show, write


def plan(
    *,
    capacity: Annotated[int, typer.Option(help="Items that the filter is made for.")],
    error_rate: Annotated[float, typer.Option(help="False-positive rate at that many items.")],
    layout: Annotated[
        str | None, typer.Option(help=f"One of {', '.join(layouts.NAMES)}; {layouts.DEFAULT} if not given.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print the size of a filter, without a server."""
    fields = _plan(capacity, error_rate, layout)
    if as_json:
        write(json.dumps(fields).encode() + b"\n")
    else:
        show(fields | {"memory": _human(float(fields["size_bytes"]))})


def _plan(capacity: int, error_rate: float, layout: str | None) -> dict[str, int | float | str]:
    head = arguments.new_header(capacity, error_rate, layout)
    return {
        "layout": head.layout,
        "num_bits": head.num_bits,
        "num_hashes": head.num_hashes,
        "bits_per_item": round(head.num_bits / capacity, 2),
        "size_bytes": head.size_bytes,
    }


def _human(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} GiB"
