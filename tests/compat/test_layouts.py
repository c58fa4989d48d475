"""The layouts of other systems as values: items, batches, keys."""

from __future__ import annotations

import ast
import pickle
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomredis import compat
from bloomredis.bits.encoding import Item
from bloomredis.compat.bitmap import Bitmap
from bloomredis.compat.guava import read_guava, write_guava
from bloomredis.compat.hashes import highwayhash, murmur3
from bloomredis.compat.redis_template import RedisTemplate
from bloomredis.compat.redisson import _KEY
from tests.support.layouts import NAMED, unpacked
from tests.support.values import for_each

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
ITEMS = st.one_of(TEXT, TEXT.map(str.encode), st.integers(-(2**63), 2**63 - 1))


@NAMED
@given(items=st.lists(ITEMS, min_size=1, max_size=30))
def test_one_item_and_a_batch_agree(layout: Bitmap, items: list[Item]) -> None:
    """`offsets`, `pack_one` and `pack` give the same bits."""
    singly = [layout.offsets(item) for item in items]
    batch = layout.pack(layout.encode_all(items))
    assert unpacked(batch, layout) == singly
    assert b"".join(layout.pack_one(layout.encode(item)) for item in items) == batch
    assert len(batch) == layout.item_bytes * len(items)
    assert all(0 <= offset < layout.num_bits for offsets in singly for offset in offsets)


@given(items=st.lists(st.binary(max_size=70), min_size=1, max_size=40), bits=st.integers(1, 2**32))
def test_go_zero_batches_of_any_lengths_and_sizes(items: list[bytes], bits: int) -> None:
    """The shared blocks of go-zero's 14 hashes are right for every length and modulus."""
    layout = compat.go_zero(bits)
    assert layout.pack(items) == b"".join(map(layout.pack_one, items))


def test_long_items_in_a_go_zero_batch() -> None:
    """An item too long for the shared blocks gets the same bits."""
    layout = compat.go_zero(1000)
    items = [b"x" * (murmur3._LONGEST + extra) for extra in (-1, 0, 1)]
    assert layout.pack(items) == b"".join(map(layout.pack_one, items))


@given(items=st.lists(st.binary(max_size=100), min_size=12, max_size=40), size=st.integers(0, 100))
def test_highwayhash_batches_of_any_lengths(items: list[bytes], size: int) -> None:
    """Numpy and plain ints give the same hashes, for batches of equal and of different lengths."""
    items += [bytes([i]) * size for i in range(12)]
    singly = [list(highwayhash.hash128(item, _KEY)) for item in items]
    assert highwayhash.hashes128(items, _KEY).tolist() == singly


@NAMED
def test_an_empty_batch_is_empty(layout: Bitmap) -> None:
    """A batch without items is empty."""
    assert layout.pack(layout.encode_all([])) == b""


@NAMED
def test_mixed_batches(layout: Bitmap) -> None:
    """ASCII text and bytes count as the same item, unless text is hashed as UTF-16."""
    if layout.name != "redis_template":
        assert layout.pack(["a", b"b"]) == layout.pack([b"a", "b"]) == layout.pack([b"a", b"b"])


@NAMED
@pytest.mark.parametrize("item", [True, 1.5, None, ("a",)])
def test_other_types_are_named(layout: Bitmap, item: Any) -> None:
    """An item of another type raises a TypeError that names the type, alone and inside a batch."""
    with pytest.raises(TypeError, match=type(item).__name__):
        layout.offsets(item)
    with pytest.raises(TypeError, match=type(item).__name__):
        layout.encode_all(["a", item])


@NAMED
def test_numbers(layout: Bitmap) -> None:
    """42, "42" and b"42" are one item, except for Guava, whose longs have 8 bytes."""
    assert layout.encode("42") == layout.encode(b"42") == layout.encode(bytearray(b"42"))
    assert layout.encode("42") == layout.encode(memoryview(b"42"))
    assert (layout.encode(42) == layout.encode("42")) == (layout.name != "guava")


@for_each("number", [2**63, -(2**63) - 1])
def test_guava_has_no_longer_longs(number: int) -> None:
    """An int outside 64 bits raises a ValueError that names it."""
    with pytest.raises(ValueError, match=str(number)):
        compat.guava(10, 0.1).encode(number)


