"""Tests of adapters with their frameworks; `make test-contrib` runs them in an environment of their own."""

from __future__ import annotations

import os

if not os.environ.get("BLOOMREDIS_CONTRIB"):
    collect_ignore_glob = ["test_*.py"]
