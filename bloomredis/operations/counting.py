"""A filter from which items can be removed: a counter of four bits in the place of each bit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar, Final

import numpy as np

from bloomredis.arguments import OnLost
from bloomredis.bits.encoding import Item
from bloomredis.errors import OutcomeUnknownError
from bloomredis.operations.filter import FilterOperations
from bloomredis.operations.membership import Calls
from bloomredis.operations.snapshot import PIECE_BYTES, LocalFilter
from bloomredis.protocol import scripts
from bloomredis.protocol.receipts import REMOVAL, Receipts, parse_token
from bloomredis.protocol.steps import Op
from bloomredis.stored.base import Description
from bloomredis.stored.header import COUNTING

_REMOVE: Final = scripts.load("remove")


class CountingOperations(FilterOperations):
    """A Bloom filter that items can be removed from: it counts how often each was added.

    Every `add(x)` counts, also that of an item which was there: one that was added twice is in until it
    has been removed twice.  Of concurrent `add(x)` of an item that is not in, exactly one is told that it
    was new.  An item that was added, and not removed as often since, is always found.

    Remove only what was added: an item that was not, and is taken for present, cannot be told apart (its
    chance is about `error_rate` once `capacity` items are in), and its removal takes away counters of others,
    which may then be missed.  What is not in is refused, and nothing is changed.

    A counter that has reached 15 stays there, so that no item is ever missed on its account; items that are
    added so often are found even after they were removed.

    It takes four times the memory of a filter in the classic layout.  `load` is `add_many`, and after a
    fault it must not be called again with what was already counted; `snapshot` and `local_cache` are not to
    be had, since an item may be removed.

    :param client: a client of redis-py or valkey-py; nothing is sent before the first call.
    :param name: the key.
    :param capacity: different items that the filter is made for.  With `capacity` and `error_rate` a
        missing filter is created at first use and a stored one is checked; without, it must exist.
    :param error_rate: the false-positive rate at `capacity`, strictly between 0 and 1.
    :param ttl: seconds (or a timedelta) from creation until the filter expires; None for never.
    :param on_lost: what to do when the filter that this object has used is gone or another one:
        `"raise"` raises `FilterLostError`; `"recreate"` logs a warning and goes on with what is there
        now, or a new filter; a callable is given the error first, and may raise it.
    :param retry_safe: let a call that is sent again get the answer of its first execution.  Without it a
        lost reply may make a call count twice, and an item that is removed twice takes another one with it.
    :param encode: turns an item into bytes, for items that are not str, bytes or int.
    :param coalesce: let concurrent calls share round trips (not `remove`): those of tasks in asyncio, where
        None means True, or of threads other than the main one, where None means False.
    :param min_replicas: replicas that must have a write before the call returns; fewer raise
        `OutcomeUnknownError`.  On a cluster they are those of the node that has the key.
    :param replica_timeout: seconds to wait for them.
    :raises ValueError, TypeError: for bad arguments, before any I/O.
    """

    kind: ClassVar[int] = COUNTING

    def __init__(
        self,
        name: str,
        *,
        capacity: int | None = None,
        error_rate: float | None = None,
        ttl: float | timedelta | None = None,
        on_lost: OnLost = "raise",
        retry_safe: bool = True,
        encode: Callable[[Any], bytes] | None = None,
        coalesce: bool | None = None,
        min_replicas: int = 0,
        replica_timeout: float | timedelta = 1.0,
    ) -> None:
        super().__init__(
            name,
            capacity=capacity,
            error_rate=error_rate,
            ttl=ttl,
            on_lost=on_lost,
            retry_safe=retry_safe,
            encode=encode,
            coalesce=coalesce,
            min_replicas=min_replicas,
            replica_timeout=replica_timeout,
        )
        self._removals = Receipts(self._stored.key, mark=REMOVAL, counts=True)
        self._removing = Calls(self._stored, self._removals, retry_safe=retry_safe, change=_REMOVE)

    @property
    def is_one_bitmap(self) -> bool:
        """No: it is counters."""
        return False

    def remove(self, item: Item, *, token: str | None = None) -> Op[bool]:
        """Take an item out once; True if it was in, False (and nothing is changed) if it was not.

        It is out when it has been removed as often as it was added.  One round trip.

        Where an `add` of the item by this object has no answer yet (`OutcomeUnknownError`), that is
        settled first: it counts once, and calling `add` again is another one.

        :param token: that of an `OutcomeUnknownError`; the answer is that of the call it came from.
        :raises OutcomeUnknownError: no answer came.  Within a minute a second call on the same object, or
            one with its `token` from anywhere, answers as this one would have; make one of the two.
        """
        place = None if token is None else parse_token(token, REMOVAL)
        encoded = self.encode(item)
        try:
            yield from self._calls.settle(encoded)
        except OutcomeUnknownError as error:
            error.token = None  # it is the add's
            raise
        return (yield from self._removing.add_one(encoded, place))

    def clear(self) -> Op[None]:
        """Empty the filter; see `FilterOperations.clear`."""
        yield from super().clear()
        self._removals.settled()

    def delete(self) -> Op[bool]:
        """Delete the filter; see `FilterOperations.delete`."""
        existed = yield from super().delete()
        self._removals.settled()
        return existed

    def snapshot(self) -> Op[LocalFilter]:
        """Raise `TypeError`: what a copy says is there may have been removed."""
        raise TypeError(f"{self.name!r} counts: what a copy says is there may have been removed")

    def _ones(self, found: Description) -> Op[int]:
        """Return how many counters are not 0; all are read, in pieces, at about 1 ms a megabyte."""
        ones = 0
        for start in range(found.first_byte, found.size_bytes, PIECE_BYTES):
            piece = yield ("GETRANGE", found.key, start, start + PIECE_BYTES - 1)
            pairs = np.frombuffer(piece, dtype=np.uint8)
            ones += int(np.count_nonzero(pairs & 0xF0)) + int(np.count_nonzero(pairs & 0x0F))
        return ones
