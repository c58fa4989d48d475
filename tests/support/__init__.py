"""What tests share.  `BLOOMREDIS_HOLE=NAME` opens a mended hole, in the processes that tests start too."""

from __future__ import annotations

import os

if hole := os.environ.get("BLOOMREDIS_HOLE"):
    from tests.support.holes import open_holes

    open_holes([hole])
