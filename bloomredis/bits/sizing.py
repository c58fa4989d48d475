"""The arithmetic of Bloom filters: size, fill and error rate.

In the formulas n is the capacity, p the error rate, m the number of bits and k the number of
hashes.  Sources:

* Bloom, "Space/time trade-offs in hash coding with allowable errors", CACM 13(7), 1970.
* Broder & Mitzenmacher, "Network applications of Bloom filters: a survey", 2004, section 2.
* Swamidass & Baldi, "Mathematical correction for fingerprint similarity measures", 2007.
* Dillinger & Manolios, "Bloom filters in probabilistic verification", 2004, on double hashing.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from contextlib import suppress
from functools import lru_cache
from operator import index
from typing import Final, SupportsIndex

from bloomredis.arguments import shown
from bloomredis.bits.limits import COUNTER_BITS, HEADER_BITS

MAX_BITS = 2**32 - HEADER_BITS
"""The limit of one filter's bits: a Redis string holds 2^32 bits, of which the header takes 512."""

LEAST_BITS: Final = 1024
"""The least bits of a classic filter: among fewer bits, probes with different starts coincide too often."""
FINEST: Final = 1e-9
"""The lowest rate that a classic filter keeps: a lower rate would take many times the usual bits."""
RULES: Final = 1
"""The version of the rules that size new filters; a record of layers stores the version of its layers."""
_MOST: Final = 2**63 - 1
_ROUNDING: Final = 1.01  # the factor by which rounding the number of hashes may raise a rate


def integer(what: str, value: SupportsIndex) -> int:
    """Return `value` as an int; raise `TypeError` if it is not an integer."""
    with suppress(TypeError):
        if not isinstance(value, bool):
            return index(value)
    given = f"{type(value).__name__} {value!r}"
    way_out = f": write {int(value):_}" if isinstance(value, float) and value.is_integer() else ""
    raise TypeError(f"{what} must be an int, not {given}{way_out}")


def positive(what: str, value: SupportsIndex, most: int | None = None) -> int:
    """Return `value` as an int from 1 to `most`; raise `TypeError` or `ValueError`."""
    number = value if type(value) is int else integer(what, value)
    if not 1 <= number <= (most or _MOST):
        limits = f"from 1 to {most}" if most else "at least 1" if number < 1 else "at most 2^63 - 1"
        raise ValueError(f"{what} must be {limits}, not {shown(number)}")
    return number


def checked_sizes(capacity: int | None, error_rate: float | None) -> tuple[int, float] | None:
    """Return the sizes to create a filter with, checked; None if neither is given."""
    if capacity is not None and error_rate is not None:
        return checked_capacity(capacity), checked_error_rate(error_rate)
    if capacity is None and error_rate is None:
        return None
    missing = "capacity" if capacity is None else "error_rate"
    raise ValueError(f"capacity and error_rate go together; {missing} is missing")


def checked_capacity(capacity: SupportsIndex) -> int:
    """Return `capacity` as a positive int; raise `TypeError` or `ValueError`."""
    return positive("capacity", capacity)


def checked_error_rate(error_rate: float) -> float:
    """Return `error_rate` as a float strictly between 0 and 1; raise `TypeError` or `ValueError`."""
    if isinstance(error_rate, bool) or not hasattr(error_rate, "__float__"):
        raise TypeError(f"error_rate must be a float, not {type(error_rate).__name__} {error_rate!r}")
    rate = float(error_rate)
    if not 0.0 < rate < 1.0:
        raise ValueError(f"error_rate must lie strictly between 0 and 1, not {rate}: 1% is 0.01")
    return rate


def classic_bits(capacity: int, error_rate: float) -> int:
    """Return the bits for a capacity and an error rate: m = -n ln p / (ln 2)^2 (Broder & Mitzenmacher)."""
    return math.ceil(-capacity * math.log(error_rate) / math.log(2) ** 2)


