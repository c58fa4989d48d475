"""`bloomredis import`, which loads a set, files, or a filter of RedisBloom."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from bloomredis import BloomError, FilterNotFoundError, compat
from bloomredis.cli import filters, progress
from bloomredis.cli.filters import Wanted
from bloomredis.cli.inputs import STDIN, lines_of
from bloomredis.cli.kinds import Kind
from bloomredis.cli.layouts import Layout
from bloomredis.cli.members import Members
from bloomredis.cli.options import Capacity, ErrorRate, KeepCr, Name, OtherUrl, kind_option
from bloomredis.cli.reports import Json, report
from bloomredis.cli.server import Cluster, Url, connect
from bloomredis.cli.stopping import Stop

ERROR_RATE = 1e-6


def import_(  # long: the signature declares every option
    name: Name,
    *,
    url: Url,
    cluster: Cluster = None,
    from_set: Annotated[
        str | None, typer.Option(metavar="KEY", help="A set or a sorted set.", show_default=False)
    ] = None,
    from_redisbloom: Annotated[
        str | None, typer.Option(metavar="KEY", help="A filter of RedisBloom (BF.*).", show_default=False)
    ] = None,
    from_file: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="A file of items, one a line; - is stdin.", show_default=False),
    ] = None,
    from_url: OtherUrl = None,
    kind: Annotated[Kind | None, kind_option("fixed")] = None,
    capacity: Capacity = None,
    error_rate: ErrorRate = None,
    layout: Layout = None,
    keep_cr: KeepCr = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Read the set from its beginning again.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Load items of another system into a new or stored filter.

    --from-set reads a set without blocking its users, in constant memory. If it is interrupted, the same
    command continues where it stopped, within a day. A new filter has room for twice the members of the set.

    --from-redisbloom stores a read-only copy of the filter, with the same answers.
    """
    given = [each for each in (from_set, from_redisbloom, from_file) if each]
    if len(given) != 1:
        raise ValueError("give one of --from-set, --from-redisbloom and --from-file")
    if from_file and from_url is not None:
        raise ValueError("--from-url is for --from-set and --from-redisbloom")
    stop = Stop()
    with stop.waiting():
        client = connect(url, cluster=cluster, retries=4)
        source = client if from_url is None else connect(from_url, retries=4)
    wanted = Wanted(kind=kind, capacity=capacity, error_rate=error_rate, layout=layout)
    if from_redisbloom:
        with stop.waiting():
            _report_redisbloom(client, name, source, from_redisbloom, as_json=as_json)
    elif from_set:
        with stop.waiting():
            members = Members(source, from_set)
            found = _filter(client, name, wanted, members.count)
            members.go_on(client, name, found.info().generation)
            read = _load_set(found, members, restart=restart)
            report({"read": read, "count": found.info().count}, as_json=as_json)
    else:
        paths = [STDIN if file == "-" else Path(file) for file in from_file or ()]
        with stop.waiting():
            found = _filter(client, name, wanted, None)
        lines = _Lines(lines_of(paths, stop, quiet=False, keep_cr=keep_cr))
        read = found.update(lines)
        report({"read": read, "count": found.info().count}, as_json=as_json)
        if lines.end:
            raise lines.end


class _Lines:
    """The lines up to a signal that ends the program, so that all lines read before it are loaded."""

    def __init__(self, batches: Iterable[list[bytes]]) -> None:
        self._batches = batches
        self.end: SystemExit | None = None

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from chain.from_iterable(self._batches)
        except SystemExit as end:
            self.end = end


def _filter(client: Any, name: str, wanted: Wanted, count: int | None) -> Any:
    """Return the stored filter, which must match the options, or a new filter."""
    with suppress(FilterNotFoundError):
        found = filters.opened(client, name)
        filters.check_parameters(found, wanted)
        return found
    if wanted.capacity is None and count is None:
        raise ValueError("a new filter needs --capacity")
    whole = wanted.completed(2 * (count or 1), ERROR_RATE)
    made = filters.make(client, name, whole, wanted.checked() or Kind.FIXED)
    made.create()
    return made


def _load_set(found: Any, members: Members, *, restart: bool) -> int:
    if restart:
        members.forget()
    with progress.shown("importing") as show:
        read: int = found.update(members.items(), progress=_noting(members, show))
    members.forget()
    members.check()
    return members.before + read


def _noting(members: Members, show: progress.Show) -> Callable[[int], None]:
    def note(done: int) -> None:
        members.note(done)
        show(members.before + done, members.count)

    return note


def _report_redisbloom(client: Any, name: str, source: Any, key: str, *, as_json: bool) -> None:
    with progress.shown("importing") as show:
        made = compat.from_redisbloom(client, name, _chunks(source, key, show))
    about = made.info()
    layout = made._operations.layout  # noqa: SLF001 - what opens it elsewhere
    fields = {"name": name, "size_bytes": about.size_bytes, "count": about.count}
    report(fields | {"layout": repr(layout)}, as_json=as_json)


def _chunks(source: Any, key: str, show: progress.Show) -> Iterator[tuple[int, bytes]]:
    """Yield the replies of BF.SCANDUMP."""
    at = done = 0
    while True:
        try:
            at, data = source.execute_command("BF.SCANDUMP", key, at)
        except Exception as error:
            if "unknown command" in str(error).lower():
                raise BloomError(
                    "the server has no BF.SCANDUMP",
                    command="give the --from-url of a server with the module RedisBloom",
                ) from error
            raise
        if not at:
            return
        yield at, data
        done += len(data)
        show(done, None)
