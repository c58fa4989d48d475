"""Size and false-positive rate of a filter in the blocked layout."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from bloomredis.bits import sizing
from bloomredis.bits.block_hashing import regions_of
from bloomredis.bits.blocked import Blocked
from bloomredis.bits.limits import BLOCK_BITS, MAX_BITS_A_BLOCK, SMALL_BLOCK_BITS

MOST_MEMORY: Final = 1.16
"""Limit of the memory, as a multiple of the classic layout's."""
_ENOUGH: Final = 1.2
"""The same, of blocks of either size that may be chosen, with some room."""


def expected_error_rate(items: int, layout: Blocked) -> float:
    """Probability of a false positive after so many items.

    In a region of R blocks a block holds i of n items, i being binomial with p = 1/R (all but Poisson),
    and the k' bits of an absent item are set with probability (1 - (1 - 1/b)^(i k'))^k'
    (Putze, Sanders & Singler).  That assumes a block of average fill and bits
    drawn with repeats; here the bits are distinct, and inclusion-exclusion gives the mean exactly:

        sum over r = 0 .. k' of (-1)^r C(k', r) (1 - (1 - C(b - r, k') / C(b, k')) / R)^n

    The item is a false positive if this happens in all of its regions, which are independent.
    """
    return _rate(items, layout.regions, layout.bits_per_block, layout.block_bits)


def _rate(items: int, regions: Sequence[tuple[int, int]], bits_per_block: int, block_bits: int) -> float:
    terms = _terms(bits_per_block, block_bits)
    rates: dict[int, float] = {}
    for _, size in regions:
        if size not in rates:
            rates[size] = sum(sign * math.exp(items * math.log1p(-hit / size)) for sign, hit in terms)
    return math.prod(max(rates[size], 0.0) for _, size in regions)


@lru_cache
def _terms(bits: int, block_bits: int) -> list[tuple[int, float]]:
    """Return for r = 0 .. k' the signed binomial, and the probability that an item hits one of r bits."""
    subsets = math.comb(block_bits, bits)
    return [
        ((-1) ** r * math.comb(bits, r), 1 - math.comb(block_bits - r, bits) / subsets)
        for r in range(bits + 1)
    ]


@lru_cache
def plan(capacity: int, error_rate: float, *, small: bool = True) -> Blocked:
    """Return the layout for so many items at an error rate.  Raises `ValueError` if one key cannot hold it.

    A block accounts for at most three digits of the error rate, p^(1/g) >= 1/1000: more would take over
    1.16 times the memory of the classic layout.  k' is then the number that needs the fewest blocks.  Blocks
    of 128 bits cost a server less, and take more memory: they are chosen where that too is at most 1.16
    times the classic one's.

    :param small: blocks of 128 bits may be chosen.
    """
    regions = max(1, math.ceil(-math.log10(error_rate) / 3 - 1e-9))
    classic = sizing.classic_bits(capacity, error_rate)
    planned = _planned(capacity, error_rate, regions, SMALL_BLOCK_BITS) if small else None
    if planned is None or planned.num_bits > min(
        MOST_MEMORY * max(classic, sizing.LEAST_BITS), sizing.MAX_BITS
    ):
        planned = _planned(capacity, error_rate, regions, BLOCK_BITS)
    sizing.checked_num_bits(planned.num_bits, capacity, error_rate)
    return planned


def _planned(capacity: int, error_rate: float, regions: int, block_bits: int) -> Blocked:
    """Return the smallest layout with blocks of this size."""
    enough = regions + math.ceil(_ENOUGH * sizing.classic_bits(capacity, error_rate) / block_bits)

    def rate(blocks: int, bits: int) -> float:
        return _rate(capacity, regions_of(blocks, regions), bits, block_bits)

    def fewest(bits: int) -> int:
        sizes = range(regions, enough)
        return regions + bisect_left(sizes, -error_rate, key=lambda blocks: -rate(blocks, bits))

    choices = [(fewest(bits), bits) for bits in range(1, MAX_BITS_A_BLOCK + 1)]
    blocks, bits = min(choices, key=lambda choice: (choice[0], rate(*choice)))
    # With few blocks, one less may come nearer to the rate asked for, and exceed it by at most 5%.
    nearest = rate(blocks, bits)  # 0 of a number too small for a float
    limit = min(1.05, error_rate / nearest) if nearest else 1.05
    if blocks > regions and rate(blocks - 1, bits) / error_rate <= limit:
        blocks -= 1
    return Blocked(blocks * block_bits, regions * bits, regions, block_bits)
