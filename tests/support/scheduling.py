"""Scheduling of tests over the workers of pytest-xdist: one by one, but for some that stay together."""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadScopeScheduling

TOGETHER: Final = (
    "tests/cli/test_clusters.py",  # a cluster is formed once
    "tests/drivers/clusters/",  # six nodes of a cluster are started once, and others work while it waits
    "tests/faults/test_lost_replies.py",  # all programs with old clients run at the same time
    "tests/test_package.py",  # the package is built once
    "tests/test_rights.py",  # servers behind TLS are started once
)
"""Tests whose fixtures take long run on one worker, which begins with them."""


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Hand each test to the worker that is free next."""

    def _split_scope(self, nodeid: str) -> str:
        return next((group for group in TOGETHER if nodeid.startswith(group)), nodeid)
