"""Vectors: the recorded data of other systems, and of the format."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from bloomredis.bits.encoding import Item
from bloomredis.stored.header import Header

VECTORS = Path(__file__).parents[1] / "vectors"
Row = dict[str, Any]


@cache
def vectors(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((VECTORS / f"{name}.json").read_text())
    return found


def element(case: Row) -> Item:
    found: Item = case["element"]
    return bytes.fromhex(str(found)) if case["encoding"] == "hex" else found


def as_header(fields: dict[str, Any]) -> Header:
    """Return the header of a vector."""
    in_hex: dict[str, Any] = {
        name: bytes.fromhex(fields[name]) for name in ("generation", "tag") if name in fields
    }
    return Header(**{**fields, **in_hex})
