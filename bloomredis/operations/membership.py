"""The script calls that test and add encoded items, and what makes them safe to send again.

Items are packed for the layout that this object knows, and again where that is `LayoutChanged`.  A call that
adds has a lane of its own (`receipts`).  Items whose call was never answered are asked about one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from bloomredis.bits.batch import HashedBatch
from bloomredis.errors import OutcomeUnknownError, ServerRefusedError, interruptible
from bloomredis.protocol import replies, scripts
from bloomredis.protocol.receipts import Place, Receipts
from bloomredis.protocol.replies import NoReply, Reply, flags_of
from bloomredis.protocol.steps import Op
from bloomredis.stored.base import Handle, LayoutChanged, Stored

ADD, CONTAINS = scripts.load("add"), scripts.load("contains")
_TALLY: Final = scripts.load("add_count")

PACKED: Final = 16_384
"""Items that are packed together; more would be to do again where the filter gets another layer."""


class Calls:
    """The calls that one filter object makes.

    :param change: what adds do on the server; with another script they are something else.
    """

    def __init__(
        self, stored: Stored, receipts: Receipts, *, retry_safe: bool, change: scripts.Script = ADD
    ) -> None:
        self._change = change
        self._stored = stored
        self._receipts = receipts
        self._retry_safe = retry_safe

    def test_one(self, item: bytes) -> Op[bool]:
        """Ask whether an item is in the filter."""
        while True:
            handle = self._stored.handle or (yield from self._stored.open())
            try:
                return (yield from self._test(handle, handle.layout.pack_one(item))) == 1
            except LayoutChanged:
                continue

    def test(self, batch: Sequence[str | bytes] | HashedBatch) -> Op[list[bool]]:
        """Ask of each item whether it is in the filter, some in each script."""
        items, hashed = _items_of(batch)
        answers: list[bool] = []
        while len(answers) < len(items):
            handle = self._stored.handle or (yield from self._stored.open())
            packed = _packed(handle, items, len(answers), hashed)
            step = handle.items * handle.layout.item_bytes
            try:
                for start in range(0, len(packed), step):
                    answers += flags_of((yield from self._test(handle, packed[start : start + step])))
            except LayoutChanged:
                continue
        return answers

    def _test(self, handle: Handle, packed: bytes) -> Op[Reply]:
        try:
            reply: Reply = yield from self._stored.run(CONTAINS, handle, [packed], reads=True)
        except NoReply as unanswered:
            raise unanswered.__cause__ or unanswered from None
        return reply

    def add_one(self, item: bytes, place: Place | None) -> Op[bool]:
        """Add an item; say whether it was new.  `place` is that of the caller's token."""
        while True:
            handle = self._stored.handle or (yield from self._stored.open())
            packed = handle.layout.pack_one(item)
            try:
                if place is None and self._receipts.place(item) is None:
                    return (yield from self._add(handle, packed, (item,))) == 1
                return (yield from self._add_owed(handle, packed, item, place)) == 1
            except LayoutChanged:
                continue

    def add(self, batch: Sequence[str | bytes] | HashedBatch, source: Sequence[Any]) -> Op[list[bool]]:
        """Add items, some in each script; say of each whether it was new.

        :param source: the items as the caller gave them, for the error of an interrupted batch.
        """
        items, hashed = _items_of(batch)
        answers: list[bool] = []
        with interruptible("add_many", answers, source):
            while len(answers) < len(items):
                try:
                    yield from self._add_rest(items, answers, hashed)
                except LayoutChanged:
                    continue
        return answers

    def _add_rest(
        self, items: Sequence[str | bytes], answers: list[bool], hashed: HashedBatch | None
    ) -> Op[None]:
        """Add items that have no answer yet: as many as are worth packing together."""
        first = len(answers)
        handle = self._stored.handle or (yield from self._stored.open())
        packed, size = _packed(handle, items, first, hashed), handle.layout.item_bytes
        last = first + len(packed) // size
        for start, stop, place in self._receipts.runs(items, first, last, handle.items):
            if place is not None:
                piece = packed[(start - first) * size : (stop - first) * size]
                answers += flags_of((yield from self._add_owed(handle, piece, items[start], None)))
                continue
            while len(answers) < stop:  # a script may end early, where the filter has to grow
                at = len(answers)
                piece = packed[(at - first) * size : (stop - first) * size]
                answers += flags_of((yield from self._add(handle, piece, items[at:stop])))

    def _add(self, handle: Handle, packed: bytes, items: Sequence[str | bytes]) -> Op[Reply]:
        """Add packed items in one script, in a lane that is theirs until they are answered."""
        reply: Reply
        if not self._retry_safe:
            try:
                reply = yield from self._stored.run(self._change, handle, [packed], again=False)
            except NoReply as unanswered:
                raise unknown(self._stored.name, unanswered) from unanswered
            return reply
        lane = self._receipts.take()
        call = lane.next_call()
        try:
            reply = yield from self._stored.run(self._change, handle, (packed, call), (lane.key,))
        except LayoutChanged:
            self._receipts.give_back(lane)
            raise
        except (NoReply, ServerRefusedError, GeneratorExit) as error:
            # GeneratorExit: the driver was interrupted or cancelled while the call was under way.
            if not (isinstance(error, ServerRefusedError) and error.word in replies.DEFINITE):
                self._receipts.doubt(items, lane.name, call)
            if isinstance(error, NoReply):
                raise unknown(self._stored.name, error, str(Place(lane.name, call, 0))) from error
            raise
        self._receipts.give_back(lane)
        return reply

    def _add_owed(self, handle: Handle, packed: bytes, item: str | bytes, place: Place | None) -> Op[Reply]:
        """Add one item about which there is a doubt: of those who ask, one gets the answer owed."""
        with self._receipts.owed(item, place) as owed:
            if not owed:
                return (yield from self._add(handle, packed, (item,)))
            reply: Reply = 0
            for earlier in owed:
                reply = yield from self._add_again(handle, packed, earlier)
                if reply == 1:
                    break
            return reply

    def _add_again(self, handle: Handle, packed: bytes, place: Place) -> Op[Reply]:
        """Add one packed item that was in a call without an answer: answer as that call would have."""
        token = str(place)
        keys = [self._receipts.key(token), self._receipts.key(place.lane)]
        with doubtful(self._stored.name, token):
            reply: Reply = yield from self._stored.run(
                self._change, handle, [packed, 1, place.call, place.index], keys
            )
        return reply

    def settle(self, item: bytes) -> Op[None]:
        """Make sure that the calls about an item that were not answered have been executed.

        Their answers are owed to nobody from then on but to the holder of a token.
        """
        while (place := self._receipts.place(item)) is not None:
            handle = self._stored.handle or (yield from self._stored.open())
            packed = handle.layout.pack_one(item)
            with suppress(LayoutChanged), self._receipts.owed(item, place) as owed:
                for earlier in owed:
                    yield from self._add_again(handle, packed, earlier)

    def tally(self, handle: Handle, added: int) -> Op[None]:
        """Count items that were new when their bits were set by other scripts."""
        lane = self._receipts.take()
        with doubtful(self._stored.name):
            yield from self._stored.run(_TALLY, handle, (added, lane.next_call()), (lane.key,))
        self._receipts.give_back(lane)


def _items_of(batch: Sequence[str | bytes] | HashedBatch) -> tuple[Sequence[str | bytes], HashedBatch | None]:
    return (batch.encoded, batch) if isinstance(batch, HashedBatch) else (batch, None)


def _packed(handle: Handle, items: Sequence[str | bytes], first: int, hashed: HashedBatch | None) -> bytes:
    """Pack items from the `first` on for the filter: all that were hashed for it, or a number of them."""
    if hashed is not None and hashed.layout == handle.bitmap:
        return hashed.probes.packed()[first * handle.layout.item_bytes :]
    return handle.layout.pack(items[first : first + PACKED])


def unknown(name: str, unanswered: NoReply, token: str | None = None) -> OutcomeUnknownError:
    """Return what the caller of an unanswered call is told."""
    again = "ask again with the token of this error" if token else "a second call may find its own work done"
    return unanswered.public(name, again, token)


@contextmanager
def doubtful(name: str, token: str | None = None) -> Iterator[None]:
    """Turn silence into what the caller is told."""
    try:
        yield
    except NoReply as unanswered:
        raise unknown(name, unanswered, token) from unanswered
