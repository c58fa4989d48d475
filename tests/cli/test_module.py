"""The command line and filters with the server's module."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from bloomredis import BloomFilter, FilterMismatchError, plan
from bloomredis.cli import filters
from tests.support.modules import needs_module
from tests.support.values import for_each


def test_a_command_marks_no_filter_of_another_program(any_client: redis.Redis) -> None:
    """A command refuses another program's filter without markers; once the library marked it, it opens."""
    execute: Any = needs_module(any_client).execute_command
    execute("BF.RESERVE", "seen", 0.01, 1000)
    with pytest.raises(FilterMismatchError, match="without markers of this library"):
        filters.opened(any_client, "seen")
    assert execute("BF.CARD", "seen") == 0
    BloomFilter.open(any_client, "seen").add("a")
    assert filters.opened(any_client, "seen").info().count == 1


@for_each("error_rate", [0.1, 1e-2, 1e-6])
def test_the_plan_is_what_the_module_makes(any_client: redis.Redis, error_rate: float) -> None:
    """The planned bits and hashes are those of the module's first bitmap."""
    f = BloomFilter(needs_module(any_client), "seen", capacity=5000, error_rate=error_rate, layout="module")
    f.create()
    about, planned = f.info(), plan(5000, error_rate, layout="module")
    assert (planned.num_hashes, planned.num_bits) == (about.num_hashes, about.num_bits)
