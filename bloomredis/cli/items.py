"""`bloomredis add`, `check` and `remove`, for items on the command line or lines of stdin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import compress
from typing import Any

import typer

from bloomredis import BatchInterruptedError, BloomError, OutcomeUnknownError
from bloomredis.cli import filters, stderr
from bloomredis.cli.inputs import STDIN, lines_of
from bloomredis.cli.kinds import Kind
from bloomredis.cli.layouts import Layout
from bloomredis.cli.options import Count, Items, KeepCr, Name
from bloomredis.cli.output import write
from bloomredis.cli.reports import Json, report
from bloomredis.cli.server import LOCALHOST, VARIABLE, Cluster, Url, connect
from bloomredis.cli.stopping import Stop

NOTHING_FOUND = 1


def add(
    name: Name,
    items: Items = None,
    *,
    url: Url = LOCALHOST,
    cluster: Cluster = None,
    layout: Layout = None,
    keep_cr: KeepCr = False,
    as_json: Json = False,
) -> None:
    """Add items to a stored filter; print how many were new."""
    stop = Stop()
    with stop.waiting(), _told(url):
        found = filters.opened(connect(url, cluster=cluster, retries=4), name, layout)
    totals = {"read": 0, "new": 0}
    for batch in _batches(items, stop, keep_cr=keep_cr):
        totals["new"] += sum(_added(found, batch, totals["read"]))
        totals["read"] += len(batch)
    report(totals, as_json=as_json)


def remove(
    name: Name,
    items: Items = None,
    *,
    url: Url = LOCALHOST,
    cluster: Cluster = None,
    keep_cr: KeepCr = False,
    as_json: Json = False,
) -> None:
    """Remove items from a counting filter; print how many it had.

    Remove only items that were added: removing a false positive removes other items with it.

    Exit status: 0 if items were removed, 1 if none.
    """
    stop = Stop()
    with stop.waiting(), _told(url):
        found = filters.opened(connect(url, cluster=cluster, retries=4), name)
    if filters.kind_of(found) is not Kind.COUNTING:
        raise ValueError(
            f"{name!r} is a {type(found).__name__}: only a filter that was created with --kind counting can "
            "remove items"
        )
    totals = {"read": 0, "removed": 0}
    for batch in _batches(items, stop, keep_cr=keep_cr):
        for item in batch:
            totals["removed"] += _removed(found, item, totals["read"])
            totals["read"] += 1
    report(totals, as_json=as_json)
    if not totals["removed"]:
        raise typer.Exit(NOTHING_FOUND)


def check(
    name: Name,
    items: Items = None,
    *,
    url: Url = LOCALHOST,
    cluster: Cluster = None,
    layout: Layout = None,
    keep_cr: KeepCr = False,
    count: Count = False,
    as_json: Json = False,
) -> None:
    """Print the items that are in a filter, in order; add none.

    An item that is not printed is certainly not in the filter. A printed item may be a false positive, at the
    filter's error rate.

    Exit status: 0 if items were found, 1 if none.
    """
    stop = Stop()
    with stop.waiting(), _told(url):
        found = filters.opened(connect(url, cluster=cluster), name, layout)
    read, there, kept = 0, 0, []
    for batch in _batches(items, stop, keep_cr=keep_cr):
        present = list(compress(batch, found.contains_many(batch)))
        read, there = read + len(batch), there + len(present)
        if as_json and not count:
            kept += [item.decode(errors="surrogateescape") for item in present]
        elif not count:
            write(b"".join([item + b"\n" for item in present]))
    if as_json or count:
        fields: dict[str, Any] = {"read": read, "found": there}
        report(fields if count else fields | {"items": kept}, as_json=as_json)
    if not there:
        raise typer.Exit(NOTHING_FOUND)


@contextmanager
def _told(url: str) -> Iterator[None]:
    """Say which server was taken for want of a URL, if the filter cannot be opened there."""
    try:
        yield
    except Exception:
        if url == LOCALHOST:
            stderr.note(f"without --url and {VARIABLE}, the server is {LOCALHOST}")
        raise


def _batches(items: list[str] | None, stop: Stop, *, keep_cr: bool) -> Iterator[list[bytes]]:
    if items and items != ["-"]:
        if "-" in items:
            raise ValueError("- means the lines of stdin and stands alone; give the item - as such a line")
        yield [item.encode(errors="surrogateescape") for item in items]
    else:
        yield from lines_of([STDIN], stop, quiet=True, keep_cr=keep_cr)


def _removed(found: Any, item: bytes, before: int) -> bool:
    try:
        return bool(found.remove(item))
    except BloomError as error:
        doubt = ", which may have been removed" if isinstance(error, OutcomeUnknownError) else ""
        error.restate(f"{error.problem}; the first {before:,} items are done")
        error.command = f"go on with the next{doubt}"
        raise


def _added(found: Any, batch: list[bytes], before: int) -> list[bool]:
    try:
        answers: list[bool] = found.add_many(batch)
    except BatchInterruptedError as error:
        done = before + len(error.results)
        raise BloomError(
            f"{stderr.problem(error.__cause__)}; the first {done:,} items were added",
            command=f"{error.command}; the others can be added again",
        ) from error
    return answers
