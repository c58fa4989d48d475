"""`bloomredis create` and `bloomredis delete`."""

from __future__ import annotations

from typing import Annotated

import typer

from bloomredis.cli import durations, filters
from bloomredis.cli.filters import Kind, Wanted
from bloomredis.cli.info import Name, described
from bloomredis.cli.layouts import Layout
from bloomredis.cli.numbers import Capacity, ErrorRate
from bloomredis.cli.reports import Json, report
from bloomredis.cli.server import Cluster, Url, connect
from bloomredis.errors import FilterNotFoundError


def create(  # long: the signature declares every option
    name: Name,
    *,
    url: Url,
    cluster: Cluster = None,
    kind: Annotated[
        Kind | None,
        typer.Option(help="fixed if not given, or what the other options mean.", show_default=False),
    ] = None,
    capacity: Capacity = None,
    error_rate: ErrorRate = None,
    layout: Layout = None,
    window: Annotated[
        str | None, typer.Option(help="Of a rotating filter: 90s, 15m, 12h, 7d.", show_default=False)
    ] = None,
    slices: Annotated[
        int | None, typer.Option(help="Slices of that window; 4 if not given.", show_default=False)
    ] = None,
    shards: Annotated[int | None, typer.Option(help="Of a sharded filter.", show_default=False)] = None,
    expansion: Annotated[
        int | None, typer.Option(help="Of a scaling filter: growth of its layers.", show_default=False)
    ] = None,
    ttl: Annotated[
        str | None, typer.Option(help="Time until it expires: 90s, 15m, 12h, 7d.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Create a filter, or check that the one with this name is as the options say; print what it is."""
    wanted = Wanted(
        kind=kind, capacity=capacity, error_rate=error_rate, layout=layout,
        window=window, slices=slices, shards=shards, expansion=expansion,
    )  # fmt: skip
    meant = wanted.checked() or Kind.FIXED
    if not wanted.is_foreign and None in (capacity, error_rate):
        raise ValueError("a new filter needs --capacity and --error-rate")
    more = {} if ttl is None else {"ttl": durations.seconds("--ttl", ttl)}
    if more and meant is Kind.ROTATING:
        raise ValueError(
            "--kind rotating takes no --ttl: it expires by itself a --window after the last item"
        )
    made = filters.make(connect(url, cluster=cluster), name, wanted, meant, **more)
    made.reserve()
    about = made.info()
    fields = described(made, about)
    names = ("name", "kind", "layout", "capacity", "error_rate", "size_bytes", "count", "ttl")
    kept = {field: value for field, value in fields.items() if field in names}
    report(kept, as_json=as_json, shown={"ttl": durations.shown(about.ttl)})


def delete(
    name: Name, *, url: Url, cluster: Cluster = None, layout: Layout = None, as_json: Json = False
) -> None:
    """Delete a filter of any kind, with all that it stores."""
    found = filters.opened(connect(url, cluster=cluster), name, layout)
    if not found.delete():
        raise FilterNotFoundError(f"there is no filter {name!r} on this server")
    if as_json:
        report({"name": name, "deleted": True}, as_json=True)
