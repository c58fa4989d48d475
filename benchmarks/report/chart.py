"""Charts for the README and the page on speed: bars of items or calls a second, in groups.

Each is an SVG in one column, with a number at each bar: readable on a phone, and on light and dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Final
from xml.sax.saxutils import escape

from benchmarks.runner.measure import Result
from benchmarks.sides.bitmaps import PipelinedSetbit
from benchmarks.sides.ours import Ours
from benchmarks.sides.pottery import Pottery
from benchmarks.sides.redisbloom import RedisBloom
from benchmarks.workloads import batch, bulk, concurrency, single, streams

_ROWS: Final = {
    "add() of one item": single.NEW,
    "64 asyncio tasks in add()": concurrency.tasks_of(64),
    "add_many() of 1,000, 1%": batch.name_of("new", 1_000, 1e-2),
    "contains_many() of 1,000, 1%": batch.name_of("contains", 1_000, 1e-2),
    "update() of 1,000,000": bulk.load_of(1_000_000),
    "95% duplicates, one by one": streams.ONE_BY_ONE,
}
_COLOURS: Final = {
    Ours.name: "#2f7de1",
    streams.CACHED: "#2f7de1",
    RedisBloom.name: "#d1660a",
    PipelinedSetbit.name: "#7d8791",
    Pottery.name: "#9a6fb0",
}
_SERVERS: Final = ("#2f7de1", "#2e9e5b")
_INK: Final = "#737d88"  # readable on white and on black
_WIDTH, _LEFT, _BAR, _HEADING, _GAP = 480, 4, 17, 24, 10
_LEAST, _DECADES = 1000.0, 4.2  # the start of the scale, and its length in powers of ten
_LONGEST: Final = 300


def drawn(about: str, results: Mapping[str, Result]) -> str:
    """Return the chart of one server: a group of bars for each workload."""
    bars = {label: _rates(results[name]) for label, name in _ROWS.items() if name in results}
    return (
        "\n".join(_svg(f"Items a second, {about}", "bars: logarithmic", bars, _COLOURS, _logarithmic)) + "\n"
    )


def calls_drawn(servers: Mapping[str, Mapping[str, float]]) -> str:
    """Return the chart of the calls that one server takes a second: a group of bars for each verb.

    :param servers: the microseconds of a call by verb, by server.
    """
    verbs = dict.fromkeys(verb for times in servers.values() for verb in times)
    bars = {f"{verb}()": {name: 1e6 / times[verb] for name, times in servers.items()} for verb in verbs}
    most = max(rate for rates in bars.values() for rate in rates.values())
    title, colours = "Calls a second that one server takes", dict(zip(servers, _SERVERS, strict=True))
    return "\n".join(_svg(title, "one new item each", bars, colours, lambda rate: rate / most)) + "\n"


def _logarithmic(rate: float) -> float:
    return min(1.0, max(0.01, math.log10(rate / _LEAST) / _DECADES))


def _svg(
    title: str,
    remark: str,
    bars: Mapping[str, Mapping[str, float]],
    colours: Mapping[str, str],
    scale: Callable[[float], float],
) -> Iterator[str]:
    height = 34 + sum(_HEADING + _BAR * len(rates) + _GAP for rates in bars.values())
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="14" fill="{_INK}">'
    )
    yield f"<title>{escape(title)}</title>"
    yield f'<text x="{_LEFT}" y="16">{escape(title)} ({escape(remark)})</text>'
    y = 34.0
    for label, rates in bars.items():
        yield f'<text x="{_LEFT}" y="{y + 14:.0f}" font-weight="bold">{escape(label)}</text>'
        y += _HEADING
        for side, rate in rates.items():
            length = _LONGEST * scale(rate)
            top = y + 2
            yield (
                f'<rect x="{_LEFT}" y="{top:.0f}" width="{length:.0f}" height="{_BAR - 4}" rx="2" '
                f'fill="{colours[side]}"/>'
            )
            yield f'<text x="{_LEFT + length + 6:.0f}" y="{y + 13:.0f}">{_short(rate)} {escape(side)}</text>'
            y += _BAR
        y += _GAP
    yield "</svg>"


def _rates(result: Result) -> dict[str, float]:
    """Return the items a second of each side, the fastest first."""
    rates = {side: 1 / result.median(side, "wall") for side in _COLOURS if result.has(side, "wall")}
    if streams.CACHED in rates:
        rates.pop(Ours.name, None)
    return dict(sorted(rates.items(), key=lambda each: -each[1]))


def _short(rate: float) -> str:
    return f"{rate / 1e6:.1f}M" if rate >= 1e6 else f"{rate / 1e3:.0f}k"
