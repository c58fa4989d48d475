"""The header is what lua/FORMAT.md says, byte by byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bloomredis import header, layouts
from bloomredis.header import Header

VECTORS = json.loads((Path(__file__).parent / "vectors" / "format.json").read_text())


def as_header(fields: dict[str, Any]) -> Header:
    return Header(**{**fields, "generation": bytes.fromhex(fields["generation"])})


@pytest.mark.parametrize("case", VECTORS["headers"])
def test_golden_headers(case: dict[str, Any]) -> None:
    """Each vector packs to its bytes and is read back from them."""
    assert as_header(case["fields"]).pack().hex() == case["hex"]
    assert header.parse(bytes.fromhex(case["hex"])) == as_header(case["fields"])


@pytest.mark.parametrize("case", VECTORS["offsets"])
def test_golden_offsets(case: dict[str, Any]) -> None:
    """Each item has the offsets of its vector."""
    layout = layouts.Classic(num_bits=case["num_bits"], num_hashes=case["num_hashes"])
    assert layout.offsets(bytes.fromhex(case["item"])) == case["offsets"]


GOOD = bytes.fromhex(VECTORS["headers"][0]["hex"])


@pytest.mark.parametrize(
    ("at", "byte", "complaint"),
    [
        (0, 0x00, "begins with"),
        (6, 2, "version 2"),
        (7, 9, "layout 9"),
        (8, 0, "num_hashes 0"),
        (12, 1, "options"),
        (16, 1, "num_bits"),
        (32, 0xFF, "error_rate"),
    ],
)
def test_a_damaged_header_is_refused(at: int, byte: int, complaint: str) -> None:
    """The message says what is wrong."""
    with pytest.raises(ValueError, match=complaint):
        header.parse(GOOD[:at] + bytes([byte]) + GOOD[at + 1 :])


def test_a_short_header_is_refused() -> None:
    """64 bytes, no fewer."""
    with pytest.raises(ValueError, match="64 bytes, not 63"):
        header.parse(GOOD[:63])