@lru_cache
def least_bits(capacity: int, error_rate: float, finest: float = FINEST) -> int:
    """Return the bits in the classic layout: `classic_bits`, or more for a small filter.

    A small filter needs more because an absent item may have all probes of a stored one (`equal_probes`).

    :param finest: the rate to size for if `error_rate` is lower.
    """
    textbook = classic_bits(capacity, error_rate)
    least, hashes = max(textbook, LEAST_BITS), num_hashes(textbook, capacity)
    most = 4 * least + math.ceil(math.sqrt(2 * capacity / finest))
    wanted = _ROUNDING * max(error_rate, finest)
    return least + bisect_left(
        range(least, most), -wanted, key=lambda bits: -classic_error_rate(capacity, bits, hashes)
    )


def num_bits(capacity: int, error_rate: float, finest: float | None = FINEST) -> int:
    """Return `least_bits`, or `classic_bits` if `finest` is None; at most `MAX_BITS`.

    :raises ValueError: one key cannot hold `classic_bits` (`MAX_BITS`).
    """
    textbook = checked_num_bits(classic_bits(capacity, error_rate), capacity, error_rate)
    return textbook if finest is None else min(least_bits(capacity, error_rate, finest), MAX_BITS)


def checked_num_bits(bits: int, capacity: int, error_rate: float) -> int:
    """Return `bits`; raise `ValueError` if they exceed one key's limit (`MAX_BITS`)."""
    if bits > MAX_BITS:
        raise ValueError(
            f"capacity {capacity} at error_rate {error_rate} needs {bits} bits; one key holds at most "
            f"2^32 bits less {HEADER_BITS} for the header, {MAX_BITS}: "
            "use a ShardedBloomFilter, lower the capacity or allow a higher error_rate"
        )
    return bits


def num_counters(capacity: int, error_rate: float) -> int:
    """Return the counters for a capacity and error rate; raise `ValueError` if one key cannot hold them."""
    counters, most = classic_bits(capacity, error_rate), MAX_BITS // COUNTER_BITS
    if counters > most:
        raise ValueError(
            f"capacity {capacity} at error_rate {error_rate} needs {counters} counters of {COUNTER_BITS} "
            f"bits; one key holds at most {most}: lower the capacity or allow a higher error_rate"
        )
    return min(least_bits(capacity, error_rate), most)


def num_hashes(bits: int, capacity: int) -> int:
    """Return the hashes an item for the lowest error rate: k = (m / n) ln 2, rounded, at least 1."""
    return max(1, round(bits / capacity * math.log(2)))


def expected_error_rate(fill_ratio: float, hashes: int) -> float:
    """Return the probability that all k bits of an absent item with its own probes are set: (X / m)^k."""
    return fill_ratio**hashes


def equal_probes(items: int, bits: int) -> float:
    """Return the probability that an absent item has all probes of one of the stored items: n / m^2.

    Two numbers below m determine all probes of an item (Dillinger & Manolios).
    """
    return items / bits**2


def classic_error_rate(items: int, bits: int, hashes: int) -> float:
    """Return the probability of a false positive in the classic layout after this number of items."""
    fill = expected_fill_ratio(items, bits, hashes)
    return min(1.0, expected_error_rate(fill, hashes) + equal_probes(items, bits))


def expected_fill_ratio(items: int, bits: int, hashes: int) -> float:
    """Return the expected share of set bits: 1 - e^(-kn/m) (Broder & Mitzenmacher)."""
    return -math.expm1(-hashes * items / bits)


def approximate_count(ones: int, bits: int, hashes: int) -> int:
    """Estimate the items from the number of set bits: n* = -(m / k) ln(1 - X / m) (Swamidass & Baldi).

    A filter with every bit set has no finite estimate; the result is that for one unset bit.
    """
    return round(-bits / hashes * math.log1p(-min(ones, bits - 1) / bits))
