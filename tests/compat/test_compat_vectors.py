"""The layouts of other systems set the bits that those systems set, and are as large."""

from __future__ import annotations

import ast
import json
import pickle
import struct
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomredis import compat
from bloomredis.bits.encoding import Item
from bloomredis.compat.bitmap import Bitmap
from bloomredis.compat.guava import Guava, num_hashes_from_rate, num_hashes_from_size, read_guava, write_guava
from bloomredis.compat.guava import num_bits as guava_bits
from bloomredis.compat.guava import optimal_num_bits as guava_optimum
from bloomredis.compat.hashes import highwayhash, java, murmur2, murmur3
from bloomredis.compat.jedis import num_bits as jedis_bits
from bloomredis.compat.jedis import num_hashes as jedis_hashes
from bloomredis.compat.php_bkdr import num_partitions, seeds
from bloomredis.compat.redis_bitmaps import num_bits as chain_bits
from bloomredis.compat.redis_bitmaps import num_hashes as chain_hashes
from bloomredis.compat.redis_bitmaps import optimal_num_bits as chain_optimum
from bloomredis.compat.redis_template import RedisTemplate
from bloomredis.compat.redis_template import num_bits as template_bits
from bloomredis.compat.redis_template import num_hashes as template_hashes
from bloomredis.compat.redisbloom import (
    ENTS_IS_BITS,
    FORCE64,
    NO_SCALING,
    NOROUND,
    RedisBloom,
    first_link_size,
    link_size,
    read_redisbloom,
)
from bloomredis.compat.redisson import _KEY
from bloomredis.compat.redisson import num_bits as redisson_bits
from bloomredis.compat.redisson import num_hashes as redisson_hashes

VECTORS = Path(__file__).parents[1] / "vectors"
SYSTEMS = [
    "go_zero",
    "guava_mitz32",
    "guava_mitz64",
    "jedis",
    "php_bkdr",
    "redis_bitmaps",
    "redis_template",
    "redisbloom",
    "redisson",
]
CHUNK = 150
Row = dict[str, Any]


@cache
def vectors(system: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((VECTORS / f"{system}.json").read_text())
    return found


def chunks() -> list[tuple[str, int]]:
    return [(system, at) for system in SYSTEMS for at in range(0, len(vectors(system)["cases"]), CHUNK)]


def element(case: Row) -> Item:
    found: Item = case["element"]
    return bytes.fromhex(str(found)) if case["encoding"] == "hex" else found


def redisbloom_options(row: Row) -> int:
    words = {"NOROUND": NOROUND, "ENTS_IS_BITS": ENTS_IS_BITS, "FORCE64": FORCE64, "NO_SCALING": NO_SCALING}
    return sum(words.get(word, 0) for word in row["options"].split("|"))


def redisbloom_link(case: Row) -> RedisBloom:
    options = redisbloom_options(case)
    size = link_size(case["capacity"], case["error_rate"], options)
    return RedisBloom(
        num_bits=size.num_bits,
        num_hashes=size.num_hashes,
        capacity=size.entries,
        error_rate=size.error_rate,
        n2=size.n2,
        hash_bits=64 if options & FORCE64 else 32,
    )


MAKE: dict[str, Callable[[Row], Bitmap]] = {
    "go_zero": lambda case: compat.go_zero(case["num_bits"]),
    "guava_mitz32": lambda case: compat.guava(case["capacity"], case["error_rate"], "MITZ_32"),
    "guava_mitz64": lambda case: compat.guava(case["capacity"], case["error_rate"]),
    "jedis": lambda case: compat.jedis(case["capacity"], case["error_rate"]),
    "php_bkdr": lambda case: compat.php_bkdr(case["num_bits"], case["num_hashes"]),
    "redis_bitmaps": lambda case: compat.redis_bitmaps(case["capacity"], case["error_rate"]),
    "redis_template": lambda case: compat.redis_template(case["capacity"], case["error_rate"]),
    "redisbloom": redisbloom_link,
    "redisson": lambda case: compat.redisson(case["capacity"], case["error_rate"]),
}
LAYOUTS: list[Bitmap] = [
    compat.go_zero(60_000_000),
    compat.guava(1000, 0.01),
    compat.guava(1000, 0.01, strategy="MITZ_32"),
    compat.jedis(1000, 0.01),
    compat.php_bkdr(35_000_000, 20),
    compat.redis_bitmaps(1000, 0.01),
    compat.redis_template(1000, 0.01),
    compat.redisson(1000, 0.01),
    redisbloom_link({"capacity": 1000, "error_rate": 0.01, "options": "NOROUND|FORCE64"}),
    redisbloom_link({"capacity": 1000, "error_rate": 0.01, "options": "0"}),
]
NAMED = pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)


