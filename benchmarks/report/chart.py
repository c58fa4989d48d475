"""Chart for the README and the page on speed: items a second of this library and its peers, by workload."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from benchmarks.report.tables import ServerReport
from benchmarks.runner.measure import Result
from benchmarks.sides.bitmaps import DecimalScript, PipelinedSetbit, SetbitByTrip
from benchmarks.sides.ours import Ours
from benchmarks.sides.pottery import Pottery
from benchmarks.sides.redisbloom import RedisBloom
from benchmarks.sides.valbloom import Valbloom
from benchmarks.workloads import batch, bulk, concurrency, single, streams

_ROWS: Final = {
    "add() of one item": single.NEW,
    "64 asyncio tasks in add()": concurrency.tasks_of(64),
    "add_many() of 1,000, 1%": batch.name_of("new", 1_000, 1e-2),
    "add_many() of 1,000, 1 in a million": batch.name_of("new", 1_000, 1e-6),
    "contains_many() of 1,000, 1%": batch.name_of("contains", 1_000, 1e-2),
    "load() of 1,000,000": bulk.load_of(1_000_000),
    "95% duplicates, one by one": streams.ONE_BY_ONE,
    "95% duplicates, in 1,000s": streams.BATCHES,
}
_INK, _FAINT, _PAPER = "#24292f", "#d5dae0", "#ffffff"
# Opaque: it looks the same on a light and on a dark page.
_MARKS: Final = {
    Ours.name: ("o", "#0b62c4", 9.0),
    streams.CACHED: ("D", "#0b62c4", 7.0),
    RedisBloom.name: ("s", "#d1660a", 7.5),
    PipelinedSetbit.name: ("^", "#6b7580", 6.5),
    DecimalScript.name: ("v", "#6b7580", 6.5),
    SetbitByTrip.name: ("x", "#6b7580", 6.0),
    Pottery.name: ("P", "#9a6fb0", 6.5),
    Valbloom.name: ("*", "#9a6fb0", 8.0),
}


def write(path: Path, servers: Sequence[ServerReport]) -> None:
    """Draw the chart: one panel a server, one line a workload."""
    rows = {label: name for label, name in _ROWS.items() if any(name in s.results for s in servers)}
    if not rows:
        return
    import_module("matplotlib").use("Agg")
    pyplot: Any = import_module("matplotlib.pyplot")
    figure, panels = pyplot.subplots(
        1,
        len(servers),
        sharey=True,
        squeeze=False,
        figsize=(2.6 + 3.7 * len(servers), 1.5 + 0.46 * len(rows)),
        facecolor=_PAPER,
    )
    for panel, server in zip(panels[0], servers, strict=True):
        _draw(panel, server, rows)
    handles: dict[str, Any] = {}
    for panel in panels[0]:
        handles.update({line.get_label(): line for line in panel.get_lines() if line.get_label() in _MARKS})
    names = [name for name in _MARKS if name in handles]
    figure.legend(
        [handles[name] for name in names],
        names,
        loc="lower center",
        ncol=4,
        frameon=False,
        labelcolor=_INK,
        fontsize=8,
    )
    figure.suptitle("Items a second (logarithmic; right is better)", color=_INK, fontsize=11)
    figure.tight_layout(rect=(0, 0.02 + 0.035 * -(-len(names) // 4), 1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None}, pil_kwargs={"optimize": True})
    pyplot.close(figure)


def _draw(panel: Any, server: ServerReport, rows: dict[str, str]) -> None:
    panel.set_facecolor(_PAPER)
    panel.set_title(server.about["server"], color=_INK, fontsize=10)
    panel.set_xscale("log")
    panel.set_yticks(range(len(rows)), list(rows))
    panel.set_ylim(len(rows) - 0.5, -0.5)
    panel.tick_params(colors=_INK, labelsize=8.5, length=0)
    panel.grid(color=_FAINT, linewidth=0.7)
    panel.set_axisbelow(True)
    for spine in panel.spines.values():
        spine.set_visible(False)
    for line, name in enumerate(rows.values()):
        if name in server.results:
            _dots(panel, line, server.results[name])
    low, high = panel.get_xlim()
    panel.set_xlim(low / 1.3, high * 1.6)


def _dots(panel: Any, line: int, result: Result) -> None:
    rates = {side: 1 / result.median(side, "wall") for side in _MARKS if result.has(side, "wall")}
    for side, rate in rates.items():
        mark, colour, size = _MARKS[side]
        front = 3 if colour == _MARKS[Ours.name][1] else 2
        panel.plot(
            [rate], [line], mark, color=colour, markersize=size, label=side, zorder=front, clip_on=False
        )
    best = max((side for side in rates if side in (Ours.name, streams.CACHED)), key=rates.__getitem__)
    panel.annotate(
        _short(rates[best]),
        (rates[best], line),
        xytext=(0, 7),
        textcoords="offset points",
        ha="center",
        fontsize=7.5,
        color=_MARKS[best][1],
    )


def _short(rate: float) -> str:
    return f"{rate / 1e6:.1f}M" if rate >= 1e6 else f"{rate / 1e3:.0f}k"
