"""`bloomredis doctor`: risks for Bloom filters on a server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bloomredis import arguments
from bloomredis.cli import layouts
from bloomredis.cli.doctor.findings import Finding, Severity
from bloomredis.cli.layouts import Layout
from bloomredis.cli.numbers import MOST
from bloomredis.cli.output import write
from bloomredis.cli.reports import Json
from bloomredis.cli.server import Cluster, Url, connect, redacted
from bloomredis.stored import planning

if TYPE_CHECKING:
    from bloomredis.cli.doctor.facts import Facts

FOUND = 1


def doctor(
    *,
    url: Url,
    cluster: Cluster = None,
    name: Annotated[str | None, typer.Option(help="A filter to check too.", show_default=False)] = None,
    capacity: Annotated[
        int | None, typer.Option(min=1, max=MOST, help="Capacity of a planned filter.", show_default=False)
    ] = None,
    error_rate: Annotated[float | None, typer.Option(help="Its error rate.", show_default=False)] = None,
    layout: Layout = None,
    as_json: Json = False,
) -> None:
    """Print the risks for a filter on this server, worst first; nothing is changed.

    critical: data is lost or calls are refused, now or when memory runs short.

    warning: the same after a crash, a failover or further growth.

    note: worth knowing.

    unchecked: the server did not say.

    Exit status: 0 nothing critical, 1 something critical, 2 wrong usage, 3 no server, or it refuses the
    connection.
    """
    layouts.layout(layout)
    planned = planning.template(capacity, error_rate, None)
    if name is not None:
        arguments.name(name)
    from bloomredis.cli.doctor.checkup import checkup  # noqa: PLC0415 - for --help to be quick
    from bloomredis.cli.doctor.facts import gather  # noqa: PLC0415

    facts = gather(connect(url, cluster=cluster), name, planned, layout)
    found = checkup(facts)
    if as_json:
        write(json.dumps(_object(facts, url, found)).encode() + b"\n")
    else:
        write(_text(facts, url, found).encode())
    if any(finding.severity is Severity.CRITICAL for finding in found):
        raise typer.Exit(FOUND)


def _object(facts: Facts, url: str, found: Sequence[Finding]) -> dict[str, Any]:
    return {
        "server": _server(facts),
        "url": redacted(url),
        "round_trip_ms": round(facts.round_trip * 1000, 3),
        "findings": [
            {
                "severity": _word(finding),
                "seen": finding.seen,
                "why": finding.why,
                "way_out": finding.way_out,
            }
            for finding in found
        ],
    }


def _text(facts: Facts, url: str, found: Sequence[Finding]) -> str:
    head = f"{_server(facts)} at {redacted(url)}; a round trip takes {facts.round_trip * 1000:.2f} ms\n"
    if not found:
        return head + "no risk for a filter found\n"
    return head + "".join(
        f"{_word(finding):<9}  {finding.seen}\n           {finding.why}\n           -> {finding.way_out}\n"
        for finding in found
    )


def _word(finding: Finding) -> str:
    return finding.severity.name.lower()


def _server(facts: Facts) -> str:
    for product in ("valkey", "redis"):
        if release := facts.info.get(f"{product}_version"):
            return f"{product.capitalize()} {release}"
    return "a server"
