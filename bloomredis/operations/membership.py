"""The script calls that test and add encoded items, and what makes them safe to send again.

Items are packed for the layout that this object knows, and again where that is `LayoutChanged`.  A call that
adds has a lane of its own (`receipts`).  Items whose call was not answered are pending (`ledger`), and are
asked about one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NoReturn

from bloomredis.bits.batch import HashedBatch
from bloomredis.errors import (
    BatchInterruptedError,
    BloomError,
    ConnectionFailedError,
    OutcomeUnknownError,
    RefusedOutcomeUnknownError,
    ServerRefusedError,
)
from bloomredis.protocol import scripts
from bloomredis.protocol.ledger import RECEIPT_SECONDS, Ledger
from bloomredis.protocol.receipts import Lane, Lanes, Pending, give_back
from bloomredis.protocol.replies import (
    NOT_EXECUTED,
    NotSent,
    Refusal,
    Reply,
    flags_of,
    in_doubt,
    outcome_matters,
)
from bloomredis.protocol.steps import Op
from bloomredis.stored.base import Arguments, Handle, LayoutChanged, Stored

ADD, CONTAINS = scripts.load("add"), scripts.load("contains")
_ADD_COUNT: Final = scripts.load("add_count")

PACKED: Final = 16_384
"""Items that are packed together; more would be to do again where the filter gets another layer."""

_ADVICE: Final = "ask again with the token of this error"

Encoded = Sequence[str | bytes]


class Answers(list[bool]):
    """Answers of a batch, in order; one that could not be delivered can be kept for who asks again."""

    def __init__(self, keep: Callable[[int], None], answers: Iterable[bool] = ()) -> None:
        super().__init__(answers)
        self._keep = keep

    def keep(self, indexes: Iterable[int]) -> None:
        """Keep the answers of these items of the batch."""
        for i in indexes:
            self._keep(i)


class Membership:
    """The calls that one filter object makes.

    :param change: the script of adds; with another one they do something else.
    :param replicas: tests may be answered by a replica.
    """

    def __init__(
        self,
        stored: Stored,
        lanes: Lanes,
        ledger: Ledger,
        *,
        retry_safe: bool,
        change: scripts.Script = ADD,
        replicas: bool = True,
    ) -> None:
        self._change = change
        self._replicas = replicas
        self._stored = stored
        self._lanes = lanes
        self._ledger = ledger
        self._retry_safe = retry_safe

    def test_one(self, item: bytes) -> Op[bool]:
        """Test an item."""
        return self._stored.attempt(partial(self.test_under, item=item))

    def test_under(self, handle: Handle, item: bytes) -> Op[bool]:
        """Test an item in the filter that `handle` names."""
        return (yield from self._test(handle, handle.layout.pack_one(item))) == 1

    def test(self, batch: Encoded | HashedBatch) -> Op[list[bool]]:
        """Test items, some in each script."""
        items, hashed = _items_of(batch)
        answers: list[bool] = []
        while len(answers) < len(items):
            handle = yield from self._stored.acquire()
            packed = _packed(handle, items, len(answers), hashed)
            step = handle.items * handle.layout.item_bytes
            with suppress(LayoutChanged):
                for start in range(0, len(packed), step):
                    answers += flags_of((yield from self._test(handle, packed[start : start + step])))
        return answers

    def _test(self, handle: Handle, packed: bytes) -> Op[Reply]:
        return self._stored.run(CONTAINS, handle, [packed], reads=True, replicas=self._replicas)

    def add_one(self, item: bytes, token: Pending | None) -> Op[bool]:
        """Add an item; True if it was new.  `token` names the call that is asked about."""
        return self._stored.attempt(partial(self.add_under, item=item, token=token))

    def add_under(self, handle: Handle, item: bytes, token: Pending | None) -> Op[bool]:
        """Add an item to the filter that `handle` names."""
        packed = handle.layout.pack_one(item)
        if token is None and self._ledger.find(item, handle.generation) is None:
            return (yield from self._add(handle, packed, (item,))) == 1
        return (yield from self._add_pending(handle, packed, item, token)) == 1

    def add(self, batch: Encoded | HashedBatch, source: Sequence[Any]) -> Op[Answers]:
        """Add items, some in each script; say of each whether it was new.

        :param source: the items as the caller gave them, for the error of an interrupted batch.
        """
        items, hashed = _items_of(batch)
        generations: list[tuple[int, bytes]] = []  # of the answers from each index on

        def keep(i: int) -> None:
            generation = next(own for start, own in reversed(generations) if start <= i)
            self._ledger.keep(items[i], generation, answer=answers[i])

        answers = Answers(keep)
        try:
            while len(answers) < len(items):
                handle = yield from self._stored.acquire()
                generations.append((len(answers), handle.generation))
                with suppress(LayoutChanged):
                    yield from self._add_rest(handle, items, answers, hashed)
        except GeneratorExit:  # the caller was cancelled
            answers.keep(range(len(answers)))
            raise
        except Exception as error:
            raise_interrupted("add_many", answers, source, error)
        return answers

    def _add_rest(
        self, handle: Handle, items: Encoded, answers: list[bool], hashed: HashedBatch | None
    ) -> Op[None]:
        """Add items that have no answer yet: as many as are worth packing together."""
        first = len(answers)
        packed, size = _packed(handle, items, first, hashed), handle.layout.item_bytes
        last = first + len(packed) // size
        for start, stop, pending in self._ledger.cut(items, first, last, handle.items, handle.generation):
            if pending:
                piece = packed[(start - first) * size : (stop - first) * size]
                answers += flags_of((yield from self._add_pending(handle, piece, items[start], None)))
                continue
            while len(answers) < stop:  # a script may end early, where the filter has to grow
                at = len(answers)
                piece = packed[(at - first) * size : (stop - first) * size]
                answers += flags_of((yield from self._add(handle, piece, items[at:stop])))

    def _add(self, handle: Handle, packed: bytes, items: Encoded) -> Op[Reply]:
        """Add packed items in one script, in a lane that is theirs until they are answered."""
        if self._stored.only_read:
            self._stored.check_writable()
        if not self._retry_safe:
            with outcome_matters(self._stored.name):
                reply: Reply = yield from self._stored.run(self._change, handle, [packed], again=False)
                return reply
        lane = self._lanes.take()
        lane.calls += 1
        return (yield from self.add_in(lane, handle, packed, items, time.monotonic()))

    def add_in(self, lane: Lane, handle: Handle, packed: bytes, items: Encoded, sent: float) -> Op[Reply]:
        """Add packed items by the last call of a lane, which is first sent at that monotonic time."""
        reply: Reply
        try:
            reply = yield from self._stored.run(self._change, handle, (packed, lane.calls), (lane.key,))
        except BaseException as error:
            if is_not_executed(error):
                give_back(lane)
                raise
            pending = self._ledger.add(items, lane.name, lane.calls, handle.generation, sent)
            _raise_unknown(self._stored.name, error, pending)
        if reply != 1 and time.monotonic() - sent > RECEIPT_SECONDS:
            self._check_late(reply, lane, handle, items, sent)
        give_back(lane)
        return reply

    def add_sent(self, lane: Lane, handle: Handle, packed: Any, item: bytes, sent: float) -> Op[bool]:
        """Add an item by the last call of a lane, which has been sent already: it is the first step."""
        try:
            return (yield from self.add_in(lane, handle, packed, (item,), sent)) == 1
        except LayoutChanged:
            return (yield from self.add_one(item, None))

    def _check_late(self, reply: Reply, lane: Lane, handle: Handle, items: Encoded, sent: float) -> None:
        """Raise `OutcomeUnknownError` if an item of a late reply is "already there".

        The receipt of an earlier sending may have been gone, so perhaps the item was there by this very call.
        """
        flags = flags_of(reply)
        if all(flags):
            return
        for item, new in zip(items, flags, strict=False):
            self._ledger.keep(item, handle.generation, answer=new)
        pending = self._ledger.add(items, lane.name, lane.calls, handle.generation, sent)
        late = ConnectionFailedError(
            f"the reply came {time.monotonic() - sent:.0f} s after the first sending"
        )
        _raise_unknown(self._stored.name, late, pending)

    def _add_pending(
        self, handle: Handle, packed: bytes, item: str | bytes, token: Pending | None
    ) -> Op[Reply]:
        """Add one pending item: of those who ask, one gets the answer of the pending call."""
        with self._ledger.taking(item, handle.generation, token) as calls:
            if not calls:
                return (yield from self._add(handle, packed, (item,)))
            reply: Reply = 0
            for pending in calls:
                reply = yield from self._ask_again(handle, packed, pending)
                if reply == 1:
                    return reply
        if any(0.0 < pending.until <= time.monotonic() for pending in calls):
            raise OutcomeUnknownError(
                f"{item!r} is in {self._stored.name!r}, perhaps by a call of this object that got no reply, "
                "and whose receipt is gone by now: whether it was new cannot be known any more"
            )
        return reply

    def _ask_again(self, handle: Handle, packed: bytes, pending: Pending) -> Op[Reply]:
        """Add one packed item that was in a call without an answer: answer as that call would have."""
        if pending.answer is not None:
            yield from self._test(handle, packed)  # the filter still stands
            return int(pending.answer)
        token = str(pending)
        keys = [self._lanes.key(token), self._lanes.key(pending.lane)]
        arguments: Arguments = [packed, 1, pending.call, pending.index]
        try:
            reply: Reply = yield from self._stored.run(self._change, handle, arguments, keys)
        except (ConnectionFailedError, ServerRefusedError) as error:
            _raise_unknown(self._stored.name, error, [pending])
        return reply

    def settle(self, item: bytes) -> Op[None]:
        """Make sure that the pending calls about an item have been executed.

        Nobody gets their answers from then on but the holder of a token.
        """
        while item in self._ledger.items:
            handle = yield from self._stored.acquire()
            packed = handle.layout.pack_one(item)
            with suppress(LayoutChanged), self._ledger.taking(item, handle.generation, None) as calls:
                for pending in calls:
                    yield from self._ask_again(handle, packed, pending)
                if not calls:
                    return  # what is pending is of another generation

    def add_count(self, handle: Handle, added: int) -> Op[None]:
        """Count items that were new when their bits were set by other scripts."""
        lane = self._lanes.take()
        lane.calls += 1
        yield from self._stored.run(_ADD_COUNT, handle, (added, lane.calls), (lane.key,))
        lane.free.append(lane)


def is_not_executed(error: BaseException) -> bool:
    """True if an error proves that a call was not executed, even if it had been sent before."""
    if isinstance(error, ServerRefusedError):
        return error.word in NOT_EXECUTED
    if isinstance(error, ConnectionFailedError | OutcomeUnknownError):
        return isinstance(error, NotSent)
    return isinstance(error, LayoutChanged | Refusal | BloomError)


def _raise_unknown(name: str, error: BaseException, pending: list[Pending]) -> NoReturn:
    """Raise the public error for a call without an answer, whose items are pending."""
    unknown: OutcomeUnknownError
    if isinstance(error, ConnectionFailedError):
        unknown = in_doubt(error, name, _ADVICE, str(pending[0]))
    elif isinstance(error, ServerRefusedError):
        message = f"{error}. An earlier sending may have been executed: {_ADVICE}"
        unknown = RefusedOutcomeUnknownError(message, error.word, str(pending[0]))
    else:
        raise error
    unknown.tokens = [str(each) for each in pending]
    raise unknown from error


def raise_interrupted(call: str, answers: Sequence[Any], items: Sequence[Any], error: Exception) -> NoReturn:
    """Raise `BatchInterruptedError`, or the error that stopped the batch if no item was touched."""
    if not answers and not isinstance(error, OutcomeUnknownError):
        raise error
    interrupted = BatchInterruptedError(
        f"{len(answers)} of {len(items)} items were answered, then: {error}. Go on with {call}(error.rest) "
        "once the reason is gone: nothing is lost",
        list(answers),
        items[len(answers) :],
        getattr(error, "tokens", ()),
    )
    interrupted.answers = answers
    raise interrupted from error


def _items_of(batch: Encoded | HashedBatch) -> tuple[Encoded, HashedBatch | None]:
    return (batch.encoded, batch) if isinstance(batch, HashedBatch) else (batch, None)


def _packed(handle: Handle, items: Encoded, first: int, hashed: HashedBatch | None) -> bytes:
    """Pack items from the `first` on for the filter: all that were hashed for it, or a number of them."""
    if hashed is not None and hashed.layout == handle.bitmap:
        return hashed.probes.packed()[first * handle.layout.item_bytes :]
    return handle.layout.pack(items[first : first + PACKED])
