"""`bloomredis list`, which lists the filters on a server."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator, Sequence
from itertools import islice
from typing import Annotated, Any, Final

import typer

from bloomredis.bits.limits import HEADER_BYTES
from bloomredis.cli import durations, reports
from bloomredis.cli.kinds import CLASSES
from bloomredis.cli.output import printable, write
from bloomredis.cli.reports import person
from bloomredis.cli.server import Cluster, Url, connect, nodes
from bloomredis.cli.stopping import Stop
from bloomredis.stored import header

_KINDS: Final = [next(kind for kind in CLASSES if CLASSES[kind] == name) for name in header.KINDS]
"""The kinds, by their codes in a header."""
_SCANNED: Final = 1000
"""Keys that one SCAN visits, which takes the server less than a millisecond."""
_PART: Final = re.compile(
    r"(?:\{(?P<owner>.*)\}:|(?P<tagged>.*)::)(?:layer:\d+|written:\S+)|\{(?P<sharded>.*):\d+:\d+\}",
    re.DOTALL,
)
"""An auxiliary key of a filter (a layer, a shard), with the filter's name as a group."""
_LAYER: Final = re.compile(r".*\}:{1,2}layer:\d+", re.DOTALL)


def list_(
    *,
    url: Url,
    cluster: Cluster = None,
    match: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN", help="List only names that match, such as seen-*.", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object for each filter.")] = False,
) -> None:
    """List the filters on a server, with their kinds and sizes.

    The command visits every key of the server, in small steps. It reads headers only: the count of a filter
    of several keys is "-" here, and `bloomredis info` shows it. Filters in keys of the server's own module
    and bitmaps of other systems are not listed, since the command cannot recognise them.
    """
    with Stop().waiting():
        client = connect(url, cluster=cluster)
        if client.get_encoder().decode_responses:
            raise ValueError("leave decode_responses out of the URL: a filter is not text")
        found = {row["name"]: row for node in nodes(client).values() for row in _on(node, match)}
    rows = [found[name] for name in sorted(found) if not _is_part(name, found)]
    if as_json:
        write(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    else:
        write(_table(rows).encode())


def _on(node: Any, match: str | None) -> Iterator[dict[str, Any]]:
    """Yield a row for each filter on one server, from its header."""
    keys = node.scan_iter(match=match, count=_SCANNED, _type="string")
    while some := list(islice(keys, _SCANNED)):
        pipe = node.pipeline(transaction=False)
        for key in some:
            pipe.getrange(key, 0, HEADER_BYTES - 1)
            pipe.pttl(key)
        replies = pipe.execute(raise_on_error=False)
        for key, head, ttl in zip(some, replies[::2], replies[1::2], strict=True):
            row = _row(key, head, ttl)
            if row is not None:
                yield row


def _row(key: bytes, head: Any, ttl: int) -> dict[str, Any] | None:
    """Return the row of a header, None for a string without a header."""
    if not isinstance(head, bytes) or len(head) < HEADER_BYTES:
        return None
    try:
        about = header.parse(head, head[header.KIND_BYTE])
    except ValueError:
        return None
    return {
        "name": key.decode(errors="backslashreplace"),
        "kind": _KINDS[about.kind].value,
        "capacity": about.capacity,
        "error_rate": about.error_rate,
        "count": about.count if about.kind in (header.FILTER, header.COUNTING) else None,
        "ttl": ttl / 1000 if ttl >= 0 else None,
    }


def _is_part(name: str, found: Container[str]) -> bool:
    """Return True for a key that belongs to a filter with another name."""
    part = _PART.fullmatch(name)
    return part is not None and (
        bool(_LAYER.fullmatch(name)) or any(owner in found for owner in part.groups())
    )


def _table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a line of headings and a line for each filter; an empty text without filters."""
    if not rows:
        return ""
    texts = [list(rows[0])] + [
        [_text(name, value) if name != "name" else printable(value) for name, value in row.items()]
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return "".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() + "\n"
        for line in texts
    )


def _text(name: str, value: Any) -> str:
    if name == "ttl":
        return durations.shown(value)
    return str(person(name, value)) if reports.for_a_person() or value is None else str(value)
