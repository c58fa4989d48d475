"""Calls about items are sent as the exact bytes of their commands."""

from __future__ import annotations

from typing import Any

import hiredis

from bloomredis import BloomFilter, CountingBloomFilter, ScalingBloomFilter
from bloomredis.protocol.steps import Call
from tests.support.inside import inside
from tests.support.modules import MODULE, needs_module
from tests.support.servers import Server
from tests.support.values import for_each

packed: Any = hiredis.pack_command
SIZE = {"capacity": 1000, "error_rate": 1e-3}
FILTERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "blocked": (BloomFilter, SIZE),
    "two blocks": (BloomFilter, SIZE | {"error_rate": 1e-6}),
    "classic": (BloomFilter, SIZE | {"layout": "classic"}),
    "counting": (CountingBloomFilter, SIZE),
    "layers": (ScalingBloomFilter, SIZE),
    "module": (BloomFilter, MODULE),
}


@for_each("kind", FILTERS)
@for_each("name", ["seen", "gesehen é{x}", "100%d"])
def test_the_bytes_of_calls_about_items(any_server: Server, kind: str, name: str) -> None:
    """They equal the client's own encoding of the command, for items of any length."""
    with any_server.client() as client:
        bloom, options = FILTERS[kind]
        filter_ = bloom(needs_module(client) if kind == "module" else client, name, **options)
        filter_.add_many(range(4000 if kind == "layers" else 10))
        assert filter_.add("warm")
        assert "warm" in filter_
        for item in ("a", "", "é" * 200, b"\x00\r\n$1", "x" * 1000):
            verbs = inside(filter_)
            each = verbs.add(item), verbs.contains(item)
            both = verbs.add_many([item, "other"]), verbs.contains_many([item, "other"])
            for operation in (*each, *both):
                call = next(operation)
                assert isinstance(call, Call)
                assert call.wire() == (
                    [b"".join(map(packed, call.commands))],
                    len(call.commands),
                )
