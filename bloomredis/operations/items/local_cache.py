"""The local cache: answers from a copy of the filter in this process.

If all bits of an item are set in the copy, the item is in the filter, as long as the filter keeps its
generation.  Every script call on the primary confirms the generation, so the copy may answer for `check`
seconds after the last call was sent; then the next call goes to the server.  Answers of the server are
recorded in the copy of their generation.

The items of other clients are read in pieces, before calls that go to the server anyway.  At first the pieces
are read without a pause: for a filter of some megabytes, the first call completes the copy.  Later they are
read with pauses, when the copy has missed enough items.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from copy import copy
from typing import Concatenate, Final, ParamSpec, TypeVar, cast

from bloomredis.bits.arrays import NDArray, np
from bloomredis.bits.batch import Encoded, HashedBatch, hashed
from bloomredis.bits.bitmap import Bits
from bloomredis.errors import BatchInterruptedError, FilterLostError
from bloomredis.operations.items.membership import Membership
from bloomredis.protocol import clock
from bloomredis.protocol.keys import as_bytes
from bloomredis.protocol.pending import Answers, PendingCalls
from bloomredis.protocol.pieces import PIECE_BYTES, READ
from bloomredis.protocol.receipts import Pending
from bloomredis.protocol.steps import Op
from bloomredis.stored.state.base import Stored
from bloomredis.stored.state.handle import Handle, LayoutChanged

P = ParamSpec("P")
T = TypeVar("T")

_UNPAUSED_SECONDS: Final = 0.03
"""Seconds for which the pieces of a new copy are read without a pause."""

_SHARE: Final = 20
"""Pause between two pieces, as a multiple of the time that the last piece took."""

_MISSES: Final = 100
"""Number of items known to the server but not to the copy after which the filter is read again."""

_log = logging.getLogger("bloomredis")


class _CachedBits:
    """The copy of one generation."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self.bits = Bits(handle.bitmap)
        self.answers_until = 0.0  # the monotonic time from which on only the server answers
        self.next_read = 0.0  # the monotonic time before which no further piece is read
        self.next_piece: int | None = 0  # first byte of the next piece; None if all were read
        self.unpaused = _UNPAUSED_SECONDS  # seconds left for reading without a pause
        self.misses = 0


def _with_handle(
    method: Callable[Concatenate[CachedMembership, Handle, P], Op[T]],
) -> Callable[Concatenate[CachedMembership, P], Op[T]]:
    """Let a method get the handle of the open filter; repeat it with the new handle if the filter changes."""

    def attempted(cached: CachedMembership, /, *args: P.args, **kwargs: P.kwargs) -> Op[T]:
        return cached.stored.attempt(lambda handle: method(cached, handle, *args, **kwargs))

    return attempted


