"""The watch over a filter's capacity.

An object counts the new items that it adds itself (`stored.capacity_left`).  For the items of other clients
it reads the count in the header once a second, in the round trip of another call.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final, TypeVar

from bloomredis.arguments import OnFull
from bloomredis.errors import BloomError, FilterFullError
from bloomredis.protocol import clock
from bloomredis.protocol.gather import run_with_watch
from bloomredis.protocol.steps import Op
from bloomredis.stored.module.filter import StoredModule
from bloomredis.stored.one_key.single import StoredFilter
from bloomredis.stored.state.base import UNBOUNDED
from bloomredis.stored.state.handle import Handle

T = TypeVar("T")

LOOK_SECONDS: Final = 1.0
"""Maximal age of the count that an object uses, in seconds."""

_log = logging.getLogger("bloomredis")


class CapacityWatch:
    """Warns, raises or calls the caller's function when the filter is full, as `on_full` says.

    An add runs through `run_counted` if a check is due: after the monotonic time `next_check`, or if the
    filter is not the one that was `counted` last.
    """

    def __init__(self, stored: StoredFilter | StoredModule, on_full: OnFull) -> None:
        self._stored = stored
        self._on_full = on_full
        self.counted: Handle | None = None
        self._reported_for: Handle | None = None  # the filter for which this object has reacted
        self.refuses = on_full != "warn"
        self.next_check = 0.0

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "counted": None, "_reported_for": None, "next_check": 0.0}

    def on_capacity_reached(self) -> None:
        """React to a full filter: warn, or let the next add react."""
        handle = self._stored.handle
        if not self.refuses and self._stored.capacity_left < 0 and handle is not self._reported_for:
            _log.warning("%s", self._message())
            self._reported_for = handle
        if handle is self._reported_for:
            self._stored.capacity_left, self.next_check = UNBOUNDED, clock.now() + LOOK_SECONDS
        elif self.refuses:
            self.next_check = 0.0

    def run_if_due(self, operation: Op[T]) -> Op[T]:
        """Run an operation that adds, by `run_counted` if a check is due."""
        is_known = self.counted is not None and self.counted is self._stored.handle
        return operation if is_known and clock.now() <= self.next_check else self.run_counted(operation)

    def run_counted(self, operation: Op[T]) -> Op[T]:
        """Run an operation that adds, if the filter has room; if due, read the count in its round trip."""
        yield from self.check_capacity()
        return (yield from self.with_count(operation))

    def check_capacity(self) -> Op[None]:
        """Open the filter, and react if it is full."""
        handle = yield from self._stored.acquire()
        if handle is not self.counted:  # opening the filter has read its count
            self.counted, self.next_check = handle, clock.now() + LOOK_SECONDS
        if self.refuses and self._stored.capacity_left <= 0:
            yield from self._react()

    def with_count(self, operation: Op[T]) -> Op[T]:
        return operation if clock.now() <= self.next_check else run_with_watch(operation, self._look())

    def _look(self) -> Op[None]:
        """Read the count of the filter; if the filter was replaced, the next call detects that."""
        handle, self.next_check = self._stored.handle, clock.now() + LOOK_SECONDS
        if handle is None or handle is self._reported_for:
            return
        with suppress(BloomError, ValueError):
            self._stored.capacity_left = yield from self._stored.room(handle)

    def _react(self) -> Op[None]:
        """Read the count; if the filter is full, raise an error or call the caller's function with it."""
        yield from self._look()
        if self._stored.capacity_left > 0:
            return
        self.next_check = 0.0
        error = FilterFullError(f"{self._message()}; nothing was added by this call")
        if not callable(self._on_full):
            raise error
        self._reported_for = self._stored.handle
        try:
            self._on_full(error)
        finally:
            self.on_capacity_reached()

    def _message(self) -> str:
        head, left = self._stored.head, self._stored.capacity_left
        capacity, rate = (head.capacity, head.error_rate) if head else (0, 0.0)
        then = (
            f"with more it errs more often than error_rate {rate}. To let it grow, make the programs "
            "ScalingBloomFilter, then call ScalingBloomFilter.adopt()"
            if self._stored.is_one_bitmap
            else "with more the server's module makes it larger; leave on_full out to let it"
        )
        return (
            f"{self._stored.name!r} has {capacity - left} items and was made for capacity {capacity}: {then}"
        )
