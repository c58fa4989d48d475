"""The bits of many items at once are those of the items one by one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from bloomredis.bits import batch
from bloomredis.bits.bitmap import Bits
from bloomredis.bits.blocked import Blocked
from bloomredis.bits.layout import Layout
from bloomredis.compat import go_zero
from bloomredis.operations.items.membership import cutter
from bloomredis.stored import planning
from bloomredis.stored.state.handle import Handle

ITEMS = [f"item-{i}".encode() for i in range(4000)]
LAYOUTS = {
    "classic": planning.plan("classic", 4000, 1e-4),
    "blocked": planning.plan("blocked", 4000, 1e-2),
    "large blocks": planning.plan("blocked", 4000, 1e-3),
    "two blocks an item": planning.plan("blocked", 4000, 1e-6),
    "crowded blocks": Blocked(512, 24, 2),
    "crowded small blocks": Blocked(256, 24, 2, 128),
    "another system's": go_zero(100_000),
}
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


@every_layout
@pytest.mark.parametrize("count", [0, 1, 10, 4000])
def test_many_set_what_each_sets(layout: Layout, count: int) -> None:
    """Also where two of them share a byte, in batches small and large."""
    singly, together = Bits(layout), Bits(layout)
    for item in ITEMS[:count]:
        singly.add(item)
    layout.hashed(ITEMS[:count]).addresses().set(together.array)
    assert together.bytes == singly.bytes


@every_layout
def test_some_of_a_batch_are_packed_as_they_are_alone(layout: Layout) -> None:
    """Whatever was hashed with them."""
    some = np.array([0, 7, 7, 3999])
    assert layout.hashed(ITEMS).take(some).packed() == layout.pack([ITEMS[i] for i in some])


@every_layout
def test_the_places_of_some_are_those_of_the_batch(layout: Layout) -> None:
    """Those that are missing of a part are those that are missing of it in all."""
    bits, places = Bits(layout), layout.hashed(ITEMS).addresses()
    bits.add_many(ITEMS[::400])
    some = np.arange(5, 4000, 5)
    missing = set(places.missing(bits.array).tolist())
    assert [some[i] for i in places.take(some).missing(bits.array)] == [i for i in some if i in missing]


@every_layout
def test_the_firsts_of_equal_items(layout: Layout) -> None:
    """Are found in their order, none twice; in a filter that is not tiny equal bits mean equal items."""
    if layout.num_bits < 1000:
        return
    drawn = random.Random(1).choices(ITEMS, k=3000)
    first_occurrences = [drawn[i] for i in layout.hashed(drawn).first_occurrences()]
    assert first_occurrences == list(dict.fromkeys(drawn))


def test_a_batch_hashed_for_one_layout_is_hashed_again_for_another() -> None:
    """A filter may have become another one since."""
    one, other = LAYOUTS["classic"], LAYOUTS["blocked"]
    hashed = batch.hashed(one, ITEMS)
    for layout in (one, other):
        opened = Handle(b"", layout, 1000, b"seen")
        cut, last = cutter(opened, ITEMS, 5, hashed)
        assert cut(5, last) == layout.pack(ITEMS[5:])
