"""A monotonic clock for bloomredis that a test can advance."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

from bloomredis import CallEvent
from bloomredis.protocol import clock as shared

_now = shared.now


class Clock:
    """The module `time`, with clocks that a test can advance."""

    def __init__(self) -> None:
        self._ahead = self._slept = 0.0

    def monotonic(self) -> float:
        """Return the advanced monotonic time."""
        return time.monotonic() + self._ahead

    def time(self) -> float:
        """Return the advanced time since 1970."""
        return time.time() + self._ahead + self._slept

    def now(self) -> float:
        """Return the time by the clock that counts the machine's sleep."""
        return _now() + self._ahead + self._slept

    def advance(self, seconds: float) -> None:
        """Advance all clocks by that many seconds."""
        self._ahead += seconds

    def end_leases(self, client: redis.Redis) -> None:
        """End all claims on a server, and advance all clocks past their leases."""
        keys: Any = client.keys("*:claim:*")
        self.advance(max(int(client.pttl(key)) for key in keys) / 1000 + 1)
        client.delete(*keys)

    def sleep_deeply(self, seconds: float) -> None:
        """Suspend the machine for that long: its monotonic clock stands still."""
        self._slept += seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class WhenBusy:
    """A hook that does something after each claim that meets a busy item.

    :ivar times: how often that happened.
    """

    def __init__(self, do: Callable[[], object]) -> None:
        self.times = 0
        self._do = do

    def __call__(self, event: CallEvent) -> None:
        if event.busy:
            self.times += 1
            self._do()


def patched(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Give this clock to every module of bloomredis that reads the time."""
    clock = Clock()
    monkeypatch.setattr(shared, "now", clock.now)
    for name, module in tuple(sys.modules.items()):
        if name.startswith("bloomredis.") and getattr(module, "time", None) is time:
            monkeypatch.setattr(module, "time", clock)
    return clock
