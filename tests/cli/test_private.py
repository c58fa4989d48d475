"""The filter of a private `dedupe`, which answers as a filter on a server would."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

import pytest

from bloomredis import ScalingBloomFilter
from bloomredis.cli.private import PrivateFilter
from tests.support.clock import Clock
from tests.support.servers import Server
from tests.support.sizes import sized
from tests.support.values import for_each


def some_batches(count: int, rng: random.Random) -> Iterator[list[bytes]]:
    """Yield items, a third of them repeats, in batches of many sizes."""
    items = (b"%d" % rng.randrange(count) for _ in range(count))
    while batch := list(islice(items, rng.choice([1, 5, 13, 14, 200, 4096, 20_000]))):
        yield batch


@pytest.mark.parametrize("error_rate", [0.3, 0.01, 1e-6])
@sized("count", make_test=20_000, make_test_all=200_000)
def test_its_answers_are_those_of_a_server(
    any_server: Server, error_rate: float, count: int, seed: int
) -> None:
    """Each item gets the answer of a `ScalingBloomFilter`, false positives and full layers included."""
    ours = PrivateFilter.of(count // 20, error_rate)
    rng = random.Random(seed)
    with any_server.client() as client:
        theirs = ScalingBloomFilter[bytes](client, "x", capacity=count // 20, error_rate=error_rate)
        repeats = 0
        for batch in some_batches(count, rng):
            answers = theirs.add_many(batch)
            assert ours.add_many(batch) == answers
            repeats += len(batch) - sum(answers)
        layers = len(theirs.info().layers)
    assert repeats
    assert layers > 3


def test_a_small_layer_has_the_order_of_the_items() -> None:
    """In one batch, items are false positives only because of those before them."""
    rng = random.Random(1)
    items = [b"%d" % rng.randrange(10**6) for _ in range(5000)]
    at_once, singly = PrivateFilter.of(20_000, 0.3), PrivateFilter.of(20_000, 0.3)
    found = [answer for item in items for answer in singly.add_many([item])]
    assert at_once.add_many(items) == found
    assert 0 < found.count(False) < 1000


def test_a_window(clock: Clock) -> None:
    """A private filter with a window finds an item within it, and forgets it one slice later."""
    seen = PrivateFilter.of(1000, 1e-6, window=3600)
    assert seen.add_many([b"a"]) == [True]
    clock.advance(3590)
    assert seen.add_many([b"a", b"b"]) == [False, True]
    clock.advance(3600 + 900 - 3590)
    assert seen.add_many([b"a", b"b"]) == [True, False]


@for_each("window", [0.1, 1e12])
def test_a_window_that_is_none(window: float) -> None:
    """A window too short or too long is an error with its limits."""
    with pytest.raises(ValueError, match=r"from 0\.4 to 1,000,000,000 seconds"):
        PrivateFilter.of(100, 1e-6, window=window)


def test_a_window_takes_more_than_its_capacity() -> None:
    """A slice begins another layer when one is full."""
    seen = PrivateFilter.of(100, 1e-6, window=3600)
    items = [b"%d" % number for number in range(1000)]
    assert sum(seen.add_many(items)) >= 999
    assert not any(seen.add_many(items))