def unpacked(packed: bytes, layout: Bitmap) -> list[list[int]]:
    """Return the offsets of each item in what the scripts are sent."""
    return [list(found) for found in struct.iter_unpack(f"<{layout.num_hashes}I", packed)]


def as_recorded(system: str, offsets: list[int]) -> list[int]:
    """Return offsets in the order in which the vectors of a system have them."""
    return offsets if vectors(system)["offsets_order"].startswith("probe") else sorted(set(offsets))


@pytest.mark.parametrize(("system", "start"), chunks())
def test_every_case_is_reproduced(system: str, start: int) -> None:
    """Each recorded element sets the recorded bits, in a filter of the recorded size, alone and packed."""
    for case in vectors(system)["cases"][start : start + CHUNK]:
        layout, item = MAKE[system](case), element(case)
        assert (layout.num_bits, layout.num_hashes) == (case["num_bits"], case["num_hashes"]), case
        assert as_recorded(system, layout.offsets(item)) == case["offsets"], case
        (packed,) = unpacked(layout.pack(layout.encode_all([item])), layout)
        assert as_recorded(system, packed) == case["offsets"], case


@pytest.mark.parametrize("system", [name for name in SYSTEMS if "unpaired_surrogates" in vectors(name)])
def test_unpaired_surrogates_are_what_java_makes_of_them(system: str) -> None:
    """A surrogate without its partner sets the bits that the original sets."""
    for row in vectors(system)["unpaired_surrogates"]:
        text = bytes.fromhex(row["utf16_code_units_hex"]).decode("utf-16-be", "surrogatepass")
        layout = MAKE[system]({"capacity": 3000, "error_rate": 0.03})
        assert (layout.num_bits, layout.num_hashes) == (row["num_bits"], row["num_hashes"]), row
        assert as_recorded(system, layout.offsets(text)) == row["offsets"], row
        assert unpacked(layout.pack(layout.encode_all([text])), layout) == [layout.offsets(text)], row


@NAMED
def test_surrogates_that_are_a_pair_are_one_character(layout: Bitmap) -> None:
    """Java joins two surrogates in a row; where strings are bytes, they are refused."""
    if layout.name in {"go_zero", "php_bkdr", "redisbloom"}:
        with pytest.raises(ValueError, match="surrogates not allowed"):
            layout.offsets("\ud83d\ude00")
    else:
        assert layout.offsets("\ud83d\ude00") == layout.offsets("\N{GRINNING FACE}")


@pytest.mark.parametrize("system", ["guava_mitz32", "guava_mitz64"])
def test_guavas_sizes(system: str) -> None:
    """Every row of sizes comes out, by both formulas for the hashes; what `create` refuses is refused."""
    for row in vectors(system)["sizing"]:
        n, p = row["capacity"], row["error_rate"]
        assert guava_optimum(n, p) == row["optimal_num_of_bits"], row
        assert guava_bits(n, p) == row["num_bits"], row
        assert num_hashes_from_size(n, p) == row["num_hashes"], row
        assert num_hashes_from_rate(p) == row["num_hashes_guava_33_4_6"], row
        if "create_raises" in row:
            with pytest.raises(ValueError, match="filter"):
                compat.guava(n, p)
        elif row["num_bits"] <= 2**32:
            layout = compat.guava(n, p)
            assert (layout.num_bits, layout.num_hashes) == (row["num_bits"], row["num_hashes"]), row


