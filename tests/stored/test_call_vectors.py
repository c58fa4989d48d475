"""The client's arguments, and the keys beside a filter's own, are as lua/FORMAT.md says."""

from __future__ import annotations

import re
from itertools import count
from types import SimpleNamespace
from typing import Any, Final

import mmh3
import pytest
import redis

from bloomredis import BloomFilter, keyed
from bloomredis.bits import module_items
from bloomredis.bits.blocked import Blocked
from bloomredis.bits.classic import Classic, Counting
from bloomredis.bits.encoding import number_of
from bloomredis.operations.claims import state
from bloomredis.protocol.keys import auxiliary_prefix
from bloomredis.protocol.receipts import Sessions
from bloomredis.stored.foreign.bitmap import description
from bloomredis.stored.layers.layers import StoredLayers
from bloomredis.stored.layers.record import RotatingRecord, ScalingRecord
from tests.support.inside import handle_of
from tests.support.values import for_each
from tests.support.vectors import vectors

VECTORS: Final = vectors("calls")
RECORDS: Final[dict[str, Any]] = {"scaling": ScalingRecord, "rotating": RotatingRecord}


@for_each("case", VECTORS["hashes"])
def test_golden_hashes(case: dict[str, Any]) -> None:
    """The library's two hashes are those of the vectors."""
    item = bytes.fromhex(case["item"])
    assert mmh3.hash_bytes(item).hex() == case["x64_128"]
    for seed, value in case["x86_32"].items():
        assert mmh3.hash(item, int(seed), signed=False) == value


@for_each("case", VECTORS["prefixes"])
def test_golden_prefixes(case: dict[str, Any]) -> None:
    """The keys beside a filter's own have these prefixes."""
    assert auxiliary_prefix(case["name"].encode()).decode() == case["prefix"]


@for_each("case", VECTORS["items"])
def test_golden_packed_items(case: dict[str, Any]) -> None:
    """Each item is packed to these bytes, in a counting filter as in the classic layout."""
    sizes = [case[name] for name in ("num_bits", "num_hashes", "blocks_per_item", "block_bits")]
    layouts = [Blocked(*sizes)] if sizes[-1] else [Classic(*sizes[:2]), Counting(*sizes[:2])]
    item = bytes.fromhex(case["item"])
    for layout in layouts:
        assert layout.pack_one(item).hex() == case["packed"]
        assert layout.pack([item] * 20).hex() == case["packed"] * 20


@for_each("case", VECTORS["claims"])
def test_golden_claims(any_client: redis.Redis, case: dict[str, Any]) -> None:
    """A named holder's claim has this key and replaces its predecessor; a released item is free."""
    f = BloomFilter(any_client, case["name"], capacity=100, error_rate=0.01)
    f.create()
    any_client.setrange(case["name"], 40, bytes.fromhex(case["generation"]))
    any_client.set(case["key"], bytes.fromhex(case["value"]), px=60_000)
    f = BloomFilter.open(any_client, case["name"])
    item = bytes.fromhex(case["item"])
    assert f.claim(item).state == "busy"
    assert f.claim(item, owner=case["holder"]).state == "claimed"
    value: Any = any_client.get(case["key"])
    assert (value[:16].hex(), len(value)) == (case["value"][:32], 24)
    any_client.set(case["key"], bytes.fromhex(case["released"]), px=60_000)
    assert f.claim(item).state == "claimed"


@for_each("case", VECTORS["claims"])
def test_golden_owners(monkeypatch: pytest.MonkeyPatch, case: dict[str, Any]) -> None:
    """The owner consists of the holder, the filter object, the number of the claim and random bytes."""
    monkeypatch.setattr(state, "os", SimpleNamespace(urandom=lambda _: bytes.fromhex(case["random"])))
    sessions = Sessions(auxiliary_prefix(case["name"].encode()))
    sessions._names, sessions._numbers = case["object"] + "01-", count(case["number"])  # drawn at random
    (owner,) = state.ClaimOptions.of(1.0, case["holder"]).new_owners(sessions, 1)
    assert case["generation"] + owner.hex() == case["value"]


@for_each("case", VECTORS["encodings"])
def test_golden_encodings(case: dict[str, Any]) -> None:
    """Keyed items become these bytes, and the header identifies the key."""
    encode = keyed(bytes.fromhex(case["secret"]))
    assert number_of(encode) == case["number"]
    for item in case["items"]:
        assert encode(bytes.fromhex(item["item"])).hex() == item["encoded"]


@for_each("case", VECTORS["bitmaps"])
def test_golden_descriptions(case: dict[str, Any]) -> None:
    """A bitmap of another system has this description."""
    layout: Any = SimpleNamespace(num_hashes=case["num_hashes"], num_bits=case["num_bits"])
    assert description(layout, case["ttl"], renews=bool(case["renews"])).hex() == case["hex"]


@for_each("case", VECTORS["layers"])
def test_golden_identities_of_layers(case: dict[str, Any]) -> None:
    """A layer record and its layers have these identities."""
    made = RECORDS[case["kind"]]
    options: Any = {"ttl": 0, "on_lost": "raise", "wait": None}
    stored = StoredLayers("seen", made=made, new=None, layout=None, **options)
    handle = handle_of(stored, made.parse(bytes.fromhex(case["record"])))
    assert handle.identity.hex() == case["identity"]


@for_each("case", VECTORS["marks"])
def test_golden_marks(case: dict[str, Any]) -> None:
    """A filter of the module has these markers, and is asked about the others too."""
    marking = module_items.marking(case["error_rate"])
    items = [bytes.fromhex(item) for item in case["items"]]
    asked = {*marking.of(bytes.fromhex(case["generation"])), *marking.questions(case["encoding"])}
    assert tuple(items[: marking.markers]) == marking.of(bytes.fromhex(case["generation"]))
    assert asked.issuperset(items)
    assert len(items) == marking.total(encoded=bool(case["encoding"]))


def test_a_receipt(any_client: redis.Redis) -> None:
    """It has the call's number and check, and one character for each item."""
    f = BloomFilter(any_client, "seen", capacity=100, error_rate=0.01)
    f.add("a")
    f.add_many(["a", "b", "c"])
    (key,) = any_client.scan_iter("{seen}:receipt:*")
    receipt: Any = any_client.get(key)
    assert re.fullmatch(rb"\d\.[0-9a-f]{8}:011;", receipt)
