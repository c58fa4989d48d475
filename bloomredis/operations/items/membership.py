"""The script calls that test and add encoded items, with safe retries.

Items are packed for the layout that this object knows; after `LayoutChanged` they are packed again.  A call
that adds has its own session (`receipts`).  The items of a call without an answer are pending (`pending`);
they are then added one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NoReturn, TypeVar, cast
from zlib import crc32

from bloomredis.bits.batch import Encoded, Prepared, items_and_prepared
from bloomredis.errors import ConnectionFailedError, ServerRefusedError
from bloomredis.operations.items.outcomes import UNCOUNTED, raise_interrupted, raise_unknown
from bloomredis.operations.items.packing import pack, range_packer
from bloomredis.protocol import clock, scripts
from bloomredis.protocol.clock import Rounds, next_round
from bloomredis.protocol.judging import Verdict, judge, raise_judged
from bloomredis.protocol.keys import as_bytes
from bloomredis.protocol.metering import count_receipt
from bloomredis.protocol.pending import Answers, PendingCalls, SentItems
from bloomredis.protocol.receipts import (
    RECEIPT_SECONDS,
    Pending,
    Session,
    Sessions,
    only_call,
)
from bloomredis.protocol.replies import (
    Flags,
    OutcomeMatters,
    Refusal,
    checked,
    failed,
    flags_of,
    is_used_by_clone,
)
from bloomredis.protocol.steps import Op, Outcome, Reply
from bloomredis.stored.state.base import Arguments, Stored
from bloomredis.stored.state.handle import IN_BLOCKS, Handle, LayoutChanged
from bloomredis.stored.state.item_calls import Add, AddKind, Contains, ContainsByReading

T = TypeVar("T")

ADD: Final = scripts.load_script("add")


class Membership:
    """The calls of one filter object that add and test items.

    :param change: the script that adds items; with the script of a removal, the add methods remove.
    :param replicas: a replica may answer tests.
    """

    def __init__(
        self,
        stored: Stored,
        sessions: Sessions,
        pending: PendingCalls,
        *,
        retry_safe: bool,
        change: scripts.Script[Reply] = ADD,
        replicas: bool = True,
    ) -> None:
        self._change = change
        self._kind: AddKind | None = None
        self._replicas = replicas
        self._stored = stored
        self._sessions = sessions
        self._pending = pending
        self._retry_safe = retry_safe

    def test_one(self, item: bytes, *, by_reading: bool = False) -> Op[bool]:
        """Test an item.

        :param by_reading: read the item's blocks without a script, if the filter has blocks.  That is worth
            it where several commands sent together cost hardly more than one.
        """
        rounds = None
        while True:
            handle = self._stored.handle or (yield from self._stored.find())
            if handle is None:
                return False
            if by_reading and handle.script_variant in IN_BLOCKS:
                reading = ContainsByReading(handle, item)
                try:
                    there = reading.answer_in((yield reading))
                except Exception as error:
                    raise_judged(reading, error)
                if there is not None:
                    return there  # else the script is called, and detects the reason
            packed = handle.layout.pack_one(item)
            call = self._stored.new_test(handle, (item,), packed, replicas=self._replicas)
            outcome: Reply
            try:
                outcome = yield call
            except Exception as error:
                outcome = error
            there = call.answer_in(outcome)
            if there is not None:
                return there
            try:
                (answer,) = yield from self._stored.tested(call, outcome, 1)
            except LayoutChanged:
                rounds = yield from next_round(rounds, self._stored.name, len(handle.extra))
            else:
                return answer

    def handle_if_ready(self, count: int, *, adds: bool) -> Handle | None:
        """Return the handle if one call can take `count` items now; else None.

        None if the filter is not open, and for an add also if a call is pending.
        """
        handle = self._stored.handle
        if handle is None or count > handle.items or (adds and self._pending.items):
            return None
        return handle

    def new_test(self, handle: Handle, items: Encoded, packed: bytes) -> Contains:
        """Return the call that tests packed items."""
        return self._stored.new_test(handle, items, packed, replicas=self._replicas)

    def new_add(self, handle: Handle, items: Encoded, packed: bytes, sent: float | None = None) -> Add:
        """Return the call that adds packed items; the caller must send it at once.

        :param sent: the time, if the caller knows it.
        """
        stored, session = self._stored, None
        if stored.only_read:
            stored.check_writable()
        if stored.reaction is not None and not handle.is_capped:
            stored.note_added(handle, len(items))
        if self._retry_safe:
            sessions = self._sessions.free
            session = sessions.pop() if sessions else self._sessions.take()
            session.next_call(crc32(packed, handle.check))
        kind = self._kind
        if kind is None or kind[0] is not handle:
            script = stored.variant(self._change, handle)
            frame = handle.make_frame(script, *((1, 2) if self._retry_safe else (0, 1)))
            kind = self._kind = handle, script, frame, handle.is_capped or not stored.is_one_bitmap
        call = Add(kind, session, items, packed, clock.now() if sent is None else sent)
        if stored.wait is not None:
            call.wait, call.is_single = stored.wait, False
        return call

    def test(self, batch: Encoded | Prepared, made: tuple[Contains, Reply] | None = None) -> Op[list[bool]]:
        """Test items, in one or more scripts.

        :param made: a call that was made for all items, and its outcome.
        """
        items, prepared = items_and_prepared(batch)
        answers: list[bool] = []
        if made is not None:
            with suppress(LayoutChanged):
                answers += yield from self._stored.tested(*made, len(items))
        rounds = None
        while len(answers) < len(items):
            handle = yield from self._stored.find()
            if handle is None:
                return [*answers, *([False] * (len(items) - len(answers)))]
            pack_range, last = range_packer(handle, items, len(answers), prepared)
            try:
                for start in range(len(answers), last, handle.items):
                    stop = min(start + handle.items, last)
                    own, packed = items[start:stop], pack_range(start, stop)
                    answers += yield from self._stored.test(handle, own, packed, replicas=self._replicas)
            except LayoutChanged:
                rounds = yield from next_round(rounds, self._stored.name, len(handle.extra) + len(answers))
        return answers

    def add_one(self, item: bytes, token: Pending | None) -> Op[bool]:
        """Add an item; True if it was new.  With a `token`, return the answer of the call that it names."""
        rounds: Rounds | None = None
        while True:
            handle, now = self._stored.handle or (yield from self._stored.open()), clock.now()
            packed, pending = handle.layout.pack_one(item), self._pending
            try:
                if token is not None or (pending.items and pending.find(item, handle.generation)):
                    return (yield from self._add_pending(handle, packed, item, token)) == 1
                return (yield from self._add(handle, (item,), packed, now)) == 1
            except LayoutChanged:
                rounds = yield from next_round(rounds, self._stored.name, len(handle.extra))

    def add(
        self,
        batch: Encoded | Prepared,
        source: Sequence[object],
        made: tuple[Add, Outcome] | None = None,
        *,
        unasked: bool = False,
    ) -> Op[Answers]:
        """Add items, in one or more scripts; return for each whether it was new.

        :param source: the items as the caller gave them, for the error of an interrupted batch.
        :param made: a call that was made for all items, and its outcome.
        :param unasked: nobody gets the answers, so pending calls about these items stay pending, for retries.
            If every call counts, a load that is repeated needs its own answers.
        """
        (items, prepared), stored, rounds = items_and_prepared(batch), self._stored, None
        asked = SentItems(self._pending, items, [])
        answers, own = Answers((), [(range(len(items)), asked)]), list[tuple[str | bytes, Pending]]()
        try:
            if made is not None:
                asked.generations.append((0, made[0].handle.generation))
                with suppress(LayoutChanged):
                    yield from self._finish(*made, answers=answers)
            while len(answers) < len(items):
                handle = stored.handle or (yield from stored.open())
                asked.generations.append((len(answers), handle.generation))
                try:
                    yield from self._add_rest(handle, items, answers, prepared, unasked=unasked)
                except LayoutChanged as changed:
                    own += changed.pending  # of calls of this load
                    rounds = yield from next_round(rounds, stored.name, len(handle.extra) + len(answers))
            if unasked:
                self._pending.discard(own)
            yield from stored.look_at_count(0)
        except BaseException as error:
            if isinstance(error, Exception) and len(answers) < len(items):
                raise_interrupted("add_many", answers, source, error)
            answers.leave()  # the caller was cancelled, or interrupted behind the last answer
            raise
        return answers

    def _add_rest(
        self,
        handle: Handle,
        items: Encoded,
        answers: list[bool],
        prepared: Prepared | None,
        *,
        unasked: bool,
    ) -> Op[None]:
        """Add the next items that have no answer yet: as many as are packed together."""
        if len(items) <= handle.items and not (answers or self._pending.items):
            yield from self._add(handle, items, pack(handle, items, prepared), answers=answers)
            return
        first, keep = len(answers), unasked and not self._pending.every_call_counts
        pack_range, last = range_packer(handle, items, first, prepared)
        for start, stop, pending in self._pending.split_runs(
            items, first, last, handle.items, handle.generation
        ):
            if pending and keep and (yield from self.resolve_pending(as_bytes(items[start]), keep=True)):
                answers.append(False)
                continue
            if pending:
                packed = pack_range(start, stop)
                answers.append((yield from self._add_pending(handle, packed, items[start], None)) == 1)
                continue
            while len(answers) < stop:  # a script ends early if the filter is full or must grow
                at = len(answers)
                yield from self._add(handle, items[at:stop], pack_range(at, stop), answers=answers)

    def _add(
        self,
        handle: Handle,
        items: Encoded,
        packed: bytes,
        sent: float | None = None,
        *,
        answers: list[bool] | None = None,
        elsewhere: bool = False,
    ) -> Op[Flags]:
        """Add packed items in one script; without a reliable reply they become pending.

        :param answers: gets the answers.
        :param elsewhere: the call was moved to a new session because of a clone; it is not moved again.
        """
        call = self.new_add(handle, items, packed, sent)
        outcome: Outcome = None
        try:
            try:
                outcome = yield call
            except BaseException as error:  # includes interruptions
                outcome = error
            if (session := call.session) is not None and call.is_plain(outcome):
                session.free.append(session)
                if answers is not None:
                    answers += flags_of(outcome)
                return outcome
            return (yield from self._finish(call, outcome, answers=answers, elsewhere=elsewhere))
        except BaseException:
            self.leave(call, outcome)
            raise

    def _finish(
        self, call: Add, outcome: Outcome, *, answers: list[bool] | None = None, elsewhere: bool = False
    ) -> Op[Flags]:
        """Return the reply to a call that adds items; handle errors, refusals and late replies."""
        session, got = call.session, [] if answers is None else answers
        if session is None:
            with OutcomeMatters(self._stored.name):
                reply = call.checked((yield from self._stored.finish_call(call, outcome)))
            got += flags_of(reply)
            return reply
        try:
            reply = call.checked((yield from self._stored.finish_call(call, outcome)))
        except BaseException as error:
            if is_used_by_clone(error) and not elsewhere:
                return (yield from self._add_elsewhere(call, got))
            if judge(call, error) is Verdict.PENDING:
                self._raise_unknown(error, call)
            call.is_settled = True
            session.free.append(session)
            raise
        try:
            waited = clock.now() - call.sent
            if waited <= RECEIPT_SECONDS or all(flags_of(reply)):
                session.free.append(session)
                got += flags_of(reply)
                call.is_settled = True
                return reply
        except BaseException:  # the caller was interrupted
            self.leave(call, reply)
            raise
        # If the receipt expired before a retry, this very call may have added the items that are there.
        late = failed(f"the reply came {waited:.0f} s after the first sending")
        self._raise_unknown(late, call, late=flags_of(reply))

    def leave(self, call: Add, outcome: Outcome) -> None:
        """Leave the answers of a call to retries if its caller does not get them.

        An interruption may come between any two steps of a call, also while a lost reply is recorded.  So
        whoever made a call does this for each that is not settled, whatever the outcome is.
        """
        session, generation = call.session, call.handle.generation
        if call.is_settled:
            return
        if call.is_plain(outcome):
            for item, answer in zip(call.items, flags_of(outcome), strict=False):
                self._pending.leave(item, generation, answer=answer)
        elif session is not None:
            self._pending.add(call.items, session.name, session.call, generation, call.sent)
        call.is_settled = True

    def _add_elsewhere(self, call: Add, answers: list[bool]) -> Op[Flags]:
        """Add the items of a call in another session; a clone of this machine or process used the first."""
        self._sessions.after_fork()
        call.is_settled = True
        reply = yield from self._add(call.handle, call.items, call.packed, elsewhere=True)
        flags = flags_of(reply)
        if not all(flags):  # an earlier attempt may have added them; the clone has overwritten its receipt
            call.sent -= RECEIPT_SECONDS
            self._raise_unknown(None, call, late=flags)
        answers += flags
        return reply

    def _raise_unknown(
        self, error: BaseException | None, call: Add, *, late: Sequence[bool] = ()
    ) -> NoReturn:
        """Record a call's items as pending, since its reply is missing or late; raise the public error."""
        session, generation = cast("Session", call.session), call.handle.generation
        pending = self._pending.add(call.items, session.name, session.call, generation, call.sent, late=late)
        call.is_settled = True
        tokens = [each.token(item) for item, each in zip(call.items, pending, strict=True)]
        if isinstance(error, LayoutChanged):
            error.pending = [*zip(call.items, pending, strict=True)]
        raise_unknown(self._stored.name, error, tokens)

    def _add_pending(
        self, handle: Handle, packed: bytes, item: str | bytes, token: Pending | None
    ) -> Op[Flags]:
        """Add one pending item; of all retries, exactly one gets the answer of the pending call."""

        def ask(calls: Sequence[Pending]) -> Op[Flags]:
            if not calls:
                return (yield from self._add(handle, (item,), packed))
            reply: Flags = 0
            for pending in calls:
                reply = yield from self._ask_again(handle, packed, item, pending, by_token=token is not None)
                if reply == 1:
                    return reply
            for pending in calls:
                if pending.until <= clock.now():
                    raise_unknown(self._stored.name, None, [pending.token(item)])
            return reply

        return self._taken_out(item, handle.generation, token, ask)

    def _taken_out(
        self,
        item: str | bytes,
        generation: bytes,
        token: Pending | None,
        ask: Callable[[Sequence[Pending]], Op[T]],
    ) -> Op[T]:
        """Take out the pending calls about an item and ask about them; put them back after an error.

        This is no context manager: those of contextlib may be interrupted before their blocks begin.
        """
        mine: list[Pending] = []
        try:
            return (yield from ask(self._pending.checkout(item, generation, token, mine)))
        except BaseException as error:
            try:
                self._pending.put_back(item, mine, error)
            except BaseException:  # an interruption
                self._pending.put_back(item, mine, error)
                raise
            raise

    def _ask_again(
        self, handle: Handle, packed: bytes, item: str | bytes, pending: Pending, *, by_token: bool = False
    ) -> Op[Flags]:
        """Add one packed item of a pending call; return the answer of that call."""
        count_receipt()
        if pending.answer is not None:
            there = yield from self._stored.test(handle, (item,), packed)
            if not there[0] and not self._pending.every_call_counts:  # the item was forgotten
                return (yield from self._add(handle, (item,), packed))
            return int(pending.answer)
        if self._pending.every_call_counts and pending.until <= clock.now():
            # Without its receipt the call might be executed twice.
            raise_unknown(self._stored.name, None, [pending.token(item)], UNCOUNTED)
        keys = [self._sessions.key(pending.name), self._sessions.key(pending.session)]
        own = only_call(crc32(as_bytes(item), handle.check))
        arguments: Arguments = [packed, own, pending.call, pending.index]
        try:
            answer = yield from self._stored.run(self._change, handle, arguments, keys)
            reply = checked(answer, 1)
        except (ConnectionFailedError, ServerRefusedError, Refusal) as error:
            # A caller who gave the token may use it again; without a token this object retries.
            given = by_token or is_used_by_clone(error)
            raise_unknown(self._stored.name, error, [pending.token(item) if given else None])
        return reply

    def resolve_pending(self, item: bytes, *, keep: bool = False) -> Op[bool]:
        """Make sure that the pending calls of an item have been executed; return whether there were any.

        :param keep: they stay pending; otherwise only the holder of a token gets their answers from now on.
        """
        rounds, made = None, set[Pending]()
        while item in self._pending.items:
            rounds = yield from next_round(rounds, self._stored.name)
            handle = yield from self._stored.acquire()
            pending = self._pending.find(item, handle.generation, made)
            if pending is None:  # the other pending calls are of another generation
                return any(each.generation == handle.generation for each in made)
            packed = handle.layout.pack_one(item)
            ask = partial(self._ask_again, handle, packed, item, pending)
            with suppress(LayoutChanged):
                if keep:
                    yield from ask()
                else:
                    yield from self._taken_out(item, handle.generation, pending, lambda _: ask())  # noqa: B023 - in this turn
                made.add(pending)
        return bool(made)