def test_jedis_sizes() -> None:
    """Every row of sizes comes out, those that stop at 2^31 - 1 too; a filter without bits is refused."""
    for row in vectors("jedis")["sizing"]:
        n, p = row["capacity"], row["error_rate"]
        bits = jedis_bits(n, p)
        assert (bits, jedis_hashes(n, bits)) == (row["num_bits"], row["num_hashes"]), row
        refused_or_equal(compat.jedis, row)


def test_redis_bitmaps_sizes() -> None:
    """Every row of sizes comes out, before and after rounding up to 64."""
    for row in vectors("redis_bitmaps")["sizing"]:
        n, p = row["capacity"], row["error_rate"]
        optimum = chain_optimum(n, p)
        assert optimum == row["optimal_num_of_bits"], row
        assert (chain_bits(n, p), chain_hashes(n, optimum)) == (row["num_bits"], row["num_hashes"]), row
        refused_or_equal(compat.redis_bitmaps, row)


def test_redis_template_sizes() -> None:
    """Every row of sizes comes out, with the rate rounded to 32 bits."""
    for row in vectors("redis_template")["sizing"]:
        n, p = row["capacity"], row["error_rate"]
        assert java.to_float32(p) == row["error_rate_as_float32"], row
        bits = template_bits(n, p)
        assert (bits, template_hashes(n, bits)) == (row["num_bits"], row["num_hashes"]), row
        refused_or_equal(compat.redis_template, row)


def test_redisson_sizes() -> None:
    """Every row of sizes comes out, and what Redisson refuses is refused."""
    for row in vectors("redisson")["sizing"]:
        n, p = row["capacity"], row["error_rate"]
        if "raises" in row:
            with pytest.raises(ValueError, match=r"size of 0|at most 4294967294"):
                redisson_bits(n, p)
        else:
            bits = redisson_bits(n, p)
            assert (bits, redisson_hashes(n, bits)) == (row["num_bits"], row["num_hashes"]), row
        refused_or_equal(compat.redisson, row)


def refused_or_equal(make: Callable[[int, float], Bitmap], row: Row) -> None:
    """Hold a factory to a row: the same size, or a refusal where that is no filter."""
    usable = (
        row["num_bits"] and 1 <= row["num_hashes"] <= 255 and row["num_bits"] <= 2**32 and row["capacity"]
    )
    if usable:
        layout = make(row["capacity"], row["error_rate"])
        assert (layout.num_bits, layout.num_hashes) == (row["num_bits"], row["num_hashes"]), row
    else:
        with pytest.raises(ValueError, match=r"bits|hashes|capacity"):
            make(row["capacity"], row["error_rate"])


def test_redisbloom_sizes() -> None:
    """Every row of sizes comes out, and what RedisBloom refuses is refused."""
    for row in vectors("redisbloom")["sizing"]:
        make = link_size if row["call"] == "bloom_init" else first_link_size
        options = redisbloom_options(row)
        if "returns" in row:
            with pytest.raises(ValueError, match="RedisBloom has none"):
                make(row["capacity"], row["error_rate"], options)
            continue
        size = make(row["capacity"], row["error_rate"], options)
        assert size[:4] == (row["num_bits"], row["num_hashes"], row["n2"], row["entries"]), row
        assert size.error_rate == row.get("error_of_first_filter", row["error_rate"]), row
        assert size.num_bits == 8 * row["bytes"], row


def test_cityhash_and_murmur_of_utf16() -> None:
    """The two hashes of the RedisTemplate filter are those of the text as UTF-16."""
    layout = compat.redis_template(1000, 0.01)
    for row in vectors("redis_template")["hashes"]:
        h1, h2 = row["murmur3_hash1"], row["city_1_1_hash2"]
        expected = [((h1 + i * h2 + i * i) & (2**63 - 1)) % layout.num_bits for i in range(layout.num_hashes)]
        assert layout.offsets(row["element"]) == expected, row


