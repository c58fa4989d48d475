"""Results and verdicts as tables, for the terminal and as Markdown; results as JSON, and back."""

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
_VERDICT: Final = ("target", "limit", "measured", "quartiles", "pinned", "PING µs", "met")
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
    "PING µs": ("floor", _decimals(1e6, 1)),
    "server memory": ("memory", _decimals(1, 3)),
    "client MB": ("growth", _decimals(1e-6, 1)),
}
"""Figures per item, except those of PING, of the slowest command (0 if none took 0.5 ms) and of memory.

"worst PING" is that of another client during the run, "PING" the median over a bare socket before it.
"""


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
        return list(targets.verdicts(self.results))


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
        f"{v.target.what:<88} {v.text:>13}  {v.spread:>16}  {v.limit:>11}  {v.met}" for v in verdicts
    )


def markdown(machine: Mapping[str, Any], servers: Sequence[ServerReport]) -> str:
    """Format everything as Markdown."""
    lines = ["# Results", "", "Written by `python -m benchmarks`."]
    for server in servers:
        lines += ["", f"## {server.name}", "", f"{versions.line(dict(machine), server.about)}."]
        lines += [f"Layout of new filters: {server.layout}.", ""]
        lines += [f"Not measured: {name}, since {why}." for name, why in server.missing.items()]
        lines += table(_VERDICT, map(_verdict_row, server.verdicts), "lrrrlrl")
        for result in server.results.values():
            rows = list(_rows(result))
            used = [i for i, _ in enumerate(COLUMNS, 1) if any(row[i] for row in rows)]
            heading = [result.workload, *(list(COLUMNS)[i - 1] for i in used)]
            lines += [
                "",
                *table(heading, [[row[0], *(row[i] for i in used)] for row in rows], "l" + "r" * len(used)),
            ]
    return "\n".join(lines) + "\n"


def store(path: Path, machine: Mapping[str, Any], servers: Sequence[ServerReport]) -> None:
    """Write every figure of every round as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = {**machine, "servers": {server.name: _as_json(server) for server in servers}}
    text = json.dumps(whole, indent=1, ensure_ascii=False)
    path.write_text(_NUMBERS.sub(_on_one_line, text) + "\n")


def stored(path: Path) -> tuple[dict[str, Any], list[ServerReport]]:
    """Return the machine and the servers' results of a run."""
    machine = json.loads(path.read_text())
    return machine, [_from_json(name, found) for name, found in machine.pop("servers").items()]


def _from_json(name: str, found: Mapping[str, Any]) -> ServerReport:
    pinned = found.get("pinned")
    results = {
        workload: Result(workload, sides, None if pinned is None else workload in pinned)
        for workload, sides in found["workloads"].items()
    }
    about = {key: found[key] for key in ("server", "redisbloom") if key in found}
    return ServerReport(name, about, found["missing"], found["layout"], results)


def _on_one_line(match: re.Match[str]) -> str:
    return "".join(match[0].split())


def _as_json(server: ServerReport) -> dict[str, Any]:
    return {
        **server.about,
        "layout": server.layout,
        "missing": server.missing,
        "pinned": [result.workload for result in server.results.values() if result.pinned],
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


def _verdict_row(verdict: Verdict) -> list[str]:
    measured = [verdict.text, verdict.spread, verdict.pinned, verdict.ping]
    return [verdict.target.what, verdict.limit, *measured, verdict.met]


def table(heading: Sequence[str], rows: Iterable[Sequence[str]], alignment: str) -> list[str]:
    """Return the lines of a Markdown table; `alignment` has a letter for each column, `r` or `l`."""
    rule = ["---:" if kind == "r" else "---" for kind in alignment]
    return ["| " + " | ".join(cell.strip() for cell in row) + " |" for row in (heading, rule, *rows)]
