"""`bloomredis rebuild`, which replaces a filter in use with one that has other parameters."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from bloomredis.cli import filters
from bloomredis.cli.inputs import STDIN, lines_of
from bloomredis.cli.kinds import Kind
from bloomredis.cli.options import Capacity, ErrorRate, Name, option, time
from bloomredis.cli.reports import Json, report
from bloomredis.cli.server import Cluster, Url, connect
from bloomredis.cli.stopping import Stop

Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="FILE", help="Files of items, one a line; stdin if none.", show_default=False),
]


def rebuild(
    name: Name,
    files: Files = None,
    *,
    url: Url,
    cluster: Cluster = None,
    capacity: Capacity = None,
    error_rate: ErrorRate = None,
    timeout: Annotated[float, option(time, "TIME", "Time limit: 15m, 12h, 7d (default: 1d).")] = 86_400.0,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Replace a rebuild whose process has died.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Rebuild a filter from lines, for another capacity or error rate; it stays in use meanwhile.

    The rebuilt filter has the items of the lines, and those added during the rebuild. If the command fails or
    is stopped, the filter stays as it was.
    """
    stop = Stop()
    with stop.waiting():
        found = filters.opened(connect(url, cluster=cluster, retries=4), name)
    if filters.kind_of(found) is not Kind.FIXED:
        raise ValueError(f"{name!r} is a {type(found).__name__}; only a BloomFilter can be rebuilt")
    begun = found.rebuild(capacity=capacity, error_rate=error_rate, timeout=timeout, take_over=take_over)
    with begun as new:
        read = new.load(chain.from_iterable(lines_of(files or [STDIN], stop, quiet=False)))
    fields = ("capacity", "error_rate", "size_bytes", "count")
    about = found.info()
    rebuilt = {field: getattr(about, field) for field in fields}
    report({"name": name, "read": read, **rebuilt}, as_json=as_json)