def test_highwayhash() -> None:
    """HighwayHash-128 gives the recorded halves, one by one and as a batch."""
    rows = vectors("redisson")["hashes"]
    items = [bytes.fromhex(row["bytes_hex"]) for row in rows]
    expected = [(int(row["hash128_0"], 16), int(row["hash128_1"], 16)) for row in rows]
    for row, item, halves in zip(rows, items, expected, strict=True):
        assert highwayhash.hash128(item, _KEY) == halves, row
    assert highwayhash.hashes128(items * 20, _KEY).tolist() == [list(halves) for halves in expected * 20]


def test_murmur2() -> None:
    """MurmurHash2 and MurmurHash64A give the recorded pairs."""
    functions = {"MurmurHash2": murmur2.chained32, "MurmurHash64A": murmur2.chained64}
    for case in vectors("redisbloom")["cases"]:
        item = element(case)
        data = item.encode() if isinstance(item, str) else bytes.fromhex(case["element"])
        pair = functions[case["hash"]](data)
        assert pair == (int(case["hash_a"], 16), int(case["hash_b"], 16)), case


def test_phps_seeds() -> None:
    """The seeds are ints until 64 bits are full, and floats from there on."""
    for row, seed in zip(vectors("php_bkdr")["bkdr_seeds"]["first_22"], seeds(22), strict=True):
        assert seed == row["seed"], row
        assert isinstance(seed, int if row["php_type"] == "integer" else float), row


def test_phps_partitions() -> None:
    """v3 on one server chooses 12 keys for 50e9 bits, and each element's key is the recorded one."""
    layout = compat.php_bkdr(50_000_000_000, 16, servers=["one"])
    assert layout.partitions == 12
    for case in vectors("php_bkdr")["extra_v3_partitioned"]:
        item = element(case)
        assert layout.offsets(item) == case["offsets"], case
        assert layout.partition(layout.encode(item)) == (0, case["key_suffix"]), case


def test_a_server_is_chosen_by_the_same_checksum() -> None:
    """CRC-32 of "123456789" is 0xCBF43926 (the check value of the polynomial): it chooses both."""
    layout = compat.php_bkdr(10**10, 4, servers=["a", "b", "c"], partitions=5)
    assert layout.partition(b"123456789") == (0xCBF43926 % 3, f".{0xCBF43926 % 5}")
    assert compat.php_bkdr(10**10, 4, servers=["a", "b"]).partitions == num_partitions(10**10, 2) == 2
    assert compat.php_bkdr(1000, 4).partition(b"x") == (0, "")
    assert compat.php_bkdr(1000, 4, partitions=7).partition(b"123456789") == (0, f".{0xCBF43926 % 7}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_bits": 2**32 + 1, "num_hashes": 4}, "4294967297 bits"),
        ({"num_bits": 10, "num_hashes": 0}, "num_hashes must be at least 1, not 0"),
        ({"num_bits": 10, "num_hashes": 256}, "256 hashes"),
        ({"num_bits": 10, "num_hashes": 1, "servers": []}, "at least one server"),
        ({"num_bits": 10, "num_hashes": 1, "partitions": 0}, "partitions must be at least 1, not 0"),
    ],
)
def test_php_filters_that_cannot_be(arguments: dict[str, Any], message: str) -> None:
    """A size that no bitmap has is refused with the number."""
    with pytest.raises(ValueError, match=message):
        compat.php_bkdr(**arguments)


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
ITEMS = st.one_of(TEXT, TEXT.map(str.encode), st.integers(-(2**63), 2**63 - 1))


@NAMED
@given(items=st.lists(ITEMS, min_size=1, max_size=30))
def test_one_item_and_a_batch_agree(layout: Bitmap, items: list[Item]) -> None:
    """`offsets`, `pack_one` and `pack` are three ways to the same bits."""
    singly = [layout.offsets(item) for item in items]
    batch = layout.pack(layout.encode_all(items))
    assert unpacked(batch, layout) == singly
    assert b"".join(layout.pack_one(layout.encode(item)) for item in items) == batch
    assert len(batch) == layout.item_bytes * len(items)
    assert all(0 <= offset < layout.num_bits for offsets in singly for offset in offsets)


@given(items=st.lists(st.binary(max_size=70), min_size=1, max_size=40), bits=st.integers(1, 2**32))
def test_go_zero_batches_of_any_lengths_and_sizes(items: list[bytes], bits: int) -> None:
    """The shared blocks of go-zero's 14 hashes come out for every length and modulus."""
    layout = compat.go_zero(bits)
    assert layout.pack(items) == b"".join(map(layout.pack_one, items))


