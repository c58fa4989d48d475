"""`bloomredis plan`, which prints the size of a filter before it is created."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Final

import typer

from bloomredis.cli.kinds import Kind
from bloomredis.cli.layouts import OWN
from bloomredis.cli.options import (
    Capacity,
    Expansion,
    Shards,
    Slices,
    argument,
    kind_option,
    option,
    share,
    whole,
)
from bloomredis.cli.reports import Json, human, report
from bloomredis.operations.whole import plans
from bloomredis.stored import planning

_RATE: Final = 0.001


def plan(  # long: the signature declares every option
    items: Annotated[int | None, argument(whole(), "CAPACITY", "The same as --capacity.")] = None,
    *,
    capacity: Capacity = None,
    error_rate: Annotated[
        float, option(share, "RATE", f"False-positive rate at that many items (default: {_RATE:g}).")
    ] = _RATE,
    kind: Annotated[Kind | None, kind_option("what the other options imply")] = None,
    layout: Annotated[
        str | None,
        typer.Option(
            metavar="LAYOUT", help=f"{', '.join(OWN)}; default: {planning.DEFAULT}.", show_default=False
        ),
    ] = None,
    shards: Shards = None,
    nodes: Annotated[int | None, option(whole(), "N", "Sharded filters: number of nodes or servers.")] = None,
    grown_to: Annotated[
        int | None, option(whole(), "ITEMS", "Scaling filters: number of items in the end.")
    ] = None,
    expansion: Expansion = None,
    slices: Slices = None,
    as_json: Json = False,
) -> None:
    """Print the size that a filter will have, without a server.

    Without --kind, a filter that is too large for one key is planned as a sharded one.

    busy_ms is the longest time that the server is busy creating the largest key. room is the number of items
    that the layers hold. times_fixed compares the size with that of a filter of --kind fixed,
    most_times_fixed at the worst moment. expected_error_rate is what the error rate of the full filter will
    be.
    """
    number = items if capacity is None else capacity
    if number is None or None not in (items, capacity):
        raise ValueError("give the capacity once, as in bloomredis plan 1e6")
    given = {
        "shards": shards, "nodes": nodes, "grown_to": grown_to, "expansion": expansion, "slices": slices
    }  # fmt: skip
    own: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    meant: Any = kind or _meant(own, number, error_rate, layout)
    planned = plans.plan(number, error_rate, kind=str(meant), layout=layout, **own)  # type: ignore[arg-type]  # checked there
    fields = {name: value for name, value in asdict(planned).items() if value is not None}
    sizes = {"memory": "size_bytes", "memory_per_node": "bytes_per_node"}
    shown = {what: human(float(fields[field])) for what, field in sizes.items() if field in fields}
    report(fields, as_json=as_json, shown=shown)


def _meant(own: dict[str, Any], capacity: int, error_rate: float, layout: str | None) -> Kind:
    """Return the kind that the options select, or else one that can hold the items."""
    if {"grown_to", "expansion"} & set(own):
        return Kind.SCALING
    if "slices" in own:
        return Kind.ROTATING
    is_large = layout != "module" and not plans.fits_one_key(capacity, error_rate)
    return Kind.SHARDED if is_large or {"shards", "nodes"} & set(own) else Kind.FIXED
