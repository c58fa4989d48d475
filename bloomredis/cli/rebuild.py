"""`bloomredis rebuild`: a filter with other parameters in the place of the stored one, which stays in use."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from bloomredis import BloomFilter
from bloomredis.cli import durations, filters
from bloomredis.cli.info import Name
from bloomredis.cli.inputs import STDIN, lines_of
from bloomredis.cli.numbers import Capacity, ErrorRate
from bloomredis.cli.reports import Json, report
from bloomredis.cli.server import Cluster, Url, connect
from bloomredis.cli.stopping import Stop

Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="FILE...", help="Files of items, one a line; stdin if none is given."),
]


def rebuild(
    name: Name,
    files: Files = None,
    *,
    url: Url,
    cluster: Cluster = None,
    capacity: Capacity = None,
    error_rate: ErrorRate = None,
    timeout: Annotated[str, typer.Option(help="Time in which it has to end: 15m, 12h, 7d.")] = "1d",
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Take the place of a rebuild whose process has died.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Rebuild a filter from lines, for another capacity or error rate; others use it meanwhile.

    It has the items of the lines, and those that are added while it is rebuilt.  If the command fails or is
    stopped, the filter stays as it was.
    """
    seconds, stop = durations.seconds("--timeout", timeout), Stop()
    with stop.waiting():
        found = filters.opened(connect(url, cluster=cluster, retries=4), name)
    if not isinstance(found, BloomFilter):
        raise TypeError(f"{name!r} is a {type(found).__name__}; only a BloomFilter is rebuilt")
    begun = found.rebuild(capacity=capacity, error_rate=error_rate, timeout=seconds, take_over=take_over)
    with begun as new:
        read = new.load(chain.from_iterable(lines_of(files or [STDIN], stop, quiet=False)))
    fields = ("capacity", "error_rate", "size_bytes", "count")
    about = found.info()
    rebuilt = {field: getattr(about, field) for field in fields}
    report({"name": name, "read": read, **rebuilt}, as_json=as_json)
