"""The arithmetic of filter sizes."""

from __future__ import annotations

import math

import pytest

from bloomredis.bits import sizing
from bloomredis.stored import planning
from tests.support.values import for_each


@for_each(
    ("capacity", "error_rate", "bits", "hashes"),
    [(1_000_000, 0.01, 9_585_059, 7), (1_000, 0.001, 14_378, 10), (1, 0.5, 2, 1), (10, 1e-9, 432, 30)],
)
def test_known_sizes(capacity: int, error_rate: float, bits: int, hashes: int) -> None:
    """The numbers of bits and hashes are those of the textbook."""
    assert sizing.classic_bits(capacity, error_rate) == bits
    assert sizing.num_hashes(bits, capacity) == hashes


def test_the_limit_of_one_key_is_named() -> None:
    """A filter of more than 2^32 bits is refused, and the error names the number that would fit."""
    with pytest.raises(ValueError, match=r"needs 9585058378 bits.*2\^32.*4294966784"):
        sizing.num_bits(1_000_000_000, 0.01)
    assert sizing.num_bits(448_000_000, 0.01) <= sizing.MAX_BITS


@for_each("error_rate", [0.9, 0.35, 0.05, 1e-2, 1e-3, 1e-5, 1e-9])
@for_each("capacity", [1, 10, 100, 1_000, 100_000, 1_000_000])
def test_small_classic_filters_get_the_bits_that_they_need(capacity: int, error_rate: float) -> None:
    """Small filters keep their error rate with equal probes counted; larger ones take the textbook's bits."""
    layout = planning.plan_layout("classic", capacity, error_rate)
    textbook = sizing.classic_bits(capacity, error_rate)
    rate = sizing.classic_error_rate(capacity, layout.num_bits, layout.num_hashes)
    assert rate <= 1.01 * error_rate
    assert layout.num_bits >= max(1024, textbook)
    if 1e-3 <= error_rate <= 0.3 and capacity >= 1000:
        assert layout.num_bits == textbook
    assert planning.plan_counting(capacity, error_rate).num_bits == layout.num_bits
    assert planning.plan_counting(capacity, error_rate).num_hashes == layout.num_hashes


def test_what_fitted_a_key_still_does() -> None:
    """A filter whose textbook size fits one key is never refused because of the added bits."""
    assert sizing.num_bits(19_000_000_000, 0.9) == sizing.MAX_BITS
    assert sizing.num_counters(4_500_000_000, 0.9) == sizing.MAX_BITS // 4


@for_each("layout", planning.NAMES)
def test_more_hashes_than_a_header_can_say_are_refused(layout: str) -> None:
    """An error rate that needs more than 255 hashes raises an error that names the rate."""
    assert planning.new_header(1000, 1e-70, layout).pack()
    with pytest.raises(ValueError, match=r"error_rate 1e-100 needs .* at most 255"):
        planning.new_header(1000, 1e-100, layout)


def test_an_empty_filter_counts_nothing() -> None:
    """A filter without set bits has an estimated count of 0."""
    assert sizing.approximate_count(0, 1000, 7) == 0


def test_a_full_filter_has_a_finite_estimate() -> None:
    """A filter with all bits set would mean infinitely many items; the estimate stays finite."""
    assert sizing.approximate_count(1000, 1000, 7) == round(1000 / 7 * math.log(1000))


def test_the_estimate_inverts_the_expected_fill() -> None:
    """The estimate for the bits that n items are expected to set is n."""
    bits, hashes, items = 9_585_059, 7, 700_000
    ones = bits * (1 - (1 - 1 / bits) ** (hashes * items))
    assert sizing.approximate_count(round(ones), bits, hashes) == pytest.approx(items, rel=1e-5)


def test_the_error_rate_at_capacity_is_the_configured_one() -> None:
    """At the expected fill of a filter at capacity, (X / m)^k is p."""
    bits = sizing.num_bits(1_000_000, 0.001)
    hashes = sizing.num_hashes(bits, 1_000_000)
    fill = 1 - math.exp(-hashes * 1_000_000 / bits)
    assert sizing.expected_error_rate(fill, hashes) == pytest.approx(0.001, rel=0.01)


@pytest.mark.parametrize("capacity", [10, 1000])
@for_each("error_rate", [5e-324, 1e-308, 1e-200])
def test_a_rate_that_no_filter_has_is_refused(capacity: int, error_rate: float) -> None:
    """A rate that needs too many hashes is refused for that reason, however small the filter is."""
    with pytest.raises(ValueError, match="at most 255"):
        planning.new_header(capacity, error_rate, "blocked")
