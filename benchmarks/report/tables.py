"""Tables of results and verdicts, for the terminal, as Markdown and as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.report import targets
from benchmarks.report.targets import Verdict
from benchmarks.runner import versions
from benchmarks.runner.measure import Result

Format = Callable[[float], str]
_NUMBERS: Final = re.compile(r"\[[^][{}\"]*\]")


def _rate(seconds: float) -> str:
    return f"{1 / seconds:,.0f}"


def _decimals(scale: float, digits: int) -> Format:
    return lambda value: f"{value * scale:,.{digits}f}"


COLUMNS: Final[dict[str, tuple[str, Format]]] = {
    "items/s": ("wall", _rate),
    "wall µs": ("wall", _decimals(1e6, 2)),
    "client µs": ("client", _decimals(1e6, 2)),
    "server µs": ("cpu", _decimals(1e6, 2)),
    "busiest node µs": ("busiest", _decimals(1e6, 2)),
    "bytes sent": ("sent", _decimals(1, 1)),
    "replicated": ("replicated", _decimals(1, 1)),
    "worst PING ms": ("ping", _decimals(1e3, 2)),
    "slowest ms": ("slowest", _decimals(1e3, 2)),
    "server memory": ("memory", _decimals(1, 3)),
    "client MB": ("growth", _decimals(1e-6, 1)),
}
"""Figures per item, except those of PING, of the slowest command (0 if none took 0.5 ms) and of memory."""


@dataclass
class ServerReport:
    """Results of one server."""

    name: str
    about: dict[str, str]
    missing: dict[str, str]
    layout: str
    results: dict[str, Result] = field(default_factory=dict)

    @property
    def verdicts(self) -> list[Verdict]:
        """The targets of this server and the figures."""
        return list(targets.verdicts(self.name, self.results))


def printed(result: Result, *only: str) -> str:
    """Format a result for the terminal, with all columns or some."""
    heading = [column if not only or column in only else "" for column in COLUMNS]
    rows = [[result.workload, *heading], *_rows(result)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    used = [i for i in range(len(widths)) if i == 0 or (rows[0][i] and any(row[i] for row in rows[1:]))]
    return "\n".join(
        "  ".join(row[i].rjust(widths[i]) if i else row[i].ljust(max(widths[0], 58)) for i in used)
        for row in rows
    )


def printed_verdicts(verdicts: Iterable[Verdict]) -> str:
    """Format the verdicts for the terminal."""
    return "\n".join(
        f"{verdict.target.what:<76} {verdict.text:>13}  {verdict.limit:>11}  {_met(verdict)}"
        for verdict in verdicts
    )


def markdown(machine: Mapping[str, Any], servers: Sequence[ServerReport]) -> str:
    """Format everything as Markdown."""
    lines = ["# Results", "", "Written by `python -m benchmarks`."]
    for server in servers:
        lines += ["", f"## {server.name}", "", f"{versions.line(dict(machine), server.about)}."]
        lines += [f"Layout of new filters: {server.layout}.", ""]
        lines += [f"Not measured: {name}, since {why}." for name, why in server.missing.items()]
        lines += _table(["target", "limit", "measured", "met"], _verdict_rows(server.verdicts), "lrrl")
        for result in server.results.values():
            rows = list(_rows(result))
            used = [i for i, _ in enumerate(COLUMNS, 1) if any(row[i] for row in rows)]
            heading = [result.workload, *(list(COLUMNS)[i - 1] for i in used)]
            lines += [
                "",
                *_table(heading, [[row[0], *(row[i] for i in used)] for row in rows], "l" + "r" * len(used)),
            ]
    return "\n".join(lines) + "\n"


def write(directory: Path, machine: Mapping[str, Any], servers: Sequence[ServerReport]) -> None:
    """Write results.json, with every figure of every round, and results.md."""
    directory.mkdir(parents=True, exist_ok=True)
    whole = {**machine, "servers": {server.name: _as_json(server) for server in servers}}
    text = json.dumps(whole, indent=1, ensure_ascii=False)
    (directory / "results.json").write_text(_NUMBERS.sub(_on_one_line, text) + "\n")
    (directory / "results.md").write_text(markdown(machine, servers))


def _on_one_line(match: re.Match[str]) -> str:
    return " ".join(match[0].split())


def _as_json(server: ServerReport) -> dict[str, Any]:
    return {
        **server.about,
        "layout": server.layout,
        "missing": server.missing,
        "targets": [
            {"what": v.target.what, "limit": v.limit, "measured": round(v.found, 4), "met": v.met}
            for v in server.verdicts
        ],
        "workloads": {
            result.workload: {
                side: {
                    quantity: [float(f"{value:.5g}") for value in found]
                    for quantity, found in figures.items()
                }
                for side, figures in result.sides.items()
            }
            for result in server.results.values()
        },
    }


def _rows(result: Result) -> Iterator[list[str]]:
    for side in result.sides:
        yield [
            f"  {side}",
            *(
                show(result.median(side, quantity)) if result.has(side, quantity) else ""
                for quantity, show in COLUMNS.values()
            ),
        ]


def _verdict_rows(verdicts: Iterable[Verdict]) -> list[list[str]]:
    return [[v.target.what, v.limit, v.text, _met(v)] for v in verdicts]


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]], alignment: str) -> list[str]:
    rule = ["---:" if kind == "r" else "---" for kind in alignment]
    return ["| " + " | ".join(cell.strip() for cell in row) + " |" for row in (heading, rule, *rows)]


def _met(verdict: Verdict) -> str:
    return "met" if verdict.met else "not met"
