"""The layouts of other systems set the bits that those systems set."""

from __future__ import annotations

import pytest

from bloomredis import compat
from bloomredis.compat.bitmap import Bitmap
from bloomredis.compat.hashes import highwayhash, murmur2
from bloomredis.compat.php_bkdr import seeds
from bloomredis.compat.redisson import _KEY
from tests.support.layouts import MAKE, NAMED, unpacked
from tests.support.values import for_each
from tests.support.vectors import element, vectors

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


def chunks() -> list[tuple[str, int]]:
    return [(system, at) for system in SYSTEMS for at in range(0, len(vectors(system)["cases"]), CHUNK)]


def as_recorded(system: str, offsets: list[int]) -> list[int]:
    """Return offsets in the order of a system's vectors."""
    return offsets if vectors(system)["offsets_order"].startswith("probe") else sorted(set(offsets))


@for_each(("system", "start"), chunks())
def test_every_case_is_reproduced(system: str, start: int) -> None:
    """Each recorded element sets the recorded bits, in a filter of the recorded size, alone and packed."""
    for case in vectors(system)["cases"][start : start + CHUNK]:
        layout, item = MAKE[system](case), element(case)
        assert (layout.num_bits, layout.num_hashes) == (case["num_bits"], case["num_hashes"]), case
        assert as_recorded(system, layout.offsets(item)) == case["offsets"], case
        (packed,) = unpacked(layout.pack(layout.encode_all([item])), layout)
        assert as_recorded(system, packed) == case["offsets"], case


@for_each("system", [name for name in SYSTEMS if "unpaired_surrogates" in vectors(name)])
def test_unpaired_surrogates_are_what_java_makes_of_them(system: str) -> None:
    """An unpaired surrogate sets the bits that Java sets for it."""
    for row in vectors(system)["unpaired_surrogates"]:
        text = bytes.fromhex(row["utf16_code_units_hex"]).decode("utf-16-be", "surrogatepass")
        layout = MAKE[system]({"capacity": 3000, "error_rate": 0.03})
        assert (layout.num_bits, layout.num_hashes) == (row["num_bits"], row["num_hashes"]), row
        assert as_recorded(system, layout.offsets(text)) == row["offsets"], row
        assert unpacked(layout.pack(layout.encode_all([text])), layout) == [layout.offsets(text)], row


@NAMED
def test_surrogates_that_are_a_pair_are_one_character(layout: Bitmap) -> None:
    """Java joins two surrogates in a row; systems whose strings are bytes refuse them."""
    if layout.name in {"go_zero", "php_bkdr", "redisbloom"}:
        with pytest.raises(ValueError, match="surrogates not allowed"):
            layout.offsets("\ud83d\ude00")
    else:
        assert layout.offsets("\ud83d\ude00") == layout.offsets("\N{GRINNING FACE}")


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
    """The seeds are ints until 64 bits are full, and floats after that."""
    for row, seed in zip(vectors("php_bkdr")["bkdr_seeds"]["first_22"], seeds(22), strict=True):
        assert seed == row["seed"], row
        assert isinstance(seed, int if row["php_type"] == "integer" else float), row


def test_phps_v3_as_revised() -> None:
    """The revised v3 has hashes of 63 bits, and another key than v1 and v2."""
    for case in vectors("php_bkdr_v3")["cases"]:
        if case["servers"] == 1:
            layout, item = compat.php_bkdr(case["num_bits"], case["num_hashes"], revised=True), element(case)
            assert layout.offsets(item) == case["offsets"], case
            assert unpacked(layout.pack(layout.encode_all([item])), layout) == [case["offsets"]], case
            assert layout.key("name") == "name:0"
    assert compat.php_bkdr(1000, 4, revised=True) != compat.php_bkdr(1000, 4)
