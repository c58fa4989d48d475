"""`bloomredis info`, which prints the kind, parameters and fill of a filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from bloomredis.cli import durations, filters, reports
from bloomredis.cli.kinds import Kind
from bloomredis.cli.layouts import Layout
from bloomredis.cli.options import Name
from bloomredis.cli.reports import Json, report
from bloomredis.cli.server import Cluster, Url, connect

_OF_ONE_KIND: Final = ("window", "slices", "expansion", "tightening_ratio", "shards")
"""Fields that only one kind of filter has."""
_SHORT: Final = ("name", "kind", "layout", "capacity", "error_rate", "size_bytes", "count", "ttl")


def info(
    name: Name,
    *,
    url: Url,
    cluster: Cluster = None,
    layout: Layout = None,
    as_json: Json = False,
) -> None:
    """Print the kind, the parameters and the fill of a filter."""
    whole(filters.opened(connect(url, cluster=cluster), name, layout), as_json=as_json)


def whole(found: Any, *, as_json: bool) -> None:
    """Print all fields of a filter."""
    fields = described(found)
    report(fields if as_json else _text(fields), as_json=as_json, shown=_shown(fields))


def brief(found: Any, *, as_json: bool) -> None:
    """Print the main fields of a filter."""
    fields = {name: value for name, value in described(found).items() if name in _SHORT}
    report(fields, as_json=as_json, shown={"ttl": durations.shown(fields["ttl"])})


def described(found: Any) -> dict[str, Any]:
    """Return a filter's class and kind, and the fields of its info that its class has."""
    fields = {"class": type(found).__name__, "kind": filters.kind_of(found).value} | asdict(found.info())
    fields = {name: value for name, value in fields.items() if value is not None or name not in _OF_ONE_KIND}
    for layer in fields["layers"]:
        for name in ("layers", *_OF_ONE_KIND):
            del layer[name]
    return fields


def _text(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields for text: the kind without the class, and counters under their own name."""
    counters = {"num_bits": "num_counters"} if fields["kind"] == Kind.COUNTING else {}
    return {counters.get(name, name): value for name, value in fields.items() if name != "class"}


def _shown(fields: Mapping[str, Any]) -> dict[str, str]:
    shown = {"ttl": durations.shown(fields["ttl"]), "layers": _layers(fields["layers"])}
    return shown | ({"window": durations.shown(fields["window"])} if "window" in fields else {})


def _layers(layers: Sequence[Mapping[str, Any]]) -> str:
    """Return the items and the capacity of each layer, the newest first."""
    form = "{count:,}/{capacity:,}" if reports.for_a_person() else "{count}/{capacity}"
    filled = ", ".join(form.format_map(layer) for layer in layers)
    return f"{len(layers)}, holding {filled} items" if layers else "-"