class CachedMembership:
    """The membership calls of a filter with a local cache: the copy answers first, then the server.

    :param check: seconds for which the copy answers after a call to the server.
    """

    def __init__(self, stored: Stored, pending: PendingCalls, membership: Membership, check: float) -> None:
        self.stored = stored
        self._pending = pending
        self._membership = membership
        self._check = check
        self.copy: _CachedBits | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "copy": None}  # another process reads a copy of its own

    def has(self, encoded: bytes) -> bool:
        """Return True if an item is known to be in the filter; False if only the server knows."""
        copy = self.copy
        return (
            copy is not None
            and encoded not in self._pending.items  # a pending item gets the answer of its call
            and copy.handle is self.stored.handle
            and clock.now() < copy.answers_until
            and copy.bits.has(encoded)
        )

    def _is_ready(self, handle: Handle, now: float) -> bool:
        """Return whether no piece of the filter needs to be read before the next call."""
        copy = self.copy
        return (
            copy is not None and copy.handle is handle and (copy.next_piece is None or now < copy.next_read)
        )

    def _learn_one(self, handle: Handle, item: bytes, sent: float, *, there: bool, new: bool = False) -> None:
        """Record the server's answer for an item, to a call sent at `sent`.

        :param there: the item is in the filter.
        :param new: the call itself has added the item.
        """
        copy = self.copy
        if copy is not None and copy.handle is handle is self.stored.handle:
            if there:
                copy.bits.add(item)
            self._learn(copy, sent, None, int(there and not new))

    @_with_handle
    def add_one(self, handle: Handle, item: bytes, token: Pending | None) -> Op[bool]:
        """Add an item; True if it was new."""
        if not self._is_ready(handle, clock.now()):
            yield from self._refreshed(handle)
        sent, by_receipt = clock.now(), token is not None or self._are_pending([item])
        new = yield from self._membership.add_one(item, token)
        try:
            if not by_receipt:
                self._learn_one(handle, item, sent, there=True, new=new)
        except BaseException:  # the caller was interrupted
            self._pending.leave(item, handle.generation, answer=new)
            raise
        return new

    def test_one(self, item: bytes, *, by_reading: bool = False) -> Op[bool]:
        """Test an item, as `Membership` does."""
        stored = self.stored
        testing = stored.attempt(lambda handle: self._test_one(handle, item, by_reading), stored.existing)
        return (yield from stored.or_none(testing)) or False

    def _test_one(self, handle: Handle, item: bytes, by_reading: bool) -> Op[bool]:  # noqa: FBT001 - as above
        if not self._is_ready(handle, clock.now()):
            yield from self._refreshed(handle)
        sent = clock.now()
        there = yield from self._membership.test_one(item, by_reading=by_reading)
        self._learn_one(handle, item, sent, there=there)
        return there

    @_with_handle
    def add(self, handle: Handle, encoded: Encoded, source: Sequence[object]) -> Op[Answers]:
        """Add items; return for each whether it was new."""
        batch = hashed(handle.bitmap, encoded)
        ask = self._unknown(handle, batch)
        if not len(ask):
            return Answers([False] * len(encoded))
        copy = yield from self._refreshed(handle)
        asked = batch.take(ask)
        sent, by_receipt = clock.now(), self._are_pending(asked.encoded)
        try:
            replies = yield from self._membership.add(asked, [source[i] for i in ask])
        except BatchInterruptedError as error:
            raise _merged_error(error, ask.tolist(), source) from error.__cause__
        try:
            if self.stored.handle is handle or len(ask) == len(encoded):
                if not by_receipt:
                    self._learn(copy, sent, asked, replies.count(False))
                merged = np.zeros(len(encoded), dtype=np.bool_)
                merged[ask] = replies
                return Answers(merged.tolist(), [(ask.tolist(), replies)])
        except BaseException:  # the caller was interrupted
            replies.leave()
            raise
        replies.leave()
        raise LayoutChanged  # the filter may have been lost meanwhile, and the copy with it

    def test(self, encoded: Encoded) -> Op[list[bool]]:
        """Test items."""
        stored = self.stored
        testing = stored.attempt(lambda handle: self._test(handle, encoded), stored.existing)
        return (yield from stored.or_none(testing)) or [False] * len(encoded)

    def _test(self, handle: Handle, encoded: Encoded) -> Op[list[bool]]:
        batch = hashed(handle.bitmap, encoded)
        ask = self._unknown(handle, batch)
        answers = np.ones(len(encoded), dtype=np.bool_)
        if len(ask):
            copy = yield from self._refreshed(handle)
            sent = clock.now()
            asked = batch.take(ask)
            present = yield from self._membership.test(asked)
            if self.stored.handle is not handle and len(ask) < len(encoded):
                raise LayoutChanged
            answers[ask] = present
            self._learn(copy, sent, asked.take(np.flatnonzero(present)), present.count(True))
        listed: list[bool] = answers.tolist()
        return listed

    def _unknown(self, handle: Handle, batch: HashedBatch) -> NDArray[np.intp]:
        """Return the indexes of the items that the copy cannot answer."""
        copy = self.copy
        if copy is None or copy.handle is not handle or clock.now() >= copy.answers_until:
            return np.arange(len(batch.encoded))
        missing = batch.addresses.missing(copy.bits.array)
        if pending := self._pending.items:  # pending items get the answers of their calls
            unanswered = [i for i, item in enumerate(batch.encoded) if as_bytes(item) in pending]
            return np.union1d(missing, unanswered).astype(np.intp)
        return missing

    def _are_pending(self, items: Encoded) -> bool:
        """Return whether all items are pending; then receipts may answer, which prove no generation."""
        pending = self._pending.items
        return bool(pending) and all(as_bytes(item) in pending for item in items)

    def _refreshed(self, handle: Handle) -> Op[_CachedBits]:
        """Return the copy of the filter of `handle`, after reading the pieces that are due."""
        copy = self.copy
        if copy is None or copy.handle is not handle:
            copy = self.copy = _CachedBits(handle)
        while (first := copy.next_piece) is not None and clock.now() >= copy.next_read:
            following, asked = first + PIECE_BYTES, clock.now()
            # Set before the read, so that concurrent calls go on with the piece after this one.
            copy.next_piece = following if following < len(copy.bits.bytes) else None
            is_read = False
            try:
                is_read = yield from self._read(copy, first)
            finally:
                if not is_read:
                    copy.next_piece = first
            if not is_read:
                break
            now = clock.now()
            copy.unpaused = copy.unpaused - (now - asked) if copy.next_piece is not None else 0.0
            if copy.unpaused <= 0.0:
                copy.next_read = now + _SHARE * (now - asked)
        return copy

    def _read(self, copy: _CachedBits, first: int) -> Op[bool]:
        """Read a piece into the copy; return False after an error."""
        try:
            piece = yield from self.stored.run(
                READ, copy.handle, (first, PIECE_BYTES), reads=True, replicas=False
            )
        except (LayoutChanged, FilterLostError):
            raise
        except Exception as error:
            _log.debug("the local cache of %r was not refreshed: %s", self.stored.name, error)
            return False
        copy.bits.unite(first, piece)
        return True

    def _learn(self, copy: _CachedBits, sent: float, there: HashedBatch | None, misses: int) -> None:
        """Record that a call sent at `sent` has confirmed the generation, and that items are in the filter.

        :param misses: how many of the items other clients had added.
        """
        if there is not None:
            there.addresses.set(copy.bits.array)
        copy.answers_until = max(copy.answers_until, sent + self._check)
        copy.misses += misses
        if copy.next_piece is None and copy.misses >= _MISSES:
            copy.next_piece, copy.misses = 0, 0


def _merged_error(
    error: BatchInterruptedError, ask: list[int], source: Sequence[object]
) -> BatchInterruptedError:
    """Return the error of a whole batch, given the error for the items that were sent."""
    until = ask[len(error.results)]
    results = [False] * until
    for i, answer in zip(ask, error.results, strict=False):
        results[i] = answer
    tokens: list[str | None] = [None] * (len(source) - until)
    for i, token in zip(ask[len(error.results) :], error.tokens, strict=False):
        tokens[i - until] = token
    merged = copy(error)
    merged.results = Answers(results, [(ask, cast("Answers", error.results))])
    merged.rest, merged.tokens = source[until:], tokens
    return merged
