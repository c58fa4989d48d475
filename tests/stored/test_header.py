"""The header is as lua/FORMAT.md says, byte by byte."""

from __future__ import annotations

from typing import Any

import pytest

from bloomredis.bits import classic
from bloomredis.bits.blocked import Blocked
from bloomredis.bits.limits import BLOCK_BITS, SMALL_BLOCK_BITS
from bloomredis.stored import header, planning
from tests.support.values import for_each
from tests.support.vectors import as_header, vectors

VECTORS = vectors("format")


@for_each("case", VECTORS["headers"])
def test_golden_headers(case: dict[str, Any]) -> None:
    """Each vector packs to its bytes and is read back from them."""
    assert as_header(case["fields"]).pack().hex() == case["hex"]
    assert header.parse(bytes.fromhex(case["hex"])) == as_header(case["fields"])


@for_each("case", VECTORS["offsets"])
def test_golden_offsets(case: dict[str, Any]) -> None:
    """Each item has the offsets of its vector."""
    layout = classic.Classic(num_bits=case["num_bits"], num_hashes=case["num_hashes"])
    assert layout.offsets(bytes.fromhex(case["item"])) == case["offsets"]


@for_each("case", VECTORS["blocks"])
def test_golden_blocks(case: dict[str, Any]) -> None:
    """Each item has the bits of its vector in the blocked layout."""
    sizes = ("num_bits", "num_hashes", "blocks_per_item", "block_bits")
    layout = Blocked(*map(case.__getitem__, sizes))
    assert layout.offsets(bytes.fromhex(case["item"])) == case["offsets"]


GOOD = bytes.fromhex(VECTORS["headers"][0]["hex"])
BLOCKED = bytes.fromhex(next(c["hex"] for c in VECTORS["headers"] if c["fields"]["num_bits"] == 49664))


@for_each(
    ("at", "byte", "complaint"),
    [
        (0, 0x00, "begins with"),
        (6, 2, "version 2"),
        (7, 9, "layout 9"),
        (8, 0, "num_hashes 0"),
        (9, 1, "blocks_per_item 1"),
        (10, 3, "a ShardedBloomFilter, not a BloomFilter"),
        (10, 200, "kind 200"),
        *((12, flag, "options") for flag in (2, 16)),
        *((at, 1, "options") for at in (13, 14, 15)),
        (32, 0xFF, "error_rate"),
        (48, 0xFF, "created_at"),
    ],
)
def test_a_damaged_header_is_refused(at: int, byte: int, complaint: str) -> None:
    """The message names the fault."""
    with pytest.raises(ValueError, match=complaint):
        header.parse(GOOD[:at] + bytes([byte]) + GOOD[at + 1 :])


@for_each("num_bits", [0, 2**32 - 511, 2**32 - 1])
def test_a_size_that_no_filter_has_is_refused(num_bits: int) -> None:
    """A filter has at least one bit, and at most as many as a key."""
    with pytest.raises(ValueError, match="num_bits"):
        header.parse(GOOD[:20] + num_bits.to_bytes(4) + GOOD[24:])


@for_each(
    ("at", "byte", "complaint"),
    [
        (7, 1, "blocks_per_item 3"),  # would be the classic layout
        (8, 26, "num_hashes 26"),  # not divisible by 3 blocks
        (8, 39, "num_hashes 39"),  # 13 in each block
        (9, 0, "blocks_per_item 0"),
        (9, 2, "blocks_per_item 2"),
        (10, 1, "a ScalingBloomFilter"),
        (10, 9, "kind 9"),
        (11, 1, "options"),
        (12, 16, "options"),
        (22, 0, "num_bits 0"),
        (23, 1, "num_bits 49665"),
    ],
)
def test_a_damaged_header_of_blocks_is_refused(at: int, byte: int, complaint: str) -> None:
    """Numbers that the blocked layout cannot have are refused."""
    damaged = BLOCKED[:at] + bytes([byte]) + BLOCKED[at + 1 :]
    with pytest.raises(ValueError, match=complaint):
        header.parse(damaged)


@for_each("rate", [1e-2, 1e-3, 1e-7])
@for_each("name", planning.NAMES)
def test_a_layout_is_what_its_header_says(name: str, rate: float) -> None:
    """A stored header is read as the layout that was planned."""
    head = planning.new_header(12_345, rate, name)
    assert planning.stored(header.parse(head.pack())) == planning.plan_layout(name, 12_345, rate)


def test_layers_have_large_blocks() -> None:
    """Filters in layers have no blocks of 128 bits, and a record with them is refused."""
    head = planning.whole(1000, 1e-2, "blocked", 1)
    assert head.block_bits == BLOCK_BITS
    small = planning.new_header(1000, 1e-2, "blocked").pack()
    assert header.parse(small).block_bits == SMALL_BLOCK_BITS
    with pytest.raises(ValueError, match="make no filter"):
        header.parse(small[:10] + b"\1" + small[11:], 1)


def test_a_short_header_is_refused() -> None:
    """A header must have all 64 bytes."""
    with pytest.raises(ValueError, match="64 bytes, not 63"):
        header.parse(GOOD[:63])
