"""`bloomredis dedupe`, which prints the lines that were not seen before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from bloomredis.cli.columns import Columns, Fields, Missing, fields, keys_by, missing_named
from bloomredis.cli.deduping import IN_FLIGHT, Deduping
from bloomredis.cli.inputs import STDIN, files_of
from bloomredis.cli.kinds import Kind
from bloomredis.cli.layouts import Layout
from bloomredis.cli.options import KeepCr, kind_option, option, share, time, whole
from bloomredis.cli.pipe_writer import PipeWriter
from bloomredis.cli.private import PrivateFilter
from bloomredis.cli.reports import report
from bloomredis.cli.server import VARIABLE, Cluster, connect
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
    field: Annotated[
        Fields | None,
        option(fields, "LIST", "Columns, such as 1,3-4; with --csv also names.", "--field", "-f"),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(
            "--delimiter", "-d", metavar="TEXT", help="Text between columns, not blanks.", show_default=False
        ),
    ] = None,
    csv: Annotated[
        bool, typer.Option("--csv", help="Columns of CSV; names are those of the header.")
    ] = False,
    json_key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY", help="JSON: the key's value, as in user.id (repeatable).", show_default=False
        ),
    ] = None,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="A and a are the same.")] = False,
    missing: Annotated[
        Missing,
        option(
            missing_named,
            "|".join(Missing),
            "Lines without the column or key (default: keep).",
            autocompletion=lambda: list(Missing),
        ),
    ] = Missing.KEEP,
    null: Annotated[bool, typer.Option("--null", "-z", help="Lines end in NUL, not in newline.")] = False,
    keep_cr: KeepCr = False,
    repeated: Annotated[
        bool, typer.Option("--repeated", "-D", help="Print the lines that were seen before instead.")
    ] = False,
    count: Annotated[bool, typer.Option("--count", help="Print only totals: lines read, lines new.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print only totals, as one JSON object.")] = False,
    capacity: Annotated[
        int | None, option(whole(), "ITEMS", f"Distinct lines to expect (default: {CAPACITY:,}).")
    ] = None,
    error_rate: Annotated[
        float | None, option(share, "RATE", f"Share of new lines it may drop (default: {ERROR_RATE:g}).")
    ] = None,
    window: Annotated[
        float | None, option(time, "TIME", "Forget lines after this time, such as 12h.")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The server, such as redis://host:6379/0.", show_default=False),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=f"Keep the filter, at --url or {VARIABLE}.", show_default=False),
    ] = None,
    cluster: Cluster = None,
    kind: Annotated[Kind | None, kind_option("scaling")] = None,
    layout: Layout = None,
) -> None:
    """Print the lines that were not seen before, while they are read.

    Runs with the same --url and --name share a filter. A line is marked there just before it is printed, so
    no two runs print it; lines that cannot be written are counted on stderr.
    """
    columns = Columns(keys_by(field, delimiter, json_key or (), is_csv=csv), missing, lowers=ignore_case)
    if name is not None and not (url := url or os.environ.get(VARIABLE)):
        raise ValueError("--name needs --url: without a server, the filter ends with the command")
    stop = Stop()
    paths = [_path(file) for file in files or ["-"]]
    only_totals = count or as_json
    end = b"\0" if null else b"\n"
    parameters = {"capacity": capacity, "error_rate": error_rate, "layout": layout, "window": window}
    with ExitStack() as stack:
        workers = None
        if url is None:
            seen: Any = _private(kind, **parameters)  # type: ignore[arg-type]  # each of its own type
        else:
            from concurrent.futures import ThreadPoolExecutor

            with stop.waiting():
                # Receipts are worth their cost in a filter with a name only; any other run can be repeated.
                client = connect(url, cluster=cluster, retries=RETRIES if name else 0)
            seen = stack.enter_context(_stored(client, name, kind, parameters))
            workers = stack.enter_context(ThreadPoolExecutor(IN_FLIGHT))
        writer = None if only_totals else PipeWriter(stop, waits=name is not None, end=end)
        work = Deduping(seen, columns, writer, shared=name is not None, repeated=repeated, workers=workers)
        work.run(
            files_of(
                paths,
                stop,
                quiet=not only_totals,
                keep_cr=keep_cr,
                end=end,
                totals=work.totals,
                idle=work.settle,
            )
        )
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
    from bloomredis.cli import filters

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
        made.create()
        yield made
    finally:
        if name is None:
            made.delete()
