"""Items become bytes, bytes become probes, and a batch gives the same probes as its single items."""

from __future__ import annotations

import itertools
import pickle
import struct

import mmh3
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomredis.bits import encoding, hashing
from bloomredis.bits.blocked import Blocked
from bloomredis.bits.classic import Classic
from bloomredis.bits.layout import Layout
from bloomredis.bits.limits import BLOCK_BITS, SMALL_BLOCK_BITS
from tests.support.values import for_each

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SIZES = st.sampled_from([BLOCK_BITS, SMALL_BLOCK_BITS])
ITEMS = st.one_of(TEXT, st.binary(), st.integers())


@given(
    items=st.lists(ITEMS, min_size=1, max_size=20),
    bits=st.integers(1, 2**32 - 512),
    hashes=st.integers(1, 255),
)
def test_a_batch_gives_what_single_items_give(items: list[encoding.Item], bits: int, hashes: int) -> None:
    """Numpy and plain Python compute the same bits for every size of filter."""
    layout = Classic(num_bits=bits, num_hashes=hashes)
    singly = [layout.offsets(item) for item in items]
    batch = layout.pack(encoding.encode_all(items))
    assert struct.unpack(f"<{len(items) * hashes}I", batch) == tuple(itertools.chain(*singly))
    assert b"".join(layout.pack_one(encoding.encode(item)) for item in items) == batch


@given(
    items=st.lists(ITEMS, min_size=1, max_size=20),
    blocks=st.integers(20, 2**24 - 2),
    regions=st.integers(1, 20),
    bits=st.integers(1, 12),
    size=SIZES,
)
def test_a_batch_gives_what_single_items_give_in_blocks(
    items: list[encoding.Item], blocks: int, regions: int, bits: int, size: int
) -> None:
    """Numpy and plain Python compute the same bits in the blocked layout."""
    layout = Blocked(blocks * size, regions * bits, regions, size)
    encoded = encoding.encode_all(items)
    places = layout.hashed(encoded).addresses()
    bits = 8 - np.frompyfunc(int.bit_length, 1, 1)(places.masks.astype(object))
    offsets = (8 * places.at + bits).T.tolist()
    assert offsets == [layout.offsets(item) for item in items]
    singly = b"".join(layout.pack_one(encoding.encode(item)) for item in items)
    assert singly == layout.pack(encoded) == layout.hashed(encoded).packed()


@pytest.mark.parametrize("bits", [1, 7, 12])
@pytest.mark.parametrize("size", [128, 256])
@pytest.mark.parametrize("number", [14, 100, 400, 10_000])
@pytest.mark.parametrize("counting", ["numpy 2", "numpy 1"])
def test_batches_with_any_number_of_clashes(
    monkeypatch: pytest.MonkeyPatch, bits: int, size: int, number: int, counting: str
) -> None:
    """A loop sets the repeated bits of a few items, numpy those of many; older numpy counts differently."""
    if counting == "numpy 1":
        monkeypatch.delattr(np, "bitwise_count", raising=False)
    for regions in (1, 3):
        layout = Blocked(1000 * size, regions * bits, regions, size)
        encoded = [f"{counting} {i}".encode() for i in range(number)]
        assert layout.pack(encoded) == b"".join(map(layout.pack_one, encoded))


def test_what_is_derived_is_not_pickled() -> None:
    """A used layout pickles to the same size as a new one, and is equal to it."""
    layout = Blocked(256_000, 7, 1)
    new = pickle.dumps(layout)
    layout.pack_one(b"a")
    assert pickle.dumps(layout) == new
    assert pickle.loads(new) == layout  # noqa: S301


@given(
    item=TEXT,
    blocks=st.integers(20, 2**24 - 2),
    regions=st.integers(1, 20),
    bits=st.integers(1, 12),
    size=SIZES,
)
def test_blocks_follow_the_definition(item: str, blocks: int, regions: int, bits: int, size: int) -> None:
    """Blocks, bits and packed masks equal those computed here exactly as lua/FORMAT.md defines them."""
    layout = Blocked(blocks * size, regions * bits, regions, size)
    words = struct.unpack("<4I", mmh3.hash_bytes(item.encode()))
    offsets, packed = [], b""
    for j in range(regions):
        first, end = j * blocks // regions, (j + 1) * blocks // regions
        block = first + words[0] * (end - first) // 2**32
        positions: list[int] = []
        for drawn in struct.pack("<3I", *words[1:])[:bits]:
            positions.append(next(p % size for p in range(drawn, drawn + size) if p % size not in positions))
        offsets += [size * block + position for position in positions]
        mask = "".join("1" if position in positions else "0" for position in range(size))
        packed += struct.pack("<I", block) + int(mask, 2).to_bytes(size // 8, "big")
        scrambled = [(word ^ word // 2**16) * 73244475 % 2**32 for word in words]
        words = tuple(word ^ word // 2**16 for word in (*scrambled[1:], scrambled[0]))
    assert layout.offsets(item) == offsets
    assert layout.pack_one(item.encode()) == packed


@given(item=TEXT, bits=st.integers(1, 2**32 - 512), hashes=st.integers(1, 64))
def test_probes_follow_the_definition(item: str, bits: int, hashes: int) -> None:
    """The closed form equals the recurrence of Dillinger & Manolios."""
    x, y = (half % bits for half in mmh3.hash64(item.encode(), signed=False))
    expected = []
    for i in range(hashes):
        expected.append(x)
        x, y = (x + y) % bits, (y + i + 1) % bits
    assert hashing.probes(mmh3.hash_bytes(item.encode()), bits, hashes) == expected


def test_a_number_is_its_decimal_text() -> None:
    """42, "42" and b"42" are one item, since redis-py sends them as the same bytes."""
    assert encoding.encode(42) == encoding.encode("42") == encoding.encode(b"42") == b"42"
    assert encoding.encode(memoryview(b"4242")[::2]) == encoding.encode(bytearray(b"44"))


@for_each("item", [True, 1.5, None, ("a",), np.float64(1), np.int64(1)])
def test_other_types_are_named(item: object) -> None:
    """An item of another type raises a TypeError that names the type, alone and inside a batch."""
    with pytest.raises(TypeError, match=type(item).__name__):
        encoding.encode(item)  # type: ignore[arg-type]  # tested on purpose
    with pytest.raises(TypeError, match=type(item).__name__):
        encoding.encode_all(["a", item])  # type: ignore[list-item]  # tested on purpose


def test_an_unpaired_surrogate_is_an_error() -> None:
    """An unpaired surrogate raises an error before mmh3 sees it, which would crash."""
    with pytest.raises(ValueError, match=r"\\udcff.*encode="):
        encoding.encode_all(["fine", "a\udcff"])


@for_each("layout", [Classic(9_585_059, 7), Blocked(33_142_784, 18, 2), Blocked(21_485_056, 12, 2, 128)])
def test_a_batch_of_many_is_seamless(layout: Layout) -> None:
    """Items that are hashed in several parts join without a gap."""
    items = [f"item-{i}" for i in range(20_000)]
    assert layout.pack(items) == b"".join(layout.pack_one(item.encode()) for item in items)
