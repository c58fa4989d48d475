"""The script calls that test and add encoded items, and what makes them safe to send again.

Items are packed for the layout that this object knows, and again where that is `LayoutChanged`.  A call that
adds has a lane of its own (`receipts`).  Items whose call was not answered are pending (`pending`), and are
asked about one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NoReturn, TypeGuard, cast
from zlib import crc32

from bloomredis.bits.batch import Encoded, Prepared, parts_of
from bloomredis.errors import ConnectionFailedError, ServerRefusedError
from bloomredis.operations.items.capacity import Fullness
from bloomredis.operations.items.outcomes import (
    UNCOUNTED,
    Answers,
    is_not_executed,
    raise_interrupted,
    raise_unknown,
)
from bloomredis.protocol import clock, forms, scripts
from bloomredis.protocol.keys import as_bytes
from bloomredis.protocol.metering import count_receipt
from bloomredis.protocol.pending import PendingCalls
from bloomredis.protocol.receipts import (
    RECEIPT_SECONDS,
    Lane,
    Lanes,
    Pending,
    give_back,
    in_a_lane,
    only_call,
)
from bloomredis.protocol.replies import (
    Flags,
    OutcomeMatters,
    Refusal,
    checked,
    flags_of,
    is_used_by_clone,
    new_in,
    raise_explained,
)
from bloomredis.protocol.steps import Op, Outcome, Reply
from bloomredis.stored.state.base import UNBOUNDED, Arguments, Stored
from bloomredis.stored.state.handle import Handle, LayoutChanged
from bloomredis.stored.state.item_calls import Add, ContainsByReading, Template

ADD, CONTAINS = scripts.load("add"), scripts.load("contains")
_ADD_COUNT: Final = scripts.load("add_count", forms.integer)


class Membership:
    """The calls that one filter object makes.

    :param change: the script of adds; with another one they do something else.
    :param replicas: tests may be answered by a replica.
    """

    def __init__(
        self,
        stored: Stored,
        lanes: Lanes,
        pending: PendingCalls,
        *,
        retry_safe: bool,
        change: scripts.Script[Reply] = ADD,
        replicas: bool = True,
    ) -> None:
        self._change = change
        self._replicas = replicas
        self._stored = stored
        self._lanes = lanes
        self._pending = pending
        self._retry_safe = retry_safe
        self._template: Template | None = None
        self.reads = False
        """A test of one item may read its blocks: several commands cost hardly more than one."""
        self.fullness: Fullness | None = None
        """What watches over the capacity, if anything does."""
        self.loaded = 0  # items that were new in loads

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_template": None}

    def template(self, handle: Handle) -> Template:
        """Return the parts that all calls about a handle share."""
        if self._template is not None and self._template.handle is handle:
            return self._template
        known = self._stored.template(handle, self._change, replicas=self._replicas)
        self._template = known
        return known

    def test_one(self, item: bytes) -> Op[bool]:
        """Test an item."""
        while True:
            handle = self._stored.handle or (yield from self._stored.open())
            template = self._template
            if template is None or template.handle is not handle:
                template = self.template(handle)
            if self.reads and template.masks is not None:
                reading = ContainsByReading(template, template.masks(item))
                try:
                    there = reading.found((yield reading))
                except Exception as error:
                    raise_explained(error)
                if there is not None:
                    return there  # else the script says what it means
            call = template.test_of_one(item)
            outcome: Reply
            try:
                outcome = yield call
            except Exception as error:
                outcome = error
            there = call.found(outcome)
            if there is not None:
                return there
            with suppress(LayoutChanged):
                (answer,) = yield from self._stored.tested(call, outcome, 1)
                return answer

    def test(self, batch: Encoded | Prepared) -> Op[list[bool]]:
        """Test items, some in each script."""
        items, prepared = parts_of(batch)
        answers: list[bool] = []
        while len(answers) < len(items):
            handle = yield from self._stored.acquire()
            template = self.template(handle)
            cut, last = cutter(handle, items, len(answers), prepared)
            with suppress(LayoutChanged):
                for start in range(len(answers), last, handle.items):
                    stop = min(start + handle.items, last)
                    answers += yield from self._stored.test(template, items[start:stop], cut(start, stop))
        return answers

    def add_one(self, item: bytes, token: Pending | None) -> Op[bool]:
        """Add an item; True if it was new.  `token` names the call that is asked about."""
        while True:
            handle, now = self._stored.handle or (yield from self._stored.open()), clock.now()
            fullness = self.fullness
            if fullness is not None and (now > fullness.until or handle is not fullness.known):
                return (yield from fullness.watched(self.add_one(item, token)))
            packed, pending = handle.layout.pack_one(item), self._pending
            try:
                if token is not None or (pending.items and pending.find(item, handle.generation)):
                    return (yield from self._add_pending(handle, packed, item, token)) == 1
                call = self._new_add(handle, packed, (item,), now)
                outcome: Outcome
                try:
                    outcome = yield call
                except BaseException as error:  # interrupted or not
                    outcome = error
                if self._is_done(outcome, call):
                    return outcome == 1
                return (yield from self._finish(call, outcome)) == 1
            except LayoutChanged:
                continue

    def add(self, batch: Encoded | Prepared, source: Sequence[object]) -> Op[Answers]:
        """Add items, some in each script; say of each whether it was new.

        :param source: the items as the caller gave them, for the error of an interrupted batch.
        """
        items, prepared = parts_of(batch)
        generations: list[tuple[int, bytes]] = []  # of the answers from each index on

        def keep(i: int, answer: bool) -> None:  # noqa: FBT001 - an index and its answer
            generation = next(own for start, own in reversed(generations) if start <= i)
            self._pending.store_answer(items[i], generation, answer=answer)

        answers = Answers(keep)
        try:
            while len(answers) < len(items):
                handle = self._stored.handle or (yield from self._stored.open())
                generations.append((len(answers), handle.generation))
                try:
                    if len(items) <= handle.items and not (answers or self._pending.items):
                        packed = pack(handle, items, prepared)
                        answers += flags_of((yield from self._add(handle, packed, items)))
                    else:
                        yield from self._add_rest(handle, items, answers, prepared)
                except LayoutChanged:
                    continue
        except Exception as error:
            raise_interrupted("add_many", answers, source, error)
        except BaseException:  # the caller was cancelled or interrupted
            answers.keep(range(len(answers)))
            raise
        return answers

    def add_unasked(self, items: Encoded, source: Sequence[object]) -> Op[int]:
        """Add items for a caller who asks for no answers; return how many were new.

        An answer that another call is owed is left to that one.
        """
        owed = self._pending.unanswered(items)
        answers = yield from self.add(items, source)
        answers.keep(owed)
        return sum(answers)

    def _add_rest(
        self, handle: Handle, items: Encoded, answers: list[bool], prepared: Prepared | None
    ) -> Op[None]:
        """Add items that have no answer yet: as many as are worth packing together."""
        first = len(answers)
        cut, last = cutter(handle, items, first, prepared)
        for start, stop, pending in self._pending.split_runs(
            items, first, last, handle.items, handle.generation
        ):
            if pending:
                answers += flags_of(
                    (yield from self._add_pending(handle, cut(start, stop), items[start], None))
                )
                continue
            while len(answers) < stop:  # a script may end early, where the filter has to grow
                at = len(answers)
                answers += flags_of((yield from self._add(handle, cut(at, stop), items[at:stop])))

    def _add(self, handle: Handle, packed: bytes, items: Encoded) -> Op[Flags]:
        """Add packed items in one script."""
        call = self._new_add(handle, packed, items, clock.now())
        outcome: Outcome
        try:
            outcome = yield call
        except BaseException as error:
            outcome = error
        if self._is_done(outcome, call):
            return outcome
        return (yield from self._finish(call, outcome))

    def _is_done(self, outcome: Outcome, call: Add) -> TypeGuard[Flags]:
        """Return whether an outcome needs no closer look; then free the lane, and count what is new."""
        lane = call.lane
        if lane is None:
            return False
        if outcome == 1 == len(call.items):
            new = 1
        elif call.is_plain(outcome):
            new = new_in(outcome)
        else:
            return False
        lane.free.append(lane)
        self.count(new)
        return True

    def _new_add(self, handle: Handle, packed: bytes, items: Encoded, sent: float) -> Add:
        """Return a call that adds packed items, which is sent now."""
        template = self._template
        if template is None or template.handle is not handle:
            template = self.template(handle)
        if self._stored.only_read:
            self._stored.check_writable()
        if not self._retry_safe:
            return Add(template, packed, None, items, sent)
        lanes = self._lanes.free
        lane = lanes.pop() if lanes else self._lanes.take()
        lane.next_call(crc32(packed, handle.check))
        return Add(template, packed, lane, items, sent)

    def count(self, new: int) -> None:
        """Count items that were new; say where the capacity is reached."""
        stored = self._stored
        stored.left -= new
        if stored.left <= 0:
            if self.fullness is None:
                stored.left = UNBOUNDED
            else:
                self.fullness.passed()

    def _finish(self, call: Add, outcome: Outcome, *, elsewhere: bool = False) -> Op[Flags]:
        """Return the reply to a call that adds items; record its items as pending if it has none to rely on.

        :param outcome: the reply or the error of its first sending.
        :param elsewhere: its lane is new, and nobody else's whatever the server says.
        """
        handle, lane = call.template.handle, call.lane
        if lane is None:
            with OutcomeMatters(self._stored.name):
                reply = call.checked((yield from self._stored.answered(call, handle, outcome)))
            self.count(new_in(reply))
            return reply
        try:
            reply = call.checked((yield from self._stored.answered(call, handle, outcome)))
        except BaseException as error:
            if is_used_by_clone(error) and not elsewhere:
                return (yield from self._add_elsewhere(call))
            if is_not_executed(error) and not is_used_by_clone(error):
                give_back(lane)
                raise
            self._raise_unknown(error, call)
        waited = clock.now() - call.sent
        if reply != 1 and waited > RECEIPT_SECONDS and not all(flags := flags_of(reply)):
            # Its receipt may have been gone when it was sent again: an item may be there by this very call.
            late = ConnectionFailedError(f"the reply came {waited:.0f} s after the first sending")
            self._raise_unknown(late, call, late=flags)
        give_back(lane)
        self.count(new_in(reply))
        return reply

    def _add_elsewhere(self, call: Add) -> Op[Flags]:
        """Add the items of a call in another lane: theirs is also that of a cloned machine or process."""
        self._lanes.renew()
        again = self._new_add(call.template.handle, call.packed, call.items, clock.now())
        outcome: Outcome
        try:
            outcome = yield again
        except BaseException as error:
            outcome = error
        reply = yield from self._finish(again, outcome, elsewhere=True)
        flags = flags_of(reply)
        if not all(flags):  # perhaps by an earlier sending, whose receipt the clone has overwritten
            call.sent -= RECEIPT_SECONDS
            self._raise_unknown(None, call, late=flags)
        return reply

    def _raise_unknown(
        self, error: BaseException | None, call: Add, *, late: Sequence[bool] = ()
    ) -> NoReturn:
        """Record the items of a call without an answer, or with a late one, and raise its public error."""
        lane, generation = cast("Lane", call.lane), call.template.handle.generation
        pending = self._pending.add(call.items, lane.name, lane.call, generation, call.sent, late=late)
        tokens = [each.token(item) for item, each in zip(call.items, pending, strict=True)]
        raise_unknown(self._stored.name, error, tokens)

    def _add_pending(
        self, handle: Handle, packed: bytes, item: str | bytes, token: Pending | None
    ) -> Op[Flags]:
        """Add one pending item: of those who ask, one gets the answer of the pending call."""
        with self._pending.checkout(item, handle.generation, token) as calls:
            if not calls:
                return (yield from self._add(handle, packed, (item,)))
            reply: Flags = 0
            for pending in calls:
                reply = yield from self._ask_again(handle, packed, item, pending, by_token=token is not None)
                if reply == 1:
                    return reply
            for pending in calls:
                if pending.until <= clock.now():
                    raise_unknown(self._stored.name, None, [pending.token(item)])
            return reply

    def _ask_again(
        self, handle: Handle, packed: bytes, item: str | bytes, pending: Pending, *, by_token: bool = False
    ) -> Op[Flags]:
        """Add one packed item that was in a call without an answer: answer as that call would have."""
        count_receipt()
        if pending.answer is not None:
            if handle.is_being_rebuilt:
                return (yield from self._answer_in_both(handle, packed, answer=pending.answer))
            there = yield from self._stored.test(self._stored.template(handle), (item,), packed)
            if not there[0] and not self._pending.every_call_counts:  # forgotten meanwhile, not removed
                return (yield from self._add(handle, packed, (item,)))
            return int(pending.answer)
        if self._pending.every_call_counts and pending.until <= clock.now():
            # Without its receipt an execution would be a second one.
            raise_unknown(self._stored.name, None, [pending.token(item)], UNCOUNTED)
        keys = [self._lanes.key(pending.name), self._lanes.key(pending.lane)]
        own = only_call(crc32(as_bytes(item), handle.check))
        arguments: Arguments = [packed, own, pending.call, pending.index]
        try:
            answer = yield from self._stored.run(self._change, handle, arguments, keys, earlier=True)
            reply = checked(answer, 1)
        except (ConnectionFailedError, ServerRefusedError, Refusal) as error:
            # The token is its caller's, who may ask too; without it this object asks again.
            given = by_token or is_used_by_clone(error)
            raise_unknown(self._stored.name, error, [pending.token(item) if given else None])
        self.count(new_in(reply))
        return reply

    def _answer_in_both(self, handle: Handle, packed: bytes, *, answer: bool) -> Op[Flags]:
        """Return a kept answer once the item, which the filter has, is in its successor too.

        Nothing is to be known of that call, so it has no lane; after a fault the answer is still kept.
        """
        try:
            yield from self._stored.run(self._change, handle, [packed])
        except (ConnectionFailedError, ServerRefusedError, Refusal) as error:
            raise_unknown(self._stored.name, error, [None])
        return int(answer)

    def settle(self, item: bytes) -> Op[None]:
        """Make sure that the pending calls about an item have been executed.

        Nobody gets their answers from then on but the holder of a token.
        """
        while item in self._pending.items:
            handle = yield from self._stored.acquire()
            pending = self._pending.find(item, handle.generation)
            if pending is None:  # what is pending is of another generation
                return
            packed = handle.layout.pack_one(item)
            with suppress(LayoutChanged), self._pending.checkout(item, handle.generation, pending):
                yield from self._ask_again(handle, packed, item, pending)

    def add_count(self, handle: Handle, added: int) -> Op[None]:
        """Count items that were new when their bits were set by other scripts."""

        def count(lane: Lane) -> Op[int]:
            return self._stored.run(_ADD_COUNT, handle, (added, lane.next_call(added)), (lane.key,))

        self.loaded += added
        with suppress(LayoutChanged):  # it is another one by now, or has been begun to be rebuilt
            if self._retry_safe:
                yield from in_a_lane(self._lanes, count)
            else:
                yield from self._stored.run(_ADD_COUNT, handle, [added], again=False)


PACKED: Final = 16_384
"""Items that are packed together; more would be to do again where the filter gets another layer."""


def pack(handle: Handle, items: Encoded, prepared: Prepared | None) -> bytes:
    """Return all items packed for the filter."""
    if prepared is not None and prepared.layout == handle.layout:
        return prepared.packed()
    return handle.layout.pack(items)


def cutter(
    handle: Handle, items: Encoded, first: int, prepared: Prepared | None
) -> tuple[Callable[[int, int], bytes], int]:
    """Return what packs items from one index to another for the filter, and the index where it ends.

    Those from the `first` on are packed together: all that were prepared for it, or a number of them.
    """
    size = handle.layout.item_bytes
    if not size:
        return lambda start, stop: handle.layout.pack(items[start:stop]), len(items)
    if prepared is not None and prepared.layout == handle.layout:
        packed = prepared.packed()[first * size :]
    else:
        packed = handle.layout.pack(items[first : first + PACKED])
    return lambda start, stop: packed[(start - first) * size : (stop - first) * size], first + len(
        packed
    ) // size
