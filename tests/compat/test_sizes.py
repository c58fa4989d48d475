"""The filters of other systems have the sizes that those systems give them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bloomredis import compat
from bloomredis.compat.bitmap import Bitmap
from bloomredis.compat.guava import num_bits as guava_bits
from bloomredis.compat.guava import num_hashes_from_rate, num_hashes_from_size
from bloomredis.compat.guava import optimal_num_bits as guava_optimum
from bloomredis.compat.hashes import java
from bloomredis.compat.jedis import num_bits as jedis_bits
from bloomredis.compat.jedis import num_hashes as jedis_hashes
from bloomredis.compat.redis_bitmaps import num_bits as chain_bits
from bloomredis.compat.redis_bitmaps import num_hashes as chain_hashes
from bloomredis.compat.redis_bitmaps import optimal_num_bits as chain_optimum
from bloomredis.compat.redis_template import num_bits as template_bits
from bloomredis.compat.redis_template import num_hashes as template_hashes
from bloomredis.compat.redisbloom import (
    first_link_size,
    link_size,
)
from bloomredis.compat.redisson import num_bits as redisson_bits
from bloomredis.compat.redisson import num_hashes as redisson_hashes
from tests.support.layouts import redisbloom_options
from tests.support.values import for_each
from tests.support.vectors import Row, vectors


@for_each("system", ["guava_mitz32", "guava_mitz64"])
def test_guavas_sizes(system: str) -> None:
    """Every recorded size and refusal of `create` is reproduced, by both formulas for the hashes."""
    for row in vectors(system)["sizing"]:
        n, p = row["capacity"], row["error_rate"]
        assert guava_optimum(n, p) == row["optimal_num_of_bits"], row
        assert guava_bits(n, p) == row["num_bits"], row
        assert num_hashes_from_size(n, p) == row["num_hashes"], row
        assert num_hashes_from_rate(p) == row["num_hashes_guava_33_4_6"], row
        if "create_raises" in row:
            with pytest.raises(ValueError, match="filter"):
                compat.guava(n, p)
        elif row["num_bits"] <= 2**32:
            layout = compat.guava(n, p)
            assert (layout.num_bits, layout.num_hashes) == (row["num_bits"], row["num_hashes"]), row


def test_jedis_sizes() -> None:
    """Every recorded size is reproduced, even those capped at 2^31 - 1; a filter without bits is refused."""
    for row in vectors("jedis")["sizing"]:
        n, p = row["capacity"], row["error_rate"]
        bits = jedis_bits(n, p)
        assert (bits, jedis_hashes(n, bits)) == (row["num_bits"], row["num_hashes"]), row
        refused_or_equal(compat.jedis, row)


def test_redis_bitmaps_sizes() -> None:
    """Every recorded size is reproduced, before and after rounding up to 64."""
    for row in vectors("redis_bitmaps")["sizing"]:
        n, p = row["capacity"], row["error_rate"]
        optimum = chain_optimum(n, p)
        assert optimum == row["optimal_num_of_bits"], row
        assert (chain_bits(n, p), chain_hashes(n, optimum)) == (row["num_bits"], row["num_hashes"]), row
        refused_or_equal(compat.redis_bitmaps, row)


def test_redis_template_sizes() -> None:
    """Every recorded size is reproduced, with the rate rounded to 32 bits."""
    for row in vectors("redis_template")["sizing"]:
        n, p = row["capacity"], row["error_rate"]
        assert java.to_float32(p) == row["error_rate_as_float32"], row
        bits = template_bits(n, p)
        assert (bits, template_hashes(n, bits)) == (row["num_bits"], row["num_hashes"]), row
        refused_or_equal(compat.redis_template, row)


def test_redisson_sizes() -> None:
    """Every recorded size is reproduced, and what Redisson refuses is refused."""
    for row in vectors("redisson")["sizing"]:
        n, p = row["capacity"], row["error_rate"]
        if "raises" in row:
            with pytest.raises(ValueError, match=r"size of 0|at most 4294967294"):
                redisson_bits(n, p)
        else:
            bits = redisson_bits(n, p)
            assert (bits, redisson_hashes(n, bits)) == (row["num_bits"], row["num_hashes"]), row
        refused_or_equal(compat.redisson, row)


def refused_or_equal(make: Callable[[int, float], Bitmap], row: Row) -> None:
    """Check a factory against a row: the same size, or a refusal where the row has no filter."""
    usable = (
        row["num_bits"] and 1 <= row["num_hashes"] <= 255 and row["num_bits"] <= 2**32 and row["capacity"]
    )
    if usable:
        layout = make(row["capacity"], row["error_rate"])
        assert (layout.num_bits, layout.num_hashes) == (row["num_bits"], row["num_hashes"]), row
    else:
        with pytest.raises(ValueError, match=r"bits|hashes|capacity"):
            make(row["capacity"], row["error_rate"])


def test_redisbloom_sizes() -> None:
    """Every recorded size is reproduced, and what RedisBloom refuses is refused."""
    for row in vectors("redisbloom")["sizing"]:
        make = link_size if row["call"] == "bloom_init" else first_link_size
        options = redisbloom_options(row)
        if "returns" in row:
            with pytest.raises(ValueError, match="RedisBloom has no link"):
                make(row["capacity"], row["error_rate"], options)
            continue
        size = make(row["capacity"], row["error_rate"], options)
        assert size[:4] == (row["num_bits"], row["num_hashes"], row["n2"], row["entries"]), row
        assert size.error_rate == row.get("error_of_first_filter", row["error_rate"]), row
        assert size.num_bits == 8 * row["bytes"], row


@for_each(
    ("arguments", "message"),
    [
        ({"num_bits": 2**32 + 1, "num_hashes": 4}, "4294967297 bits"),
        ({"num_bits": 10, "num_hashes": 0}, "num_hashes must be at least 1, not 0"),
        ({"num_bits": 10, "num_hashes": 256}, "256 hashes"),
    ],
)
def test_php_filters_that_cannot_be(arguments: dict[str, Any], message: str) -> None:
    """An impossible size is refused, and the error names it."""
    with pytest.raises(ValueError, match=message):
        compat.php_bkdr(**arguments)


@for_each(
    ("number", "text"),
    [(0.5, "0.5"), (0.03, "0.03"), (0.001, "0.001"), (1.5e-7, "1.5E-7"), (5e-324, "4.9E-324")],
)
def test_doubles_are_printed_as_java_does(number: float, text: str) -> None:
    """The results equal the examples of `Double.toString`."""
    assert java.double_text(number) == text


@for_each(
    ("cast", "results"),
    [
        (java.to_long, [0, 2**63 - 1, -(2**63), 2, -2, 4294967295]),
        (java.to_int, [0, 2**31 - 1, -(2**31), 2, -2, 2**31 - 1]),
        (java.rounded_int, [0, -1, 0, 3, -2, -1]),
    ],
)
def test_casts_are_javas(cast: Callable[[float], int], results: list[int]) -> None:
    """NaN becomes 0, infinity saturates, and `(int) round` keeps the low 32 bits of a long."""
    assert [cast(x) for x in (float("nan"), float("inf"), float("-inf"), 2.5, -2.5, 4294967295.0)] == results


@for_each("make", [compat.guava, compat.jedis, compat.redis_bitmaps, compat.redis_template])
@for_each("rate", [0.0, 1.0, -0.5, float("nan")])
def test_error_rates_outside_are_refused(make: Callable[[int, float], Bitmap], rate: float) -> None:
    """An error rate must be strictly inside (0, 1)."""
    with pytest.raises(ValueError, match="error_rate"):
        make(1000, rate)


@for_each("make", [compat.jedis, compat.redis_template])
def test_capacities_past_javas_int_are_refused(make: Callable[[int, float], Bitmap]) -> None:
    """A capacity beyond Java's int is refused, since the original cannot be called with it."""
    with pytest.raises(ValueError, match="2147483648"):
        make(2**31, 0.5)


@for_each("bits", [0, -1, 2**32 + 1])
def test_go_zero_sizes_that_cannot_be(bits: int) -> None:
    """No bits, or more than a key can hold, raise a ValueError that names the number."""
    with pytest.raises(ValueError, match=str(bits)):
        compat.go_zero(bits)


@for_each("bits", [True, 1.0, "10"])
def test_go_zero_sizes_of_other_types(bits: Any) -> None:
    """A size must be an int."""
    with pytest.raises(TypeError, match=type(bits).__name__):
        compat.go_zero(bits)


def test_the_newer_number_of_hashes_is_taken_as_given() -> None:
    """`num_hashes` overrides the older formula."""
    assert compat.guava(1, 0.01).num_hashes == 6
    assert compat.guava(1, 0.01, num_hashes=num_hashes_from_rate(0.01)).num_hashes == 7
