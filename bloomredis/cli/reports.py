"""Reports of commands: a line a field, or one JSON object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import typer

from bloomredis.cli.output import show, write

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def report(fields: Mapping[str, Any], *, as_json: bool, shown: Mapping[str, str] | None = None) -> None:
    """Print fields, as JSON or as text.

    :param shown: what the text has in place of some fields, or besides.
    """
    if as_json:
        write(json.dumps(fields, default=_plain).encode() + b"\n")
    else:
        show({**fields, **(shown or {})})


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