def test_long_items_in_a_go_zero_batch() -> None:
    """An item too long for the shared way has the same bits."""
    layout = compat.go_zero(1000)
    items = [b"x" * (murmur3._LONGEST + extra) for extra in (-1, 0, 1)]
    assert layout.pack(items) == b"".join(map(layout.pack_one, items))


@given(items=st.lists(st.binary(max_size=100), min_size=12, max_size=40), size=st.integers(0, 100))
def test_highwayhash_batches_of_any_lengths(items: list[bytes], size: int) -> None:
    """The way of numpy and that of ints agree, among alike items and among others."""
    items += [bytes([i]) * size for i in range(12)]
    singly = [list(highwayhash.hash128(item, _KEY)) for item in items]
    assert highwayhash.hashes128(items, _KEY).tolist() == singly


@NAMED
def test_an_empty_batch_is_empty(layout: Bitmap) -> None:
    """No items are no bytes."""
    assert layout.pack(layout.encode_all([])) == b""


@NAMED
def test_mixed_batches(layout: Bitmap) -> None:
    """ASCII text and bytes stand for themselves side by side, unless text is hashed as UTF-16."""
    if layout.name != "redis_template":
        assert layout.pack(["a", b"b"]) == layout.pack([b"a", "b"]) == layout.pack([b"a", b"b"])


@NAMED
@pytest.mark.parametrize("item", [True, 1.5, None, ("a",)])
def test_other_types_are_named(layout: Bitmap, item: Any) -> None:
    """What is no item is a TypeError that names the type, alone and inside a batch."""
    with pytest.raises(TypeError, match=type(item).__name__):
        layout.offsets(item)
    with pytest.raises(TypeError, match=type(item).__name__):
        layout.encode_all(["a", item])


@NAMED
def test_numbers(layout: Bitmap) -> None:
    """42, "42" and b"42" are one item, but for Guava, whose longs are 8 bytes."""
    assert layout.encode("42") == layout.encode(b"42") == layout.encode(bytearray(b"42"))
    assert layout.encode("42") == layout.encode(memoryview(b"42"))
    assert (layout.encode(42) == layout.encode("42")) == (layout.name != "guava")


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_guava_has_no_longer_longs(number: int) -> None:
    """An int outside 64 bits is a ValueError that names it."""
    with pytest.raises(ValueError, match=str(number)):
        compat.guava(10, 0.1).encode(number)


def test_redis_template_hashes_text_alone() -> None:
    """Bytes are the UTF-8 of a text, or a ValueError."""
    layout = compat.redis_template(10, 0.1)
    assert layout.encode("\u00e9".encode()) == layout.encode("\u00e9") == b"\xe9\x00"
    with pytest.raises(ValueError, match="no UTF-8"):
        layout.encode(b"\xff")


def test_the_extra_is_named_where_cityhash_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library the factory says which extra to install."""
    sys.modules[RedisTemplate.__module__]._city_hash.cache_clear()
    monkeypatch.setitem(sys.modules, "cityhash", None)
    with pytest.raises(ImportError, match=r"pip install 'bloomredis\[redis_template\]'"):
        compat.redis_template(10, 0.1)


@NAMED
def test_layouts_are_values(layout: Bitmap) -> None:
    """A layout is equal to its pickled copy, hashable, and cannot be changed."""
    copied = pickle.loads(pickle.dumps(layout))  # noqa: S301 - its own
    assert copied == layout
    assert hash(copied) == hash(layout)
    assert layout != compat.go_zero(12345)
    with pytest.raises(AttributeError):
        layout.num_bits = 1  # type: ignore[misc]  # that is the point


def test_layouts_with_the_same_bits_are_equal() -> None:
    """What a filter was made for does not count, where its bits lie does."""
    layout = compat.guava(1000, 0.01)
    assert read_guava(write_guava(layout, b""))[0] == layout
    assert layout != compat.guava(1000, 0.01, strategy="MITZ_32")
    same_size: list[Bitmap] = [compat.jedis(1000, 0.01), compat.redisson(1000, 0.01)]
    assert same_size[0] != same_size[1]


def test_the_keys_of_each_system() -> None:
    """A filter's name becomes the key, or keys, that the original uses."""
    assert compat.go_zero(10).key("seen") == compat.redisson(10, 0.1).key("seen") == "seen"
    assert compat.jedis(10, 0.1).key("seen") == "bf:seen"
    chain = compat.redis_bitmaps(10, 0.1)
    assert (chain.link_key("bloomfilter", 3), chain.cursor_key()) == ("bloomfilter-3", "cursor")
    redisson = compat.redisson(10, 0.1)
    assert redisson.config_key("seen") == "{seen}:config"
    assert redisson.config_key("a{seen}") == "a{seen}:config"


