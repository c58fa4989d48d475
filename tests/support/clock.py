"""The monotonic clock as bloomredis sees it, which a test can put ahead."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest

from bloomredis.protocol import clock as shared

_now = shared.now


class Clock:
    """The module `time`, with clocks that go ahead of the real ones."""

    def __init__(self) -> None:
        self._ahead = self._slept = 0.0

    def monotonic(self) -> float:
        """Return the time, as far ahead as it was put."""
        return time.monotonic() + self._ahead

    def time(self) -> float:
        """Return the time since 1970, likewise."""
        return time.time() + self._ahead + self._slept

    def now(self) -> float:
        """Return the time by the clock that counts what the machine slept."""
        return _now() + self._ahead + self._slept

    def advance(self, seconds: float) -> None:
        """Let so much time pass at once."""
        self._ahead += seconds

    def sleep_deeply(self, seconds: float) -> None:
        """Suspend the machine for so long: its monotonic clock stands still."""
        self._slept += seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def patched(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Give every module of bloomredis that reads the time this clock."""
    clock = Clock()
    monkeypatch.setattr(shared, "now", clock.now)
    for name, module in tuple(sys.modules.items()):
        if name.startswith("bloomredis.") and getattr(module, "time", None) is time:
            monkeypatch.setattr(module, "time", clock)
    return clock
