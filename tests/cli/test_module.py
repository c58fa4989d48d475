"""The command line and filters with the server's module."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis

from bloomredis import BloomFilter, FilterMismatchError, plan
from bloomredis.cli import filters
from bloomredis.cli.doctor.checkup import checkup
from bloomredis.cli.doctor.facts import gather
from tests.conftest import ANY, BINARIES
from tests.support.modules import MODULE, needs_module
from tests.support.servers import running
from tests.support.values import for_each


def seen(client: redis.Redis, layout: str | None) -> str:
    """Return the findings of doctor about a server, for a filter with that layout."""
    return json.dumps([finding.seen for finding in checkup(gather(client, "seen", None, layout))])


def test_doctor_knows_the_module(any_client: redis.Redis) -> None:
    """Doctor says that the module could be used, and says nothing if the filter uses it."""
    needs_module(any_client)
    assert "has a Bloom filter module" in seen(any_client, None)
    BloomFilter(any_client, "seen", **MODULE).update(range(3000))
    assert "module" not in seen(any_client, "module")
    assert "was made for" not in seen(any_client, "module")


def test_doctor_misses_the_module() -> None:
    """Doctor reports a missing module as critical if the filter needs it."""
    with running(BINARIES[ANY]) as server, server.client() as client:
        assert "has no Bloom filter module" in seen(client, "module")
        assert "module" not in seen(client, None)


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
