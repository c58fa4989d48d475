"""Shared parts of the tests. `BLOOMREDIS_HOLE=NAME` opens a repaired hole, also in child processes."""

from __future__ import annotations

import os

if hole := os.environ.get("BLOOMREDIS_HOLE"):
    from tests.support.holes import open_holes

    open_holes([hole])
