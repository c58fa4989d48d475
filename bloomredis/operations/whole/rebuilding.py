"""The rebuild of a `BloomFilter`: a successor is created, and replaces the filter at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from bloomredis import arguments
from bloomredis.bits import sizing
from bloomredis.operations.options import Seconds
from bloomredis.protocol.replies import OutcomeMatters
from bloomredis.protocol.steps import Op
from bloomredis.stored.one_key.rebuilding import Rebuild, StoredRebuildable
from bloomredis.stored.one_key.single import StoredFilter

V = TypeVar("V")
"""The operations of the successor."""

TIMEOUT: Final = 86_400
"""Longest life of a successor, in seconds."""

_AGAIN: Final = "rebuild it again"


class Rebuilding(Generic[V]):
    """One rebuild of a filter.

    :param make: returns the operations of the successor.
    :raises ValueError, TypeError: for bad arguments.
    """

    def __init__(
        self,
        stored: StoredRebuildable,
        make: Callable[[StoredFilter], V],
        *,
        capacity: int | None,
        error_rate: float | None,
        timeout: Seconds,
        take_over: bool,
    ) -> None:
        arguments.flags(take_over=take_over)
        self._stored = stored
        self._make = make
        self._capacity = None if capacity is None else sizing.checked_capacity(capacity)
        self._error_rate = None if error_rate is None else sizing.checked_error_rate(error_rate)
        self._timeout = arguments.milliseconds("timeout", timeout)
        self._take_over = take_over
        self._begun: Rebuild | None = None

    def begin(self) -> Op[V]:
        """Create the successor, and return its operations."""
        with OutcomeMatters(self._stored.name, _AGAIN):
            self._begun = yield from self._stored.begin_rebuild(
                self._capacity, self._error_rate, self._timeout, take_over=self._take_over
            )
        return self._make(self._stored.successor(self._begun))

    def end(self) -> Op[None]:
        """Replace the filter by the successor."""
        if self._begun:
            with OutcomeMatters(self._stored.name, _AGAIN):
                yield from self._stored.end_rebuild(self._begun)

    def abandon(self) -> Op[None]:
        """Delete the successor."""
        if self._begun:
            yield from self._stored.abandon_rebuild(self._begun)
