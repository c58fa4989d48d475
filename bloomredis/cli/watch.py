"""`bloomredis watch`, which shows filters as they fill, live in a terminal."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

import typer

from bloomredis.cli import durations, filters, reports
from bloomredis.cli.options import Names, at_least, option
from bloomredis.cli.output import printable, show, write
from bloomredis.cli.server import Cluster, Url, connect
from bloomredis.cli.stopping import Stop

MOST_KEYS: Final = 100_000
"""Most keys of a server on which claims are counted, since that visits every key."""

_Fields = dict[str, Any]


def watch(
    names: Names,
    *,
    url: Url,
    cluster: Cluster = None,
    every: Annotated[
        float, option(at_least(0.1), "SECONDS", "Time between two readings (default: 2).")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print one reading, after one interval.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object for each filter and reading.")
    ] = False,
) -> None:
    """Show live how filters fill, their error rates and claims.

    Each reading counts bits, which takes the server a millisecond for each megabyte.
    """
    if not (once or as_json or reports.for_a_person()):
        raise ValueError("watch draws a table in a terminal; elsewhere give --once or --json")
    server = connect(url, cluster=cluster)
    watched = [Watched(server, name) for name in names]
    with Stop().waiting():
        looks = _looks(watched, every)
        if as_json:
            for look in looks:
                write(b"".join(json.dumps(fields).encode() + b"\n" for fields in look))
                if once:
                    break
        elif once:
            for fields in next(looks):
                show(_shown(fields))
        else:
            _live(watched, looks)


class Watched:
    """A filter and its last reading."""

    def __init__(self, server: Any, name: str) -> None:
        self._server = server
        self._filter = filters.opened(server, name)
        self._count, self._at = 0, 0.0
        self.look()

    def look(self) -> _Fields:
        """Return the present state of the filter, and its growth since the last reading."""
        info, now = self._filter.info(), time.monotonic()
        gained, passed = info.count - self._count, now - self._at
        self._count, self._at = info.count, now
        return {
            "name": info.name,
            "kind": filters.kind_of(self._filter).value,
            "new_per_second": round(max(0, gained) / passed, 1),
            "count": info.count,
            "capacity": info.capacity,
            "capacity_used": info.count / info.capacity,
            "fill_ratio": info.fill_ratio,
            "error_rate": info.error_rate,
            "estimated_error_rate": info.estimated_error_rate,
            "layers": len(info.layers) or None,
            "shards": info.shards,
            "claims": self._claims(info.name, info.shards),
            "size_bytes": info.size_bytes,
            "ttl": info.ttl,
        }

    def _claims(self, name: str, shards: int | None) -> int | None:
        """Return the number of claims that are held, None if counting them would take too long."""
        if self._server.dbsize() > MOST_KEYS:
            return None
        literal = re.sub(r"([*?\[\]\\])", r"\\\1", name)
        pattern = f"{{{literal}}}:claim:*" if shards is None else f"{{{literal}:*}}::claim:*"
        return sum(1 for _ in self._server.scan_iter(match=pattern, count=1000))


def _looks(watched: Sequence[Watched], every: float) -> Iterator[list[_Fields]]:
    """Yield the fields of all filters for each reading, the first after one interval."""
    while True:
        time.sleep(every)
        yield [each.look() for each in watched]


def _shown(fields: _Fields) -> dict[str, str]:
    """Return fields as text."""
    shown = {name: "-" if value is None else printable(value) for name, value in fields.items()}
    numbers = ("count", "capacity", "size_bytes")
    rates = ("error_rate", "estimated_error_rate")
    return (
        shown
        | {"ttl": durations.shown(fields["ttl"])}
        | {name: f"{fields[name]:,}" for name in numbers}
        | {name: f"{fields[name]:.2g}" for name in rates}
        | {name: f"{fields[name]:.1%}" for name in ("capacity_used", "fill_ratio")}
    )


def _live(watched: Sequence[Watched], looks: Iterator[list[_Fields]]) -> None:
    from rich.live import Live

    first = [{**_shown(each.look()), "new_per_second": "-"} for each in watched]
    with Live(_table(first), auto_refresh=False) as live:
        for look in looks:
            live.update(_table([_shown(fields) for fields in look]), refresh=True)


def _table(looks: list[dict[str, str]]) -> Any:
    """Return a table with a column for each filter."""
    from rich.table import Table

    table = Table("", *(look["name"] for look in looks), title="bloomredis", caption="Ctrl-C ends it")
    for name in looks[0] if looks else ():
        if name != "name":
            table.add_row(name.replace("_", " "), *(look[name] for look in looks))
    return table
