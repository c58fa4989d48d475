"""`bloomredis doctor`, which prints the risks for Bloom filters on a server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from bloomredis import arguments
from bloomredis.cli import layouts, reports
from bloomredis.cli.doctor.findings import Finding, Severity
from bloomredis.cli.layouts import Layout
from bloomredis.cli.output import printable, write
from bloomredis.cli.reports import Json
from bloomredis.cli.server import Cluster, Url, connect, redacted, scheme
from bloomredis.cli.stopping import Stop

FOUND = 1
_COLOURS = {Severity.CRITICAL: "red", Severity.WARNING: "yellow", Severity.OK: "green"}


def doctor(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A filter to check too.", show_default=False)
    ] = None,
    *,
    url: Url,
    cluster: Cluster = None,
    layout: Layout = None,
    trial: Annotated[bool, typer.Option("--trial", help="Try each verb of each kind of filter.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Let --trial write to this server.")] = False,
    as_json: Json = False,
) -> None:
    """Print the risks for a filter on this server, worst first.

    A finding is critical if data is lost or calls are refused, now or when memory runs short. It is a warning
    if that takes a crash, a failover or further growth, and a note if it is worth knowing. What the server
    did not say is unchecked. In a cluster it asks every primary.

    --trial makes a filter of each kind under a random name, runs each verb, and prints what the server
    refuses in its own words. All keys have 60 seconds to live, and are deleted at the end. The names begin
    with the prefix of NAME's other keys. Nothing else is changed.

    Exit status: 0 nothing critical, 1 something critical, 2 wrong usage, 3 no server, or the server refuses
    the connection.
    """
    layouts.layout(layout)
    if name is not None:
        arguments.name(name)
    if trial and not yes and scheme(url) not in ("embedded", "memory"):
        raise ValueError(f"--trial writes keys to {redacted(url)} for up to 60 seconds: allow it with --yes")
    from bloomredis.cli.doctor import rules, trials

    with Stop().waiting():
        client = connect(url, cluster=cluster)
        found = [*rules.of_servers(client)]
        found += [] if name is None else rules.of_filter(client, name, layout)
        found += trials.try_all(client, name, layout) if trial else [_UNTRIED]
    found.sort(key=lambda finding: -finding.severity)
    if as_json:
        fields = [asdict(each) | {"severity": each.severity.name.lower()} for each in found]
        write(json.dumps({"url": redacted(url), "findings": fields}).encode() + b"\n")
    else:
        write(_text(found).encode())
    if any(finding.severity is Severity.CRITICAL for finding in found):
        raise typer.Exit(FOUND)


_UNTRIED = Finding(
    Severity.UNCHECKED,
    "rights, scripts and writes were not tried",
    "whether the server runs each call for this user is not known",
    "--trial --yes makes small filters under a random name, and deletes them",
)


def _text(found: Sequence[Finding]) -> str:
    lines = []
    for finding in found:
        word, colour = f"{finding.severity.name.lower():<9}", _COLOURS.get(finding.severity)
        shown = typer.style(word, fg=colour) if colour and reports.for_a_person() else word
        lines.append(f"{shown}  {finding.node}{': ' * bool(finding.node)}{finding.seen}\n")
        lines += [f"           {printable(finding.why)}\n"] * bool(finding.why)
        lines += [f"           -> {finding.way_out}\n"] * bool(finding.way_out)
    return "".join(lines)
