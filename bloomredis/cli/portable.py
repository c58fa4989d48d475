"""`bloomredis save`, `restore`, `copy` and `merge`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

import bloomredis
from bloomredis import LocalFilter
from bloomredis.bits.encoding import Unknown
from bloomredis.cli import durations, filters, progress
from bloomredis.cli.info import Name, described
from bloomredis.cli.reports import Json, report
from bloomredis.cli.server import Cluster, Url, connect
from bloomredis.cli.stopping import Stop
from bloomredis.operations.whole.files import Whole
from bloomredis.stored.saved import format as saved

_SHOWN = ("name", "kind", "layout", "capacity", "error_rate", "size_bytes", "count", "ttl")

File = Annotated[str, typer.Argument(help="The file; - is stdout, or stdin.", show_default=False)]
OtherUrl = Annotated[
    str | None, typer.Option(help="The other server, if it is not that of --url.", show_default=False)
]


def save(name: Name, file: File, *, url: Url, cluster: Cluster = None) -> None:
    """Write a filter of any kind to a file, with a checksum; it may be in use.

    The file has all that was added before. It is there as a whole or as it was before.
    """
    with Stop().waiting(), progress.shown("saving") as show:
        found = filters.opened(connect(url, cluster=cluster, retries=4), name)
        found.save(sys.stdout.buffer if file == "-" else file, progress=show)


def restore(name: Name, file: File, *, url: Url, cluster: Cluster = None, as_json: Json = False) -> None:
    """Put a saved filter under a name that is free; print what it is.

    A file that was cut or changed is refused, and nothing is overwritten.
    """
    with Stop().waiting(), progress.shown("restoring") as show:
        client = connect(url, cluster=cluster, retries=4)
        with sys.stdin.buffer if file == "-" else Path(file).open("rb") as opened:
            ahead: Any = _Ahead(opened)
            made = getattr(bloomredis, ahead.kind).restore(
                client, name, ahead, encode=Unknown(), progress=show
            )
    _report(made, as_json=as_json)


def copy(
    name: Name,
    new_name: Annotated[str, typer.Argument(help="The name of the copy.")],
    *,
    url: Url,
    cluster: Cluster = None,
    to_url: OtherUrl = None,
    as_json: Json = False,
) -> None:
    """Copy a filter of any kind to a name that is free, on this server or another; print what it is."""
    with Stop().waiting(), progress.shown("copying") as show:
        client = connect(url, cluster=cluster, retries=4)
        target = client if to_url is None else connect(to_url, retries=4)
        made = filters.opened(client, name).copy(target, new_name, progress=show)
    _report(made, as_json=as_json)


def merge(
    name: Name,
    other: Annotated[str, typer.Argument(help="The filter to add; with --file a saved one.")],
    *,
    url: Url,
    cluster: Cluster = None,
    from_url: OtherUrl = None,
    file: Annotated[bool, typer.Option("--file", help="The other one is a file.")] = False,
    as_json: Json = False,
) -> None:
    """Add all that another filter with the same parameters has; print what came of it."""
    if file and from_url is not None:
        raise ValueError("--file is on no server: leave out --from-url")
    client = connect(url, cluster=cluster, retries=4)
    found = filters.opened(client, name)
    source = client if from_url is None else connect(from_url, retries=4)
    with Stop().waiting(), progress.shown("merging") as show:
        theirs = LocalFilter.open(other, encode=Unknown()) if file else filters.opened(source, other)
        found.merge(theirs, progress=show)
    _report(found, as_json=as_json)


def _report(made: Any, *, as_json: bool) -> None:
    about = made.info()
    fields = {field: value for field, value in described(made, about).items() if field in _SHOWN}
    report(fields, as_json=as_json, shown={"ttl": durations.shown(about.ttl)})


class _Ahead(Whole):
    """A binary file whose beginning was read to find out the kind of its filter."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        if file.seekable():
            self._first, self.kind = b"", saved.class_of(file.read(saved.KIND_BYTES))
            file.seek(0)
        else:
            self._first = file.read(saved.KIND_BYTES)
            self.kind = saved.class_of(self._first)

    def read(self, size: int) -> bytes:
        """Return up to so many bytes, none at the end."""
        data, self._first = self._first[:size], self._first[size:]
        return data or super().read(size)
