"""The size and false-positive rate of a filter in the blocked layout."""

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
"""The limit of the memory, as a multiple of the classic layout's."""
_ENOUGH: Final = 1.2
"""The upper end of the search for a number of blocks, as a multiple of the classic layout's memory."""


def expected_error_rate(items: int, layout: Blocked) -> float:
    """Return the probability of a false positive after this number of items.

    In a region of R blocks a block holds i of n items; i is binomial with p = 1/R, nearly Poisson.  The k'
    bits of an absent item are all set with probability (1 - (1 - 1/b)^(i k'))^k' (Putze, Sanders & Singler),
    if the block has average fill and bits are drawn with repeats.  Here the bits are distinct, and
    inclusion-exclusion gives the mean exactly:

        sum over r = 0 .. k' of (-1)^r C(k', r) (1 - (1 - C(b - r, k') / C(b, k')) / R)^n

    The item is a false positive if its bits are all set in each of its regions, which are independent.
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
    """Return, for r = 0 .. k', the signed binomial and the probability that an item hits one of r bits."""
    subsets = math.comb(block_bits, bits)
    return [
        ((-1) ** r * math.comb(bits, r), 1 - math.comb(block_bits - r, bits) / subsets)
        for r in range(bits + 1)
    ]


@lru_cache
def plan_blocked(capacity: int, error_rate: float, *, small: bool = True) -> Blocked:
    """Return the layout for a capacity and an error rate; raise `ValueError` if one key cannot hold it.

    A block contributes at most three digits of the error rate, p^(1/g) >= 1/1000: more digits would take over
    1.16 times the memory of the classic layout.  Then k' is chosen for the fewest blocks.  Blocks of 128 bits
    take less server time but more memory; they are chosen if the filter still takes at most 1.16 times the
    memory of the classic layout.

    :param small: allow blocks of 128 bits.
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
    # With few blocks, one block less may come nearer to the wanted rate; it may exceed that by at most 5%.
    nearest = rate(blocks, bits)  # 0 if it is too small for a float
    limit = min(1.05, error_rate / nearest) if nearest else 1.05
    if blocks > regions and rate(blocks - 1, bits) / error_rate <= limit:
        blocks -= 1
    return Blocked(blocks * block_bits, regions * bits, regions, block_bits)