def test_redissons_config() -> None:
    """The config hash has four fields, all text, in the order of `tryInit`."""
    assert list(compat.redisson(1_000_000, 0.0001).config().items()) == [
        ("size", "19170116"),
        ("hashIterations", "13"),
        ("expectedInsertions", "1000000"),
        ("falseProbability", "1.0E-4"),
    ]


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.5, "0.5"), (0.03, "0.03"), (0.001, "0.001"), (1.5e-7, "1.5E-7"), (5e-324, "4.9E-324")],
)
def test_doubles_are_printed_as_java_does(number: float, text: str) -> None:
    """The examples are of `Double.toString`."""
    assert java.double_text(number) == text


@pytest.mark.parametrize(
    ("cast", "results"),
    [
        (java.to_long, [0, 2**63 - 1, -(2**63), 2, -2, 4294967295]),
        (java.to_int, [0, 2**31 - 1, -(2**31), 2, -2, 2**31 - 1]),
        (java.rounded_int, [0, -1, 0, 3, -2, -1]),
    ],
)
def test_casts_are_javas(cast: Callable[[float], int], results: list[int]) -> None:
    """NaN is 0, the infinite saturates, and `(int) round` keeps the low 32 bits of a long."""
    assert [cast(x) for x in (float("nan"), float("inf"), float("-inf"), 2.5, -2.5, 4294967295.0)] == results


@pytest.mark.parametrize("make", [compat.guava, compat.jedis, compat.redis_bitmaps, compat.redis_template])
@pytest.mark.parametrize("rate", [0.0, 1.0, -0.5, float("nan")])
def test_error_rates_outside_are_refused(make: Callable[[int, float], Bitmap], rate: float) -> None:
    """No probability strictly inside (0, 1), no filter."""
    with pytest.raises(ValueError, match="error_rate"):
        make(1000, rate)


@pytest.mark.parametrize("make", [compat.jedis, compat.redis_template])
def test_capacities_past_javas_int_are_refused(make: Callable[[int, float], Bitmap]) -> None:
    """The original could not be called so."""
    with pytest.raises(ValueError, match="2147483648"):
        make(2**31, 0.5)


@pytest.mark.parametrize("bits", [0, -1, 2**32 + 1])
def test_go_zero_sizes_that_cannot_be(bits: int) -> None:
    """No bit, or more than a key holds, is a ValueError that names the number."""
    with pytest.raises(ValueError, match=str(bits)):
        compat.go_zero(bits)


@pytest.mark.parametrize("bits", [True, 1.0, "10"])
def test_go_zero_sizes_of_other_types(bits: Any) -> None:
    """A size is an int."""
    with pytest.raises(TypeError, match=type(bits).__name__):
        compat.go_zero(bits)