def test_redis_template_hashes_text_alone() -> None:
    """Bytes must be the UTF-8 of a text, or raise a ValueError."""
    layout = compat.redis_template(10, 0.1)
    assert layout.encode("\u00e9".encode()) == layout.encode("\u00e9") == b"\xe9\x00"
    with pytest.raises(ValueError, match="not UTF-8"):
        layout.encode(b"\xff")


def test_the_extra_is_named_where_cityhash_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library the factory names the extra to install."""
    sys.modules[RedisTemplate.__module__]._city_hash.cache_clear()  # of other tests
    monkeypatch.setitem(sys.modules, "cityhash", None)
    with pytest.raises(ImportError, match=r"pip install 'bloomredis\[redis-template\]'"):
        compat.redis_template(10, 0.1)


@NAMED
def test_layouts_are_values(layout: Bitmap) -> None:
    """A layout is equal to its pickled copy, hashable and immutable."""
    copied = pickle.loads(pickle.dumps(layout))  # noqa: S301 - its own pickle
    assert copied == layout
    assert hash(copied) == hash(layout)
    assert layout != compat.go_zero(12345)
    with pytest.raises(AttributeError):
        layout.num_bits = 1  # type: ignore[misc]  # tested on purpose


def test_layouts_with_the_same_bits_are_equal() -> None:
    """Layouts are equal if they set the same bits, whatever their capacity and error rate."""
    layout = compat.guava(1000, 0.01)
    assert read_guava(write_guava(layout, b""))[0] == layout
    assert layout != compat.guava(1000, 0.01, strategy="MITZ_32")
    same_size: list[Bitmap] = [compat.jedis(1000, 0.01), compat.redisson(1000, 0.01)]
    assert same_size[0] != same_size[1]


@for_each("make", [compat.jedis, compat.redis_template])
def test_a_layout_has_its_insert_ttl(make: Any) -> None:
    """A layout with an `insert_ttl` keeps it in a pickle and shows it; its bits are those of one without."""
    layout = make(1000, 0.01, insert_ttl=60)
    copied = pickle.loads(pickle.dumps(layout))  # noqa: S301 - its own pickle
    assert (copied.insert_ttl, make(1000, 0.01).insert_ttl) == (60, None)
    assert "insert_ttl=60" in repr(layout)
    assert copied == layout == make(1000, 0.01)
    assert hash(layout) == hash(make(1000, 0.01))


@for_each("make", [compat.jedis, compat.redis_template])
@for_each("seconds", [0, -1, float("nan"), "60", True, timedelta(0)])
def test_a_bad_insert_ttl_is_refused(make: Any, seconds: Any) -> None:
    """The layout is not made, and the error names the parameter."""
    with pytest.raises((ValueError, TypeError), match="insert_ttl must be "):
        make(1000, 0.01, insert_ttl=seconds)


def test_the_keys_of_each_system() -> None:
    """A filter's name becomes the key or keys of the original system."""
    assert compat.go_zero(10).key("seen") == compat.redisson(10, 0.1).key("seen") == "seen"
    assert compat.jedis(10, 0.1).key("seen") == "bf:seen"
    chain = compat.redis_bitmaps(10, 0.1)
    assert (chain.link_key("bloomfilter", 3), chain.cursor_key()) == ("bloomfilter-3", "cursor")
    redisson = compat.redisson(10, 0.1)
    assert redisson.config_key("seen") == "{seen}:config"
    assert redisson.config_key("a{seen}") == "a{seen}:config"


def test_redissons_config() -> None:
    """The config hash has four text fields, in the order of `tryInit`."""
    assert list(compat.redisson(1_000_000, 0.0001).config().items()) == [
        ("size", "19170116"),
        ("hashIterations", "13"),
        ("expectedInsertions", "1000000"),
        ("falseProbability", "1.0E-4"),
    ]


def test_unknown_strategies_are_refused() -> None:
    """The message names both strategies that exist."""
    with pytest.raises(ValueError, match=r"MITZ_32, MITZ_64, not 'MITZ_128'"):
        compat.guava(10, 0.1, strategy="MITZ_128")


def test_a_system_does_no_io() -> None:
    """The modules of the systems import no client, driver or socket."""
    allowed = {"bloomredis", "numpy", "mmh3", "cityhash", *sys.stdlib_module_names} - {"socket", "asyncio"}
    for path in set(Path(compat.__file__).parent.rglob("*.py")) - {Path(compat.__file__)}:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] in allowed, path
