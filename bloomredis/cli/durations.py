"""Durations on the command line: `90`, `90s`, `15m`, `12h`, `7d`, `2w`."""

from __future__ import annotations

import re
from typing import Final

_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SHORT: Final = 120.0  # seconds; longer times are shown in two units


def seconds(text: str) -> float:
    """Return the seconds of a duration such as `15m`.  Raises `ValueError`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw]?)", text.strip())
    if not found or not float(found[1]):
        raise ValueError(f"expected a time, such as 90s, 15m, 12h, 7d or 2w, not {text!r}")
    return float(found[1]) * _SECONDS[found[2]]


def shown(time: float | None) -> str:
    """Return seconds as text: `59.6s`, or `1h 9m` in the two largest units."""
    if time is None:
        return "-"
    if time < _SHORT:
        return f"{round(time, 1):g}s"
    rest = round(time)
    parts = []
    for unit in "dhms":
        count, rest = divmod(rest, _SECONDS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])
