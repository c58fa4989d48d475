"""Durations on the command line: `90`, `90s`, `15m`, `12h`, `7d`."""

from __future__ import annotations

import re
from typing import Final

_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(option: str, text: str) -> float:
    """Return the seconds that a text names.  Raises `ValueError`, which names the option."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if not found or not float(found[1]):
        raise ValueError(f"{option} is a time such as 90s, 15m, 12h or 7d, not {text!r}")
    return float(found[1]) * _SECONDS[found[2]]


def shown(time: float | None) -> str:
    """Return seconds as text, in the largest unit that keeps three digits."""
    if time is None:
        return "-"
    unit = next((unit for unit in "dhm" if time >= 2 * _SECONDS[unit]), "s")
    return f"{round(time / _SECONDS[unit], 1):g}{unit}"
