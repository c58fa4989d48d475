"""A filter over several servers, as the PHP class spreads it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.servers import Server, binaries, running
from tests.support.several import on_servers
from tests.support.sharding import ITEMS


@pytest.fixture
def pair(server: Server) -> Iterator[list[Any]]:
    """Clients of two independent real servers."""
    with server.client() as first, running(binaries()["valkey-9"]) as other, other.client() as second:
        yield [first, second]


def test_a_filter_on_several_servers_pickles(pair: list[Any]) -> None:
    """The copy needs as many clients."""
    copy = pickle.loads(pickle.dumps(on_servers(pair)))  # noqa: S301 - our own
    with pytest.raises(RuntimeError, match="with_client"):
        copy.add("x")
    with pytest.raises(ValueError, match="2 servers, not on 1"):
        copy.with_client(pair[:1])
    assert copy.with_client(pair).add_many(ITEMS) == [True] * 400
