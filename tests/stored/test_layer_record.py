"""The record of a filter in layers: its layers, and the next one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomredis import FilterFullError
from bloomredis.bits import layered
from bloomredis.bits.sizing import MAX_BITS
from bloomredis.stored import planning
from bloomredis.stored.layers.record import RotatingRecord, ScalingRecord
from tests.support.sizes import long, short
from tests.support.values import for_each
from tests.support.vectors import vectors

VECTORS = vectors("stacks")
KINDS: dict[str, Any] = {"scaling": ScalingRecord, "rotating": RotatingRecord}


def scaling(ratio: float = 0.5) -> ScalingRecord:
    head = planning.whole(1000, 1e-3, None, ScalingRecord.kind)
    return ScalingRecord(head=head, expansion=2, tightening_ratio=ratio).complete()


def ruled_by(rules: int, record: ScalingRecord) -> ScalingRecord:
    return replace(record, head=replace(record.head, rules=rules))


def rotating(capacity: int = 1000, slices: int = 4) -> RotatingRecord:
    head = planning.whole(capacity, 1e-3, None, RotatingRecord.kind)
    return RotatingRecord(head=head, width=500_000, slices=slices).complete()


@for_each("root", [scaling(), rotating()])
def test_a_root_is_read_as_it_was_written(root: Any) -> None:
    """The bytes hold every field."""
    full = replace(root, newest=7, began=(1, 2, 2**50))
    assert type(root).parse(full.pack()) == full


@for_each("vector", VECTORS)
def test_the_roots_of_the_format(vector: dict[str, Any]) -> None:
    """The bytes are those that lua/FORMAT.md describes."""
    root = KINDS[vector["kind"]].parse(bytes.fromhex(vector["root"]))
    assert root.pack().hex() == vector["root"]
    assert root.newest == vector["newest"]
    assert list(root.began) == vector["begun"]
    assert root.parameters == vector["parameters"]
    assert [layer.pack().hex()[:96] for layer in root.layers()] == vector["layers"]


@for_each(
    ("at", "byte", "complaint"),
    [
        (0, 0, "begins with"),
        (10, 0, "a BloomFilter, not a ScalingBloomFilter"),
        (10, 2, "a RotatingBloomFilter"),
        (11, 3, "options 0300000000"),
        (12, 2, "options 0102000000"),
        (64, 0xFF, "tightening_ratio"),
        (79, 0, "expansion 0"),
        (87, 0, "3 layers, of which the newest is number 0"),
        (87, 255, "number 255; at most 255 layers are possible"),
        (80, 1, "number 72057594037927938; at most 255"),
    ],
)
def test_a_damaged_root_is_refused(at: int, byte: int, complaint: str) -> None:
    """Bytes that no version wrote are refused."""
    data = bytearray(replace(scaling(), newest=2, began=(1, 2, 3)).pack())
    data[at] = byte
    with pytest.raises(ValueError, match=complaint):
        ScalingRecord.parse(bytes(data))


@for_each("length", [77, 87, 89, 109])
def test_a_root_of_another_length_is_refused(length: int) -> None:
    """A record that lacks a field or part of a time is refused."""
    data = replace(scaling(), newest=2, began=(1, 2, 3)).pack()
    with pytest.raises(ValueError, match=f"{length} bytes"):
        ScalingRecord.parse(data[:length])


def test_a_capacity_that_no_layer_was_made_for() -> None:
    """A record whose first layer does not have the size for its capacity is refused."""
    data = bytearray(replace(scaling(), began=(1,)).pack())
    data[24:32] = (2**40).to_bytes(8, "big")
    with pytest.raises(ValueError, match="do not fit its capacity"):
        ScalingRecord.parse(bytes(data))


@for_each("ratio", [0.5, 0.8, 0.9])
def test_the_rates_of_all_layers_stay_below_the_configured_one(ratio: float) -> None:
    """They are p(1 - r)r^j, whose sum is p."""
    root = scaling(ratio=ratio)
    rates = [root.planned(number).error_rate for number in range(40)]
    assert rates == [pytest.approx(1e-3 * (1 - ratio) * ratio**j) for j in range(40)]
    assert sum(rates) < 1e-3
    assert 0.95 < planning.expected_error_rate(root.planned(9), 1000 * 2**9) / rates[9] < 0.99


@pytest.mark.parametrize("layout", planning.NAMES)
@pytest.mark.parametrize(
    ("rate", "ratio"),
    [
        *(short(rate, ratio) for rate, ratio in ((0.5, 0.9), (1e-6, 0.01))),
        *(long(rate, ratio) for rate, ratio in ((0.5, 0.01), (0.5, 0.5), (1e-6, 0.5), (1e-6, 0.9))),
        *(long(1e-2, ratio) for ratio in (0.01, 0.5, 0.9)),
    ],
)
def test_the_expected_rates_of_all_layers_stay_below_the_configured_one(
    layout: str, rate: float, ratio: float
) -> None:
    """The formula for full layers, of any first capacity and growth, stays below it for 100 layers."""
    for capacity, expansion in ((1, 1), (10_000, 1), (100, 2), (10**5, 10)):
        head = planning.whole(capacity, rate, layout, ScalingRecord.kind)
        record = ScalingRecord(head=head, expansion=expansion, tightening_ratio=ratio).complete()
        expected = 0.0
        for number in range(100):
            try:
                layer = record.planned(number)
            except FilterFullError:
                break
            expected += planning.expected_error_rate(layer, layer.capacity)
        assert expected < rate


@for_each("layout", planning.NAMES)
@for_each("rate", [0.05, 1e-2, 1e-3, 1e-6])
def test_the_budget_is_used(layout: str, rate: float) -> None:
    """Without the reserve for more layers, at least 97% of the rate is used; by earlier rules it was 90%."""
    now = ScalingRecord(
        head=planning.whole(100_000, rate, layout, ScalingRecord.kind), expansion=2, tightening_ratio=0.5
    )
    for record, least, most in ((now, 0.97, 0.99), (ruled_by(0, now), 0.89, 0.93)):
        layers = [record.planned(number) for number in range(8)]
        expected = sum(planning.expected_error_rate(layer, layer.capacity) for layer in layers)
        assert least < expected / rate / (1 - 0.5**8) < most


@for_each("layout", planning.NAMES)
@for_each("rate", [1e-2, 1e-6, 1e-12, 1e-30])
def test_a_low_rate_makes_no_layer_impossible(layout: str, rate: float) -> None:
    """Any layer of an earlier release can still begin, and takes at most 64 MB more."""
    now = ScalingRecord(
        head=planning.whole(1000, rate, layout, ScalingRecord.kind), expansion=2, tightening_ratio=0.5
    )
    before = ruled_by(0, now)
    for number in range(40):
        assert now.planned(number).capacity <= before.planned(number).capacity * 1.02
        assert now.planned(number).num_bits <= before.planned(number).num_bits + 2**29


def test_layers_grow_up_to_what_a_key_can_hold() -> None:
    """Capacities are n·s^j, and the largest layers are nearly as large as a key can be."""
    root = scaling()
    assert [root.planned(number).capacity for number in range(5)] == [1000, 2000, 4000, 8000, 16_000]
    late = root.planned(30)
    assert 0.97 * MAX_BITS < late.num_bits <= MAX_BITS
    assert root.planned(31).capacity < late.capacity


def test_a_stack_can_be_full() -> None:
    """If a layer would need more hashes than possible, the error says so."""
    with pytest.raises(FilterFullError, match="hashes"):
        scaling(ratio=0.0001).planned(60)
    with pytest.raises(FilterFullError, match="hashes"):
        replace(scaling(ratio=0.0001), newest=59).following()


KNOWN = replace(rotating(), newest=5, began=(10, 20, 30))


LATER = {
    "the same": KNOWN,
    "with another layer": replace(KNOWN, newest=6, began=(20, 30, 40)),
    "with other layers alone": replace(KNOWN, newest=9, began=(70,)),
}
OTHERS = {
    "one layer is another": replace(KNOWN, newest=5, began=(10, 20, 31)),
    "revived": replace(KNOWN, newest=0, began=(70,)),
    "an older copy": replace(KNOWN, newest=4, began=(10, 20)),
    "renewed": replace(KNOWN.renewed(), newest=6, began=(20, 30, 40)),
}


@for_each("found", LATER | OTHERS)
def test_a_record_only_goes_forward(found: str) -> None:
    """A later record has the same generation, no older newest layer, and equal layers where both have one."""
    assert (LATER | OTHERS)[found].continues(KNOWN) == (found in LATER)


def test_a_filter_ended_before_another_was_begun() -> None:
    """By slices, its newest layer was forgotten before; a scaling filter never ends."""
    known = replace(rotating(), began=(1_999_999, 2_499_999))  # the fifth slice of 500 ms
    later = (replace(rotating(), began=(begun, 2 * begun)) for begun in (4_499_999, 4_500_000))
    assert [known.ended_before(other) for other in later] == [False, True]
    grown = replace(scaling(), began=(1,))
    assert not grown.ended_before(replace(grown, began=(10**15,)))


@for_each("slices", [1, 4, 24])
def test_two_windows_of_items_stay_within_the_rate(slices: int) -> None:
    """However items are spread over layers, the layers' rates sum to at most the configured one."""
    root = rotating(capacity=2_400_000, slices=slices)
    layer = root.planned(0)
    assert layer.capacity == 2_400_000 // slices
    full, half = (planning.expected_error_rate(layer, layer.capacity // part) for part in (1, 2))
    assert 2 * slices * full < 1e-3 * 1.01
    assert 4 * slices * half < 2 * slices * full


@given(
    st.lists(st.text(max_size=20), min_size=1, max_size=30),
    st.lists(st.tuples(st.integers(1, 5000), st.floats(1e-12, 0.3)), min_size=1, max_size=6),
    st.sampled_from(planning.NAMES),
)
def test_what_is_packed_for_all_layers(items: list[str], sizes: list[tuple[int, float]], name: str) -> None:
    """It equals the packed items of each layer, one after the other; for one item as for many."""
    made = tuple(planning.plan_layout(name, capacity, error_rate) for capacity, error_rate in sizes)
    encoded = [item.encode() for item in items]
    wanted = [b"".join(layer.pack_one(item) for layer in made) for item in encoded]
    stacked = layered.Layered(made)
    assert stacked.pack(encoded) == b"".join(wanted)
    assert [stacked.pack_one(item) for item in encoded] == wanted
    assert {len(each) for each in wanted} == {stacked.item_bytes}
