"""How large a filter in the blocked layout has to be, and its false-positive rate."""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import lru_cache

from bloomredis.bits import sizing
from bloomredis.bits.blocked import Blocked, _regions
from bloomredis.bits.limits import BLOCK_BITS, MAX_BITS_A_BLOCK

# -- how large


def expected_error_rate(items: int, blocks: int, blocks_per_item: int, bits_per_block: int) -> float:
    """Chance that an absent item is called present when so many items are in.

    In a region of R blocks a block holds i of n items, i being binomial with p = 1/R (all but Poisson),
    and the absent item finds its k' bits set with a probability of (1 - (1 - 1/256)^(i k'))^k'
    (Putze, Sanders & Singler).  That takes the block to be as full as it is on average, and bits to be
    drawn with repeats; here they are different ones, and then inclusion and exclusion give the mean exactly:

        sum over r = 0 .. k' of (-1)^r C(k', r) (1 - (1 - C(256 - r, k') / C(256, k')) / R)^n

    The item is called present if that happens in all of its regions, which know nothing of each other.
    """
    terms = _terms(bits_per_block)
    rates: dict[int, float] = {}
    for _, size in _regions(blocks, blocks_per_item):
        if size not in rates:
            rates[size] = sum(sign * math.exp(items * math.log1p(-hit / size)) for sign, hit in terms)
    return math.prod(max(rates[size], 0.0) for _, size in _regions(blocks, blocks_per_item))


@lru_cache
def _terms(bits: int) -> list[tuple[int, float]]:
    """Return for r = 0 .. k' the sign and binomial factor, and the chance that an item hits one of r bits."""
    everything = math.comb(BLOCK_BITS, bits)
    return [
        ((-1) ** r * math.comb(bits, r), 1 - math.comb(BLOCK_BITS - r, bits) / everything)
        for r in range(bits + 1)
    ]


@lru_cache
def plan(capacity: int, error_rate: float) -> Blocked:
    """Return the layout for so many items at an error rate; `ValueError` if one key cannot hold it.

    A block has to answer for at most three digits of the error rate, p^(1/g) >= 1/1000: more would
    take over 1.16 times the memory of the classic layout.  k' is what takes the fewest blocks then.
    """
    regions = max(1, math.ceil(-math.log10(error_rate) / 3 - 1e-9))
    enough = regions + math.ceil(1.2 * sizing.classic_bits(capacity, error_rate) / BLOCK_BITS)

    def rate(blocks: int, bits: int) -> float:
        return expected_error_rate(capacity, blocks, regions, bits)

    def fewest(bits: int) -> int:
        sizes = range(regions, enough)
        return regions + bisect_left(sizes, -error_rate, key=lambda blocks: -rate(blocks, bits))

    choices = [(fewest(bits), bits) for bits in range(1, MAX_BITS_A_BLOCK + 1)]
    blocks, bits = min(choices, key=lambda choice: (choice[0], rate(*choice)))
    # One block less may be nearer, which matters where there are few; but not far above what was asked for.
    if blocks > regions and rate(blocks - 1, bits) / error_rate <= min(1.05, error_rate / rate(blocks, bits)):
        blocks -= 1
    num_bits = sizing.checked_num_bits(blocks * BLOCK_BITS, capacity, error_rate)
    return Blocked(num_bits=num_bits, num_hashes=regions * bits, blocks_per_item=regions)
