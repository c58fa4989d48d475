"""The stream that Guava reads and writes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomredis import compat
from bloomredis.compat.guava import Guava, read_guava, write_guava
from tests.support.layouts import redis_string
from tests.support.values import for_each


def guava_bytes(layout: Guava, offsets: list[int]) -> bytes:
    """Return what `writeTo()` writes, by its definition: bit i is bit (i & 63) of long i >>> 6."""
    longs = [0] * (layout.num_bits // 64)
    for offset in offsets:
        longs[offset >> 6] |= 1 << (offset & 63)
    ordinal = ("MITZ_32", "MITZ_64").index(layout.strategy)
    return struct.pack(f">bBi{len(longs)}Q", ordinal, layout.num_hashes, len(longs), *longs)


@given(offsets=st.lists(st.integers(0, 9599)), strategy=st.sampled_from(["MITZ_32", "MITZ_64"]))
def test_guavas_stream_there_and_back(offsets: list[int], strategy: str) -> None:
    """Reading gives SETBIT's order, and writing gives the same stream, with or without trailing zeros."""
    layout = compat.guava(1000, 0.01, strategy)
    data, bits = guava_bytes(layout, offsets), redis_string(offsets, layout.num_bits // 8)
    assert read_guava(data) == (layout, bits)
    assert write_guava(layout, bits) == write_guava(layout, bits.rstrip(b"\0")) == data


@for_each(
    ("data", "message"),
    [
        (b"", "at least 6 bytes, not 0"),
        (b"\x01\x05\0\0\0", "at least 6 bytes, not 5"),
        (b"\x02\x05\0\0\0\x01" + bytes(8), "ordinal 2"),
        (b"\xff\x05\0\0\0\x01" + bytes(8), "ordinal -1"),
        (b"\x01\x00\0\0\0\x01" + bytes(8), "not 0"),
        (b"\x01\x05\0\0\0\0", "0 longs"),
        (b"\x01\x05\xff\xff\xff\xff", "-1 longs"),
        (b"\x01\x05\x04\0\0\x01", "67108865 longs"),
        (b"\x01\x05\0\0\0\x02" + bytes(15), "need 22 bytes, not 21"),
        (b"\x01\x05\0\0\0\x02" + bytes(17), "need 22 bytes, not 23"),
    ],
)
def test_what_is_no_guava_stream_is_refused(data: bytes, message: str) -> None:
    """A malformed stream raises a ValueError that names the fault."""
    with pytest.raises(ValueError, match=message):
        read_guava(data)


@given(data=st.binary(max_size=60))
def test_any_bytes_are_a_guava_stream_or_refused(data: bytes) -> None:
    """Any bytes raise ValueError or are read, and are written back the same."""
    try:
        layout, bits = read_guava(data)
    except ValueError:
        return
    assert write_guava(layout, bits) == data


def test_too_long_a_bitmap_is_no_guava_filter() -> None:
    """A string longer than the filter cannot be written."""
    with pytest.raises(ValueError, match="at most 8"):
        write_guava(compat.guava(1, 0.5), bytes(9))
