"""The capacity of a plain filter, and its passing.

An object counts the new items that it adds itself (`stored.left`).  For those that others add it looks at the
count in the header once a second, beside a call: in the same round trip.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final, TypeVar

from bloomredis.arguments import OnFull
from bloomredis.errors import BloomError, FilterFullError
from bloomredis.protocol import clock
from bloomredis.protocol.gather import beside
from bloomredis.protocol.steps import Op
from bloomredis.stored.module.filter import StoredModule
from bloomredis.stored.one_key.single import StoredFilter
from bloomredis.stored.state.base import UNBOUNDED
from bloomredis.stored.state.handle import Handle

T = TypeVar("T")

LOOK_SECONDS: Final = 1.0
"""The count that an object knows is no older than that."""

_log = logging.getLogger("bloomredis")


class Fullness:
    """The reaction of one object to a filter without room.

    A call that adds after `until`, by the monotonic clock, or to another filter than the `known` one, is
    `watched`: it has to look at the count, or to react.
    """

    def __init__(self, stored: StoredFilter | StoredModule, on_full: OnFull) -> None:
        self._stored = stored
        self._on_full = on_full
        self.known: Handle | None = None
        self._told: Handle | None = None  # the filter that was reacted to
        self.refuses = on_full != "warn"
        self.until = 0.0

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "known": None, "_told": None, "until": 0.0}

    def passed(self) -> None:
        """React to a filter without room: by a warning, or before the next add."""
        handle = self._stored.handle
        if not self.refuses and self._stored.left < 0 and handle is not self._told:
            _log.warning("%s", self._message())
            self._told = handle
        if handle is self._told:
            self._stored.left, self.until = UNBOUNDED, clock.now() + LOOK_SECONDS
        elif self.refuses:
            self.until = 0.0

    def watched(self, operation: Op[T]) -> Op[T]:
        """Run an operation that adds, if the filter has room, beside a look at the count if one is due."""
        yield from self.admit()
        return (yield from self.beside_a_look(operation))

    def admit(self) -> Op[None]:
        """Open the filter, and react if it has no room."""
        handle = yield from self._stored.acquire()
        if handle is not self.known:  # its count was read when it was opened
            self.known, self.until = handle, clock.now() + LOOK_SECONDS
        if self.refuses and self._stored.left <= 0:
            yield from self._react()

    def beside_a_look(self, operation: Op[T]) -> Op[T]:
        return operation if clock.now() <= self.until else beside(operation, self._look())

    def _look(self) -> Op[None]:
        """Read the count of the filter; that it is another one is left to the next call."""
        handle, self.until = self._stored.handle, clock.now() + LOOK_SECONDS
        if handle is None or handle is self._told:
            return
        with suppress(BloomError, ValueError):
            self._stored.left = yield from self._stored.room(handle)

    def _react(self) -> Op[None]:
        """Raise, or tell the caller's function, if the filter is full indeed."""
        yield from self._look()
        if self._stored.left > 0:
            return
        self.until = 0.0
        error = FilterFullError(f"{self._message()}; nothing was added by this call")
        if not callable(self._on_full):
            raise error
        self._told = self._stored.handle
        try:
            self._on_full(error)
        finally:
            self.passed()

    def _message(self) -> str:
        head, left = self._stored.head, self._stored.left
        capacity, rate = (head.capacity, head.error_rate) if head else (0, 0.0)
        then = (
            f"with more it errs more often than error_rate {rate}. rebuild() makes it larger; or use "
            "ScalingBloomFilter"
            if self._stored.is_one_bitmap
            else "with more the server's module makes it larger; leave on_full out to let it"
        )
        return (
            f"{self._stored.name!r} has {capacity - left} items and was made for capacity {capacity}: {then}"
        )
