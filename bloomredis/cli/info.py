"""`bloomredis info`: what a filter is and how full it is."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from bloomredis import BloomFilter
from bloomredis.cli.output import show
from bloomredis.cli.server import Url, connect


def info(name: Annotated[str, typer.Argument(help="The filter's key.")], *, url: Url) -> None:
    """Print a filter's parameters and how full it is."""
    show(asdict(BloomFilter.open(connect(url), name).info()))
