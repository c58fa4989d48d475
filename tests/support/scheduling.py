"""Scheduling of tests over the workers of pytest-xdist: one by one, except some that stay together."""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadScopeScheduling

TOGETHER: Final = (
    "tests/cli/test_clusters.py",  # share one cluster
    "tests/drivers/clusters/",  # share the six nodes of a cluster, while other tests run during its waits
    "tests/faults/test_lost_replies.py",  # run all programs with old clients at the same time
    "tests/test_package.py",  # share one build of the package
    "tests/test_rights.py",  # share the servers behind TLS
)
"""Tests with slow fixtures, which run on one worker, before its other tests."""


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives each test to the next free worker."""

    def _split_scope(self, nodeid: str) -> str:
        return next((group for group in TOGETHER if nodeid.startswith(group)), nodeid)
