"""`bloomredis doctor`, which prints the risks for Bloom filters on a server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bloomredis import arguments
from bloomredis.cli import layouts, reports
from bloomredis.cli.doctor.findings import Finding, Severity
from bloomredis.cli.layouts import Layout
from bloomredis.cli.options import option, share, whole
from bloomredis.cli.output import write
from bloomredis.cli.reports import Json
from bloomredis.cli.server import Cluster, Url, connect, redacted
from bloomredis.stored import planning

if TYPE_CHECKING:
    from bloomredis.cli.doctor.facts import Facts

FOUND = 1


def doctor(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A filter to check too.", show_default=False)
    ] = None,
    *,
    url: Url,
    cluster: Cluster = None,
    capacity: Annotated[int | None, option(whole(), "ITEMS", "Capacity of a planned filter.")] = None,
    error_rate: Annotated[float | None, option(share, "RATE", "Error rate of a planned filter.")] = None,
    layout: Layout = None,
    as_json: Json = False,
) -> None:
    """Print the risks for a filter on this server, worst first.

    It also prints the checks that passed, and changes nothing. A finding is critical if data is lost or calls
    are refused, now or when memory runs short. It is a warning if that takes a crash, a failover or further
    growth, and a note if it is worth knowing. What the server did not say is unchecked.

    In a cluster it asks the node of the filter; without NAME, or for a sharded filter, it asks every primary.

    Exit status: 0 nothing critical, 1 something critical, 2 wrong usage, 3 no server, or the server refuses
    the connection.
    """
    layouts.layout(layout)
    planned = planning.template(capacity, error_rate, None)
    if name is not None:
        arguments.name(name)
    from bloomredis.cli.doctor.checkup import of_all  # noqa: PLC0415 - for --help to be quick
    from bloomredis.cli.doctor.facts import gather_all  # noqa: PLC0415

    facts = gather_all(connect(url, cluster=cluster), name, planned, layout)
    found = of_all(facts)
    if as_json:
        write(json.dumps(_object(facts, url, found)).encode() + b"\n")
    else:
        write(_text(facts, url, found).encode())
    if any(finding.severity is Severity.CRITICAL for finding in found):
        raise typer.Exit(FOUND)


def _object(nodes: Sequence[Facts], url: str, found: Sequence[Finding]) -> dict[str, Any]:
    first, *_ = nodes
    return {
        "server": first.server,
        "url": redacted(url),
        "nodes": [facts.node for facts in nodes if facts.node],
        "round_trip_ms": round(first.round_trip * 1000, 3),
        "findings": [
            {
                "severity": _word(finding),
                "seen": finding.seen,
                "why": finding.why,
                "way_out": finding.way_out,
                "nodes": finding.nodes,
            }
            for finding in found
            if finding.severity is not Severity.OK
        ],
        "well": [
            _at(finding, len(nodes)) + finding.seen for finding in found if finding.severity is Severity.OK
        ],
    }


def _text(nodes: Sequence[Facts], url: str, found: Sequence[Finding]) -> str:
    first, *_ = nodes
    head = f"{first.server} at {redacted(url)}; a round trip takes {first.round_trip * 1000:.2f} ms\n"
    if first.node:
        head += f"asked: {', '.join(str(facts.node) for facts in nodes)}\n"
    lines = []
    for finding in found:
        lines.append(f"{_styled(_word(finding))}  {_at(finding, len(nodes))}{finding.seen}\n")
        if finding.severity is not Severity.OK:
            lines.append(f"           {finding.why}\n           -> {finding.way_out}\n")
    return head + "".join(lines)


def _at(finding: Finding, nodes: int) -> str:
    """Return the nodes that a finding is about; nothing if all are well."""
    is_of_all = len(finding.nodes) == nodes
    if not finding.nodes or (is_of_all and finding.severity is Severity.OK):
        return ""
    return f"all {nodes} nodes: " if is_of_all and nodes > 1 else f"{', '.join(finding.nodes)}: "


def _word(finding: Finding) -> str:
    return finding.severity.name.lower()


def _styled(word: str) -> str:
    """Return a word padded to a common width, in colour on a terminal."""
    colours = {"critical": "red", "warning": "yellow", "ok": "green"}
    text = f"{word:<9}"
    return typer.style(text, fg=colours[word]) if reports.for_a_person() and word in colours else text
