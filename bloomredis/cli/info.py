"""`bloomredis info`: class, parameters and fill of a filter."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from bloomredis.cli import durations, filters
from bloomredis.cli.layouts import Layout
from bloomredis.cli.reports import Json, report
from bloomredis.cli.server import Cluster, Url, connect

Name = Annotated[str, typer.Argument(help="The filter's key.")]


def info(
    name: Name,
    *,
    url: Url,
    cluster: Cluster = None,
    layout: Layout = None,
    as_json: Json = False,
) -> None:
    """Print the class, the parameters and the fill of a filter and of each of its layers."""
    found = filters.opened(connect(url, cluster=cluster), name, layout)
    about = found.info()
    layers = ", ".join(f"{layer.count} of {layer.capacity}" for layer in about.layers)
    fields = described(found, about)
    window = {"window": durations.shown(fields["window"])} if "window" in fields else {}
    report(
        fields,
        as_json=as_json,
        shown={"ttl": durations.shown(about.ttl), "layers": layers or "-"} | window,
    )


def described(found: Any, about: Any) -> dict[str, Any]:
    """Return what is known of a filter: its class, its info, and what only its class has."""
    fields = {"class": type(found).__name__, "kind": filters.kind_of(found).value} | asdict(about)
    for layer in fields["layers"]:
        del layer["layers"]
    return fields | {
        name: value for name, value in filters.stored_parameters(found, about).items() if name not in fields
    }
