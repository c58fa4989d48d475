"""`bloomredis dedupe`, which prints the lines that were not seen before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from bloomredis.cli.columns import keys_by
from bloomredis.cli.deduping import Deduping
from bloomredis.cli.inputs import STDIN, lines_of
from bloomredis.cli.kinds import Kind
from bloomredis.cli.layouts import Layout
from bloomredis.cli.lines import Columns, Missing, missing_named
from bloomredis.cli.options import KeepCr, Window, kind_option, option, share, whole
from bloomredis.cli.pipe_writer import PipeWriter
from bloomredis.cli.private import PrivateFilter
from bloomredis.cli.reports import report
from bloomredis.cli.server import VARIABLE, Cluster, OwnUrl, connect
from bloomredis.cli.stopping import Stop
from bloomredis.errors import FilterNotFoundError

RETRIES: Final = 4
CAPACITY: Final = 1_000_000
ERROR_RATE: Final = 1e-6
_TTL: Final = 86_400.0
"""The longest life of a filter without a name on a server, in seconds: that of one whose run is killed."""


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
    if name is not None and not (url := url or os.environ.get(VARIABLE)):
        raise ValueError("--name needs --url: without a server, the filter ends with the command")
    stop = Stop()
    paths = [_path(file) for file in files or ["-"]]
    only_totals = count or as_json
    parameters = {"capacity": capacity, "error_rate": error_rate, "layout": layout, "window": window}
    with ExitStack() as stack:
        if url is None:
            seen: Any = _private(kind, **parameters)  # type: ignore[arg-type]  # each of its own type
        else:
            with stop.waiting():
                # Receipts are worth their cost in a filter with a name only; any other run can be repeated.
                client = connect(url, cluster=cluster, retries=RETRIES if name else 0)
            seen = stack.enter_context(_stored(client, name, kind, parameters))
        writer = None if only_totals else PipeWriter(stop, waits=name is not None)
        work = Deduping(seen, columns, writer, shared=name is not None)
        work.run(lines_of(paths, stop, quiet=not only_totals, keep_cr=keep_cr))
        if only_totals:
            report(work.totals, as_json=as_json)


def _path(file: str) -> Path:
    if not file:
        raise ValueError("a file's name must not be empty; - is stdin")
    return STDIN if file == "-" else Path(file)


def _private(
    kind: Kind | None,
    *,
    capacity: int | None,
    error_rate: float | None,
    layout: str | None,
    window: float | None,
) -> PrivateFilter:
    """Return a filter in this process."""
    meant = Kind.ROTATING if window is not None else Kind.SCALING
    if kind not in (None, meant) or layout is not None:
        raise ValueError(
            "without --url, lines are compared in this process, in a filter that grows or, with --window, "
            "forgets: --layout, and any other --kind, need --url and --name"
        )
    return PrivateFilter.of(capacity or CAPACITY, error_rate or ERROR_RATE, window)


@contextmanager
def _stored(client: Any, name: str | None, kind: Kind | None, parameters: dict[str, Any]) -> Iterator[Any]:
    """Yield the filter with the name, which must match the options; without a name, delete it afterwards."""
    from bloomredis.cli import filters  # noqa: PLC0415 - for a private run to begin soon

    wanted = filters.Wanted(kind=kind, **parameters)
    meant = wanted.checked() or Kind.SCALING
    if name is not None and not wanted.is_foreign:
        with suppress(FilterNotFoundError):
            found = filters.opened(client, name)
            filters.check_parameters(found, wanted)
            yield found
            return
    if not wanted.is_foreign:
        wanted = wanted.completed(CAPACITY, ERROR_RATE)
    expires = name is None and meant is not Kind.ROTATING and not wanted.is_foreign
    more: dict[str, Any] = ({"ttl": _TTL} if expires else {}) | {"retry_safe": name is not None}
    called = f"bloomredis:dedupe:{os.urandom(8).hex()}" if name is None else name
    made = filters.make(client, called, wanted, meant, **more)
    try:
        made.reserve()
        yield made
    finally:
        if name is None:
            made.delete()
