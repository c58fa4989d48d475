"""A batch sets and tests the same bits as its items one by one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from bloomredis.bits import batch
from bloomredis.bits.bitmap import Bits
from bloomredis.bits.blocked import Blocked
from bloomredis.bits.layout import Layout
from bloomredis.compat import go_zero
from bloomredis.operations.items.packing import range_packer
from bloomredis.stored import planning
from bloomredis.stored.state.handle import Handle

ITEMS = [f"item-{i}".encode() for i in range(4000)]
LAYOUTS = {
    "classic": planning.plan_layout("classic", 4000, 1e-4),
    "blocked": planning.plan_layout("blocked", 4000, 1e-2),
    "large blocks": planning.plan_layout("blocked", 4000, 1e-3),
    "two blocks an item": planning.plan_layout("blocked", 4000, 1e-6),
    "crowded blocks": Blocked(512, 24, 2),
    "crowded small blocks": Blocked(256, 24, 2, 128),
    "another system's": go_zero(100_000),
}
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


@every_layout
@pytest.mark.parametrize("count", [0, 1, 10, 4000])
def test_many_set_what_each_sets(layout: Layout, count: int) -> None:
    """A batch sets the bits of each item, small or large, also where two items share a byte."""
    singly, together = Bits(layout), Bits(layout)
    for item in ITEMS[:count]:
        singly.add(item)
    layout.hashed(ITEMS[:count]).addresses().set(together.array)
    assert together.bytes == singly.bytes


@every_layout
def test_some_of_a_batch_are_packed_as_they_are_alone(layout: Layout) -> None:
    """Some items of a hashed batch are packed the same as those items alone."""
    some = np.array([0, 7, 7, 3999])
    assert layout.hashed(ITEMS).take(some).packed() == layout.pack([ITEMS[i] for i in some])


@every_layout
def test_the_places_of_some_are_those_of_the_batch(layout: Layout) -> None:
    """Some addresses of a batch report the same missing items as the whole batch does."""
    bits, places = Bits(layout), layout.hashed(ITEMS).addresses()
    bits.add_many(ITEMS[::400])
    some = np.arange(5, 4000, 5)
    missing = set(places.missing(bits.array).tolist())
    assert [some[i] for i in places.take(some).missing(bits.array)] == [i for i in some if i in missing]


@every_layout
def test_the_firsts_of_equal_items(layout: Layout) -> None:
    """The first occurrences of equal items come in their order and once each, unless the filter is tiny."""
    if layout.num_bits < 1000:
        return
    drawn = random.Random(1).choices(ITEMS, k=3000)
    first_occurrences = [drawn[i] for i in layout.hashed(drawn).first_occurrences()]
    assert first_occurrences == list(dict.fromkeys(drawn))


def test_a_batch_hashed_for_one_layout_is_hashed_again_for_another() -> None:
    """A batch that was hashed for one layout is hashed again when the filter has another."""
    one, other = LAYOUTS["classic"], LAYOUTS["blocked"]
    hashed = batch.hashed(one, ITEMS)
    for layout in (one, other):
        opened = Handle(b"", layout, 1000, b"seen")
        cut, last = range_packer(opened, ITEMS, 5, hashed)
        assert cut(5, last) == layout.pack(ITEMS[5:])
