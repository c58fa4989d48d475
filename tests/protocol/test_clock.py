"""The clock by which leases, receipts and temporary copies expire."""

from __future__ import annotations

import runpy
import time

import pytest

from bloomredis.protocol import clock
from tests.support.values import for_each

BOOT, MONOTONIC = 7, 1


@for_each(
    ("missing", "chosen"),
    [([], BOOT), (["CLOCK_BOOTTIME"], MONOTONIC), (["CLOCK_BOOTTIME", "clock_gettime"], None)],
)
def test_the_clock_counts_sleep(
    monkeypatch: pytest.MonkeyPatch, missing: list[str], chosen: int | None
) -> None:
    """It is the boot clock on Linux, CLOCK_MONOTONIC on macOS, and `time.monotonic` on Windows."""
    monkeypatch.setattr(time, "CLOCK_BOOTTIME", BOOT, raising=False)
    monkeypatch.setattr(time, "CLOCK_MONOTONIC", MONOTONIC, raising=False)
    monkeypatch.setattr(time, "clock_gettime", float, raising=False)
    for name in missing:
        monkeypatch.delattr(time, name)
    now = runpy.run_path(clock.__file__)["now"]
    assert now is time.monotonic if chosen is None else now() == chosen
