"""The dump of RedisBloom."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomredis.compat.redisbloom import (
    FORCE64,
    NOROUND,
    RedisBloom,
    read_redisbloom,
)
from tests.support.layouts import redis_string, redisbloom_link, redisbloom_options
from tests.support.values import for_each
from tests.support.vectors import Row, element, vectors


def dump(layouts: list[RedisBloom], bits: list[bytes], options: int = NOROUND | FORCE64) -> bytes:
    """Return the header of a dump, packed as RedisBloom does."""
    links = [
        struct.pack(
            "<QQQddIQB",
            len(data),
            layout.num_bits,
            1,
            layout.error_rate,
            9.6,
            layout.num_hashes,
            layout.capacity,
            layout.n2,
        )
        for layout, data in zip(layouts, bits, strict=True)
    ]
    return struct.pack("<QIII", len(layouts), len(layouts), options, 2) + b"".join(links)


def lsb_first(offsets: list[int], size: int) -> bytes:
    bits = bytearray(size)
    for offset in offsets:
        bits[offset >> 3] |= 1 << (offset & 7)
    return bytes(bits)


def two_links() -> tuple[list[RedisBloom], list[bytes]]:
    layouts = [
        redisbloom_link({"capacity": n, "error_rate": 0.01, "options": "NOROUND|FORCE64"}) for n in (10, 20)
    ]
    return layouts, [lsb_first(layout.offsets("hello"), layout.num_bits // 8) for layout in layouts]


@for_each("size", [1, 7, 1000])
def test_a_dump_is_read(size: int) -> None:
    """Chunks of any size give each link's layout, and its bits at their SETBIT offsets."""
    layouts, bits = two_links()
    chunks, at = [(1, dump(layouts, bits))], 1
    for data in bits:
        for start in range(0, len(data), size):
            at += len(data[start : start + size])
            chunks.append((at, data[start : start + size]))
    chain = read_redisbloom([*chunks, (0, b"")])
    assert [link.layout for link in chain.links] == layouts
    for link in chain.links:
        assert link.bits == redis_string(link.layout.offsets("hello"), link.layout.num_bits // 8)
    assert (chain.items, chain.options, chain.growth) == (2, NOROUND | FORCE64, 2)


SMALL = [case for case in vectors("redisbloom")["cases"] if case["num_bits"] <= 2**16]


@for_each("case", SMALL[::12])
def test_a_dump_has_the_recorded_bits(case: Row) -> None:
    """A dump of an element has the recorded bits at the offsets of its layout."""
    layout = redisbloom_link(case)
    data = lsb_first(case["offsets"], layout.num_bits // 8)
    header = dump([layout], [data], redisbloom_options(case))
    (link,) = read_redisbloom([(1, header), (1 + len(data), data)]).links
    assert link.layout == layout
    assert link.bits == redis_string(link.layout.offsets(element(case)), len(data))


def broken_dumps() -> dict[str, list[tuple[int, bytes]]]:
    layouts, bits = two_links()
    header, data = dump(layouts, bits), b"".join(bits)
    end = 1 + len(data)
    return {
        "begins with the header": [(end, data)],
        "at least 20 bytes, not 3": [(1, b"abc"), (end, data)],
        "with 2 links": [(1, header[:-1]), (end, data)],
        "with 0 links": [(1, struct.pack("<QIII", 0, 0, 5, 2))],
        "unknown": [(1, header[:12] + b"\x40\0\0\0" + header[16:]), (end, data)],
        "one is missing": [(1, header), (end, data[1:])],
        "not a dump of RedisBloom": [(1, header), (end - 1, data[:-1])],
        "300 hashes": [(1, header[:60] + struct.pack("<I", 300) + header[64:]), (end, data)],
        "and 2 items": [(1, header), (end + 1, data + b"x")],
        "and 3 items": [(1, b"\x03" + header[1:]), (end, data)],
    }


def test_links_past_one_key_are_refused() -> None:
    """A link too large for a Redis string raises a ValueError with its size."""
    with pytest.raises(ValueError, match="4294967360 bits"):
        RedisBloom(num_bits=2**32 + 64, num_hashes=7, capacity=10, error_rate=0.01)


@for_each("message", list(broken_dumps()))
def test_what_is_no_whole_dump_is_refused(message: str) -> None:
    """A dump that is cut, extended or changed raises a ValueError that names the fault."""
    with pytest.raises(ValueError, match=message):
        read_redisbloom(broken_dumps()[message])


@given(header=st.binary(max_size=150), data=st.binary(max_size=20))
def test_any_bytes_are_a_dump_or_refused(header: bytes, data: bytes) -> None:
    """Any bytes raise ValueError or are read as a dump."""
    with pytest.raises(ValueError, match=r"header|options|link|chunk"):
        read_redisbloom([(1, header), (1 + len(data), data)])
