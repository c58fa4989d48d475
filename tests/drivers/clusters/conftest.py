"""The cluster of one server, which changes from run to run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.clusters import Cluster
from tests.support.clusters import cluster as started
from tests.support.servers import binaries


@pytest.fixture(scope="session")
def formed(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster that all tests share."""
    with started(binaries()[request.param]) as made:
        yield made


@pytest.fixture
def nodes(formed: Cluster) -> Cluster:
    """The cluster, emptied of keys, scripts and statistics."""
    for node in formed.primaries():
        node.ask("FLUSHALL")
    for node in formed.nodes:
        node.ask("SCRIPT", "FLUSH")
        node.ask("CONFIG", "RESETSTAT")
    return formed


@pytest.fixture
def cluster_client(nodes: Cluster) -> Iterator[Any]:
    """A synchronous cluster client."""
    with nodes.client() as made:
        yield made
