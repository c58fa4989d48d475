"""`bloomredis save`, `restore`, `copy` and `merge`, which move filters."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

import bloomredis
from bloomredis import LocalFilter
from bloomredis.bits.encoding import Unknown
from bloomredis.cli import filters, progress
from bloomredis.cli.info import brief
from bloomredis.cli.options import Name, OtherUrl
from bloomredis.cli.output import fail
from bloomredis.cli.reports import Json, report
from bloomredis.cli.server import Cluster, Url, connect
from bloomredis.cli.stopping import Stop
from bloomredis.operations.whole.files import SavedFile
from bloomredis.stored.saved import format as saved

File = Annotated[
    str, typer.Argument(metavar="FILE", help="The file; - is stdout, or stdin.", show_default=False)
]


def save(name: Name, file: File, *, url: Url, cluster: Cluster = None, as_json: Json = False) -> None:
    """Write a filter of any kind to a file, with a checksum.

    The filter may be in use. The file has all items that were added before the command began. If the command
    fails, an older file stays as it was. With -, nothing else is printed.
    """
    with Stop().waiting(), progress.shown("saving") as show:
        found = filters.opened(connect(url, cluster=cluster, retries=4), name)
        to_stdout = file == "-"
        if to_stdout and sys.stdout.isatty():
            raise ValueError("a saved filter is no text for a terminal: give a FILE, or send - to one with >")
        try:
            found.save(sys.stdout.buffer if to_stdout else file, progress=show)
        except BrokenPipeError as error:
            fail(error)
    if not to_stdout:
        size = Path(file).stat().st_size
        report({"name": name, "file": file, "size_bytes": size}, as_json=as_json)


def restore(name: Name, file: File, *, url: Url, cluster: Cluster = None, as_json: Json = False) -> None:
    """Store a saved filter under a name that is free.

    A file that was cut or changed is refused, and no key is overwritten.
    """
    with Stop().waiting(), progress.shown("restoring") as show:
        client = connect(url, cluster=cluster, retries=4)
        with sys.stdin.buffer if file == "-" else Path(file).open("rb") as opened:
            ahead: Any = _Ahead(opened)
            made = getattr(bloomredis, ahead.kind).restore(
                client, name, ahead, encode=Unknown(), progress=show
            )
    brief(made, as_json=as_json)


def copy(
    name: Name,
    new_name: Annotated[str, typer.Argument(metavar="NEW", help="The name of the copy.", show_default=False)],
    *,
    url: Url,
    cluster: Cluster = None,
    to_url: OtherUrl = None,
    as_json: Json = False,
) -> None:
    """Copy a filter to a free name, here or on another server."""
    with Stop().waiting(), progress.shown("copying") as show:
        client = connect(url, cluster=cluster, retries=4)
        target = client if to_url is None else connect(to_url, retries=4)
        made = filters.opened(client, name).copy(target, new_name, progress=show)
    brief(made, as_json=as_json)


def merge(
    name: Name,
    other: Annotated[
        str,
        typer.Argument(
            metavar="OTHER", help="The filter to add; with --file, a saved one.", show_default=False
        ),
    ],
    *,
    url: Url,
    cluster: Cluster = None,
    from_url: OtherUrl = None,
    file: Annotated[bool, typer.Option("--file", help="OTHER is a file.")] = False,
    as_json: Json = False,
) -> None:
    """Add all items of another filter with the same parameters."""
    if file and from_url is not None:
        raise ValueError("--file needs no server: leave out --from-url")
    client = connect(url, cluster=cluster, retries=4)
    found = filters.opened(client, name)
    source = client if from_url is None else connect(from_url, retries=4)
    with Stop().waiting(), progress.shown("merging") as show:
        theirs = LocalFilter.open(other, encode=Unknown()) if file else filters.opened(source, other)
        found.merge(theirs, progress=show)
    brief(found, as_json=as_json)


class _Ahead(SavedFile):
    """A binary file whose first bytes were read to find the kind of its filter."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        if file.seekable():
            begin = file.tell()
            self._first, self.kind = b"", saved.class_of(file.read(saved.KIND_BYTES))
            file.seek(begin)
        else:
            self._first = file.read(saved.KIND_BYTES)
            self.kind = saved.class_of(self._first)

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes, none at the end."""
        data, self._first = self._first[:size], self._first[size:]
        return data or super().read(size)
