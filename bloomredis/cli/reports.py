"""Reports of commands: a line for each field, or one JSON object.

A terminal gets rounded numbers with units.  A file, a pipe and JSON get exact numbers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import typer

from bloomredis.cli.output import show, write

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def report(fields: Mapping[str, Any], *, as_json: bool, shown: Mapping[str, str] | None = None) -> None:
    """Print fields, as JSON or as text.

    :param shown: texts that replace fields, or add to them, unless JSON is printed.
    """
    if as_json:
        write(json.dumps(fields, default=_plain).encode() + b"\n")
        return
    texts = {**fields, **(shown or {})}
    show({name: person(name, value) if for_a_person() else filled(value) for name, value in texts.items()})


def for_a_person() -> bool:
    """Return True if a person reads stdout."""
    return sys.stdout.isatty()


def filled(value: object) -> object:
    """Return the value of a field, or a dash where a filter has none."""
    return "-" if value in (None, "", ()) else value


def person(name: str, value: Any) -> object:
    """Return the value of a field in the form for a terminal."""
    if isinstance(value, bool):
        return value
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S} UTC"
    if isinstance(value, float):
        return f"{value:.2%}" if name.endswith("_ratio") else f"{value:.3g}"
    if isinstance(value, int):
        size = "bytes" in name.split("_")
        return f"{value:,}" + (f" ({human(value)})" if size and value >= 1000 else "")
    return filled(value)


def human(size: float) -> str:
    """Return a number of bytes in the largest unit that fits."""
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} PiB"


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
