"""Java's conversions of numbers and strings, and the sizes of Java filters.

The casts follow the Java Language Specification, 5.1.3.  The sizes follow Guava, which most Java filters
copy: m = (long) (-n ln p / (ln 2)^2) and k = max(1, round(m / n ln 2)), with every step in doubles.
"""

from __future__ import annotations

import math
import struct
from typing import Final, SupportsIndex

from bloomredis.bits import encoding, sizing
from bloomredis.bits.encoding import Item

MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1
_MIN_DOUBLE: Final = 5e-324


def to_long(number: float) -> int:
    """Return `(long) number`: truncated, saturated, 0 for NaN."""
    return _saturated(number, MAX_LONG)


def to_int(number: float) -> int:
    """Return `(int) number` of a double: truncated, saturated, 0 for NaN."""
    return _saturated(number, MAX_INT)


def _saturated(number: float, greatest: int) -> int:
    if math.isnan(number):
        return 0
    if abs(number) > greatest:
        return greatest if number > 0 else -greatest - 1
    return int(number)


def rounded_int(number: float) -> int:
    """Return `(int) Math.round(number)`: ties round up, a long saturates, and its low 32 bits remain."""
    if math.isfinite(number):
        low = math.floor(number)
        number = low + (number - low >= 0.5)
    bits = to_long(number) & 0xFFFFFFFF
    return bits - (bits >> 31 << 32)


def to_float32(number: float) -> float:
    """Return `(float) number`, widened to a double."""
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def double_text(number: float) -> str:
    """Return `Double.toString(number)` of a probability: shortest digits, with an exponent below 0.001."""
    digits = repr(number)
    if number >= 1e-3:
        return digits
    places = next(places for places in range(1, 17) if float(f"{number:.{places}e}") == number)
    mantissa, _, exponent = f"{number:.{places}e}".partition("e")
    return f"{mantissa}E{int(exponent)}"


def divided(dividend: float, divisor: float) -> float:
    """Return Java's quotient of doubles: infinite or NaN if the divisor is zero."""
    if divisor:
        return dividend / divisor
    return math.inf if dividend else math.nan


def bits_needed(capacity: int, error_rate: float) -> float:
    """Return -n ln p / (ln 2)^2 before any cast; an error rate of zero counts as the least double."""
    return -capacity * math.log(error_rate or _MIN_DOUBLE) / (math.log(2) * math.log(2))


def hashes_needed(capacity: int, num_bits: int) -> int:
    """Return max(1, round(m / n ln 2))."""
    return max(1, rounded_int(divided(float(num_bits), capacity) * math.log(2)))


def int_capacity(capacity: SupportsIndex) -> int:
    """Return a capacity as an int.  Raises `TypeError` or `ValueError` for all but positive Java ints."""
    count = sizing.checked_capacity(capacity)
    if count > MAX_INT:
        raise ValueError(f"capacity is a Java int, at most {MAX_INT}, not {count}; split the items")
    return count


def utf8(item: Item) -> bytes:
    """Return `getBytes(UTF_8)` of a str, the decimal digits of an int, or bytes unchanged.

    An unpaired surrogate becomes a question mark; a pair is one character.
    """
    if not isinstance(item, str):
        return encoding.encode(item)
    try:
        return item.encode()
    except UnicodeEncodeError:
        paired = item.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return paired.encode(errors="replace")
