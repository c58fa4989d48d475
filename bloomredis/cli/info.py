"""`bloomredis info`: class, parameters and fill of a filter."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

import bloomredis
from bloomredis import FilterMismatchError
from bloomredis.cli.output import show
from bloomredis.cli.server import Url, connect
from bloomredis.stored.header import KINDS


def info(name: Annotated[str, typer.Argument(help="The filter's key.")], *, url: Url) -> None:
    """Print the class, the parameters and the fill of a filter and of each of its layers."""
    found = _opened(connect(url), name)
    about = found.info()
    layers = ", ".join(f"{layer.count} of {layer.capacity}" for layer in about.layers)
    show({"class": type(found).__name__} | asdict(about) | {"layers": layers or "-"})


def _opened(client: Any, name: str) -> Any:
    """Return a filter, opened as the class that it was created by."""
    refused: list[FilterMismatchError] = []
    for kind in KINDS:
        try:
            return getattr(bloomredis, kind).open(client, name)
        except FilterMismatchError as error:
            refused.append(error)
    raise refused[0]
