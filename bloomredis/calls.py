"""One script call on packed items, with what makes it safe to send again.

A call that adds travels in a lane of its own (`receipts`).  Items whose call was never answered are owed
the answer of that call, and are asked about one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bloomredis import protocol, scripts
from bloomredis.errors import OutcomeUnknownError, ServerRefusedError
from bloomredis.protocol import Op, Unanswered
from bloomredis.receipts import Place, Receipts
from bloomredis.stored import Opened, Stored

ADD, CONTAINS = scripts.load("add"), scripts.load("contains")
_TALLY: Final = scripts.load("tally")

Reply = bytes | str | int
"""What add and contains reply: a number for one item, a string of '0' and '1' for more."""


class Calls:
    """The calls that one filter object makes."""

    def __init__(self, stored: Stored, receipts: Receipts, *, retry_safe: bool) -> None:
        self._stored = stored
        self._receipts = receipts
        self._retry_safe = retry_safe

    def test(self, opened: Opened, packed: bytes) -> Op[Reply]:
        """Ask which of the packed items are in the filter."""
        try:
            reply: Reply = yield from self._stored.run(CONTAINS, opened, [packed], reads=True)
        except Unanswered as unanswered:
            raise unanswered.__cause__ or unanswered from None
        return reply

    def add(self, opened: Opened, packed: bytes) -> Op[Reply]:
        """Add packed items in one script, in a lane that is theirs until they are answered."""
        reply: Reply
        if not self._retry_safe:
            try:
                reply = yield from self._stored.run(ADD, opened, [packed], again=False)
            except Unanswered as unanswered:
                raise unknown(self._stored.name, unanswered) from unanswered
            return reply
        lane = self._receipts.take()
        call = lane.next_call()
        try:
            reply = yield from self._stored.run(ADD, opened, (packed, call), (lane.key,))
        except (Unanswered, ServerRefusedError, GeneratorExit) as error:
            # GeneratorExit: the driver was interrupted or cancelled while the call was under way.
            if not (isinstance(error, ServerRefusedError) and error.word in protocol.DEFINITE):
                self._receipts.doubt(packed, opened.layout.item_bytes, lane.name, call)
            if isinstance(error, Unanswered):
                raise unknown(self._stored.name, error, str(Place(lane.name, call, 0))) from error
            raise
        self._receipts.give_back(lane)
        return reply

    def add_owed(self, opened: Opened, packed: bytes, place: Place | None) -> Op[Reply]:
        """Add one packed item about which there is a doubt: of those who ask, one gets the answer owed."""
        with self._receipts.owed(packed, place) as owed:
            if not owed:
                return (yield from self.add(opened, packed))
            reply: Reply = 0
            for earlier in owed:
                reply = yield from self._add_again(opened, packed, earlier)
                if reply == 1:
                    break
            return reply

    def _add_again(self, opened: Opened, packed: bytes, place: Place) -> Op[Reply]:
        """Add one packed item that was in a call without an answer: answer as that call would have."""
        token = str(place)
        keys = [self._receipts.key(token), self._receipts.key(place.lane)]
        with doubtful(self._stored.name, token):
            reply: Reply = yield from self._stored.run(
                ADD, opened, [packed, 1, place.call, place.index], keys
            )
        return reply

    def tally(self, opened: Opened, added: int) -> Op[None]:
        """Count items that were new when their bits were set by other scripts."""
        lane = self._receipts.take()
        with doubtful(self._stored.name):
            yield from self._stored.run(_TALLY, opened, (added, lane.next_call()), (lane.key,))
        self._receipts.give_back(lane)


def unknown(name: str, unanswered: Unanswered, token: str | None = None) -> OutcomeUnknownError:
    """Return what the caller of an unanswered call is told."""
    again = "ask again with the token of this error" if token else "a second call may find its own work done"
    return unanswered.public(name, again, token)


@contextmanager
def doubtful(name: str, token: str | None = None) -> Iterator[None]:
    """Turn silence into what the caller is told."""
    try:
        yield
    except Unanswered as unanswered:
        raise unknown(name, unanswered, token) from unanswered


def flags_of(reply: Reply) -> list[bool]:
    """Return the answers that a reply stands for."""
    if isinstance(reply, int):
        return [reply == 1]
    text = reply.encode() if isinstance(reply, str) else reply
    return [answer == 49 for answer in text]  # 49 is "1"