def guava_bytes(layout: Guava, offsets: list[int]) -> bytes:
    """Return what `writeTo()` writes, by its definition: bit i is bit (i & 63) of long i >>> 6."""
    longs = [0] * (layout.num_bits // 64)
    for offset in offsets:
        longs[offset >> 6] |= 1 << (offset & 63)
    ordinal = ("MITZ_32", "MITZ_64").index(layout.strategy)
    return struct.pack(f">bBi{len(longs)}Q", ordinal, layout.num_hashes, len(longs), *longs)


def redis_string(offsets: list[int], size: int) -> bytes:
    """Return the string in which SETBIT has set these offsets."""
    bits = bytearray(size)
    for offset in offsets:
        bits[offset >> 3] |= 0x80 >> (offset & 7)
    return bytes(bits)


@given(offsets=st.lists(st.integers(0, 9599)), strategy=st.sampled_from(["MITZ_32", "MITZ_64"]))
def test_guavas_stream_there_and_back(offsets: list[int], strategy: str) -> None:
    """Reading gives SETBIT's order, and writing gives the same stream, trailing zeros or not."""
    layout = compat.guava(1000, 0.01, strategy)
    data, bits = guava_bytes(layout, offsets), redis_string(offsets, layout.num_bits // 8)
    assert read_guava(data) == (layout, bits)
    assert write_guava(layout, bits) == write_guava(layout, bits.rstrip(b"\0")) == data


@pytest.mark.parametrize(
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
    """A malformed stream is a ValueError that names what is wrong."""
    with pytest.raises(ValueError, match=message):
        read_guava(data)


@given(data=st.binary(max_size=60))
def test_any_bytes_are_a_guava_stream_or_refused(data: bytes) -> None:
    """Nothing but ValueError comes out, and what is read is written back as it was."""
    try:
        layout, bits = read_guava(data)
    except ValueError:
        return
    assert write_guava(layout, bits) == data


def test_too_long_a_bitmap_is_no_guava_filter() -> None:
    """A string past the filter's end cannot be written."""
    with pytest.raises(ValueError, match="at most 8"):
        write_guava(compat.guava(1, 0.5), bytes(9))


def test_unknown_strategies_are_refused() -> None:
    """The message names both that there are."""
    with pytest.raises(ValueError, match=r"MITZ_32, MITZ_64, not 'MITZ_128'"):
        compat.guava(10, 0.1, strategy="MITZ_128")


def test_the_newer_number_of_hashes_is_taken_as_given() -> None:
    """`num_hashes` overrides the older formula."""
    assert compat.guava(1, 0.01).num_hashes == 6
    assert compat.guava(1, 0.01, num_hashes=num_hashes_from_rate(0.01)).num_hashes == 7


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


@pytest.mark.parametrize("size", [1, 7, 1000])
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


@pytest.mark.parametrize("case", SMALL[::12], ids=lambda case: case["options"])
def test_a_dump_has_the_recorded_bits(case: Row) -> None:
    """The recorded bits of an element, dumped, are where its layout expects them."""
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
        "no dump of RedisBloom": [(1, header), (end - 1, data[:-1])],
        "and 2 items": [(1, header), (end + 1, data + b"x")],
        "and 3 items": [(1, b"\x03" + header[1:]), (end, data)],
    }


def test_links_past_one_key_are_refused() -> None:
    """A link that no Redis string holds is a ValueError that names its size."""
    with pytest.raises(ValueError, match="4294967360 bits"):
        RedisBloom(num_bits=2**32 + 64, num_hashes=7, capacity=10, error_rate=0.01)


@pytest.mark.parametrize("message", list(broken_dumps()))
def test_what_is_no_whole_dump_is_refused(message: str) -> None:
    """A dump that is cut, extended or changed is a ValueError that names what is wrong."""
    with pytest.raises(ValueError, match=message):
        read_redisbloom(broken_dumps()[message])


@given(header=st.binary(max_size=150), data=st.binary(max_size=20))
def test_any_bytes_are_a_dump_or_refused(header: bytes, data: bytes) -> None:
    """Nothing but ValueError comes out of garbage."""
    with pytest.raises(ValueError, match=r"header|options|link|chunk"):
        read_redisbloom([(1, header), (1 + len(data), data)])


def test_a_system_does_no_io() -> None:
    """The modules of the systems import nothing but arithmetic: no client, no driver, no socket."""
    allowed = {"bloomredis", "numpy", "mmh3", "cityhash", *sys.stdlib_module_names} - {"socket", "asyncio"}
    for path in set(Path(compat.__file__).parent.rglob("*.py")) - {Path(compat.__file__)}:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] in allowed, path
