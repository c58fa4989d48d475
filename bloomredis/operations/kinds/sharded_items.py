"""Items of a sharded filter: each shard gets its own, all at once, and the answers are merged.

If one call a shard is enough for a batch, these calls are made together.  If some of them need more than a
reply, each shard goes on with its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeVar, cast

from bloomredis.bits.arrays import NDArray, np
from bloomredis.bits.batch import Encoded, PackedBatch, Prepared
from bloomredis.bits.picked import Picked
from bloomredis.errors import BatchInterruptedError, FilterLostError
from bloomredis.operations.items.outcomes import interrupted_by, own_error
from bloomredis.operations.items.packing import PACKED, packed_batch
from bloomredis.operations.kinds.pipelines import Queueing
from bloomredis.operations.options import Options
from bloomredis.protocol.gather import error_to_raise, gather, loss_in
from bloomredis.protocol.pending import Answers, SentItems
from bloomredis.protocol.receipts import Pending
from bloomredis.protocol.replies import digits_of, is_answer
from bloomredis.protocol.steps import Many, Op, Outcome
from bloomredis.stored.shards.parts import StoredShard
from bloomredis.stored.shards.shards import StoredShards
from bloomredis.stored.state.handle import Handle

T = TypeVar("T")

CallAndOutcome = tuple[Any, Any]
"""A call that adds or tests items, and its outcome."""


Parts = list[tuple[list[int], Answers]]
"""The answers of shards, each with the indexes of the shard's items."""
Outcomes = Sequence[tuple[list[int], list[bool] | Exception]]
"""For each shard the indexes of its items, and their answers or its error."""


class ShardItems(NamedTuple):
    """The items of a batch that belong to one shard.

    :ivar part: the operations of the shard.
    :ivar own: the indexes of the items in the batch, in order.
    """

    part: Queueing
    own: NDArray[np.intp]
    batch: Encoded | Prepared


class ShardedItems:
    """The shards of a filter, and the calls that add and test encoded items in them."""

    def __init__(self, stored: StoredShards, options: Options) -> None:
        self._stored = stored
        self._options = options
        self._parts: dict[StoredShard, Queueing] = {}

    def parts(self) -> list[tuple[StoredShard, Queueing]]:
        """Return the shards that were used, with their operations; threads may add more meanwhile."""
        return list(self._parts.items())

    def part(self, shard: StoredShard) -> Queueing:
        """Return the operations of a shard."""
        return self._parts.get(shard) or self._parts.setdefault(shard, Queueing(shard, self._options))

    def part_of(self, item: bytes) -> Queueing:
        """Return the shard that has an item; the filter must be open."""
        return self.part(self._stored.shard_with(item))

    def on_item(self, item: bytes, call: Callable[[Queueing], Op[T]]) -> Op[T]:
        """Run an operation on the shard that has an item; a missing filter is created."""
        if self._stored.handle is None:
            yield from self._stored.acquire()
        return (yield from call(self.part_of(item)))

    def add_one(self, item: bytes, token: Pending | None) -> Op[bool]:
        """Add an item; True if it was new."""
        return self.on_item(item, lambda part: part.items.add_one(item, token))

    def test_one(self, item: bytes, *, by_reading: bool = False) -> Op[bool]:
        """Test an item, as `Membership` does."""
        if self._stored.handle is None and (yield from self._stored.find()) is None:
            return False
        return (yield from self.part_of(item).items.test_one(item, by_reading=by_reading))

    def add(
        self, encoded: Encoded, source: Sequence[object], merged: Callable[..., Answers] | None = None
    ) -> Op[Answers]:
        """Add items; return for each whether it was new.

        :param source: the items as the caller gave them, for the error of an interrupted batch.
        :param merged: `answers_of_several` for the items of several callers.
        """
        yield from self._stored.acquire()
        parts, runs = Parts(), self._split(encoded)
        calls = _calls(runs, adds=True)
        made = list[CallAndOutcome | None]([None]) * len(runs)
        replies: Sequence[Outcome] = [None] * len(calls)
        try:
            if calls:
                try:
                    replies = yield Many(calls)
                except Exception as error:  # of all calls
                    replies = [error] * len(calls)
                made = list(zip(calls, replies, strict=True))
                if all(call.is_plain(reply) for call, reply in zip(calls, replies, strict=True)):
                    answers = Answers(merge_replies(runs, made), map(_sent, runs, calls))
                    for call in calls:
                        call.session.free.append(call.session)
                    calls = []  # the caller gets what they did
                    return answers
            added = _added_by(runs, made, source, parts)
            return (merged or answers_of)(source, (yield from _gathered(runs, added)), parts)
        except BatchInterruptedError:  # the caller gets the answers with the error
            raise
        except BaseException:  # the caller was cancelled or interrupted
            for _, part in parts:
                part.leave()
            raise
        finally:
            for run, call, reply in zip(runs, calls, replies, strict=False):
                run.part.membership.leave(call, reply)

    def test(self, encoded: Encoded, merged: Callable[..., list[bool]] | None = None) -> Op[list[bool]]:
        """Test items.

        :param merged: `told_apart` for the items of several callers.
        """
        if (yield from self._stored.find()) is None:
            return [False] * len(encoded)
        runs = self._split(encoded)
        calls, made = _calls(runs, adds=False), list[CallAndOutcome | None]([None]) * len(runs)
        if calls:
            made = list(zip(calls, (yield Many(calls)), strict=True))
        pairs = list(zip(runs, made, strict=True))
        if all(each and is_answer(each[1], len(run.own), len(run.own)) for run, each in pairs):
            return merge_replies(runs, made)
        operations = [run.part.membership.test(run.batch, each) for run, each in pairs]
        return (merged or unless_interrupted)(len(encoded), (yield from _gathered(runs, operations)))

    def _split(self, encoded: Encoded) -> list[ShardItems]:
        """Return the items of each shard that has items of a batch; the filter must be open."""
        parted = {self.part(shard): own for shard, own in self._stored.parted(encoded).items()}
        return split(encoded, parted, self._stored.handle)


def split(
    encoded: Encoded, parted: Mapping[Queueing, NDArray[np.intp]], handle: Handle | None
) -> list[ShardItems]:
    """Return the items of each shard, all of them packed at once if they are few.

    :param parted: the indexes of the items of each shard.
    :param handle: that of the whole filter, whose layout the shards have.
    """
    if handle is None or len(encoded) > PACKED:
        return [ShardItems(part, own, [*Picked(encoded, own)]) for part, own in parted.items()]
    layout, owns = handle.layout, list(parted.values())
    ordered = list(map(encoded.__getitem__, np.concatenate(owns).tolist()))
    data, size = layout.pack(ordered), layout.item_bytes
    ends = accumulate(map(len, owns), initial=0)
    return [
        ShardItems(part, own, PackedBatch(layout, ordered[start:end], data[start * size : end * size]))
        for (part, own), (start, end) in zip(parted.items(), pairwise(ends), strict=True)
    ]


def _added_by(
    runs: Sequence[ShardItems],
    made: Sequence[CallAndOutcome | None],
    items: Sequence[object],
    parts: Parts,
) -> list[Op[list[bool]]]:
    """Return the operation of each shard that adds its items, and goes on with the call that was made."""
    return [
        _recorded(parts, run.own.tolist(), run.part.membership.add(run.batch, Picked(items, run.own), own))
        for run, own in zip(runs, made, strict=True)
    ]


def _calls(runs: Sequence[ShardItems], *, adds: bool) -> list[Any]:
    """Return one call for each shard; none at all if a shard needs more than one call."""
    handles = [run.part.membership.handle_if_ready(len(run.own), adds=adds) for run in runs]
    calls: list[Any] = []
    for run, handle in zip(runs, handles, strict=True) if None not in handles else ():
        new = run.part.membership.new_add if adds else run.part.membership.new_test
        calls.append(new(cast("Handle", handle), *packed_batch(cast("Handle", handle), run.batch)))
    return calls


def _sent(run: ShardItems, call: Any) -> tuple[Any, SentItems]:
    """Return what a call of a shard asked, with the indexes of its items."""
    return run.own, SentItems(run.part.pending, call.items, [(0, call.handle.generation)])


def _gathered(
    runs: Sequence[ShardItems], operations: Iterable[Op[list[T]]]
) -> Op[list[tuple[list[int], list[T] | Exception]]]:
    """Run the operation of each shard; return the indexes of its items with its answers or error."""
    outcomes = yield from gather(operations)
    return [(run.own.tolist(), outcome) for run, outcome in zip(runs, outcomes, strict=True)]


def merge_replies(runs: Sequence[ShardItems], made: Sequence[CallAndOutcome | None]) -> list[bool]:
    """Return the answers in the replies to one call of each shard, in the order of the batch."""
    order = np.concatenate([run.own for run in runs])
    answers = np.empty(len(order), np.bool_)
    digits = b"".join(digits_of(each[1]) for each in made if each)
    answers[order] = np.frombuffer(digits, np.uint8) & 1  # the lowest bit of a digit, or of a byte
    told: list[bool] = answers.tolist()
    return told


def _recorded(parts: Parts, own: list[int], operation: Op[Answers]) -> Op[list[bool]]:
    """Add the items of a shard, which have these indexes in the batch; record the answers as they come."""
    try:
        answers = yield from operation
    except BatchInterruptedError as error:
        results: Any = error.results
        parts.append((own, results))
        raise
    parts.append((own, answers))
    return answers


def answers_of(items: Sequence[object], outcomes: Outcomes, parts: Parts) -> Answers:
    """Return the answers to a batch of adds, given the outcomes of its shards; raise the error of one."""
    merged, error = merge_answers(len(items), outcomes)
    answers = Answers(cast("list[bool]", merged), parts)
    if error is None:
        return answers
    answers.leave(merged.index(None))
    interrupted = interrupted_error(merged, items, error, outcomes)
    interrupted.results = Answers(interrupted.results, parts)
    raise interrupted


def answers_of_several(items: Sequence[object], outcomes: Outcomes, parts: Parts) -> Answers:
    """Return the answers to adds of several callers (`told_apart`)."""
    try:
        return Answers(told_apart(len(items), outcomes), parts)
    except FilterLostError:
        return answers_of(items, outcomes, parts)


def told_apart(count: int, outcomes: Outcomes) -> list[bool]:
    """Return the answers to the items of several callers: an item of a shard that failed has its own error.

    :raises FilterLostError: the loss of the filter is an error for all.
    """
    merged, error = merge_answers(count, outcomes)
    if error is not None and (lost := loss_in(error)):
        raise lost
    for own, failed in outcomes:
        if isinstance(failed, Exception):
            known, tokens = getattr(failed, "results", ()), getattr(failed, "tokens", ())
            for at, i in enumerate(own[len(known) :]):
                merged[i] = cast("bool", own_error(failed, tokens[at : at + 1]))
    return cast("list[bool]", merged)


def unless_interrupted(count: int, outcomes: Outcomes) -> list[bool]:
    """Return a batch's answers; raise the error of a shard."""
    merged, error = merge_answers(count, outcomes)
    if error is not None:
        raise error
    return cast("list[bool]", merged)


def merge_answers(
    count: int, outcomes: Iterable[tuple[list[int], list[T] | Exception]]
) -> tuple[list[T | None], Exception | None]:
    """Return a batch's answers, None for items without one, and the error to raise."""
    merged: list[T | None] = [None] * count
    errors: list[tuple[int, Exception]] = []
    for own, answers in outcomes:
        known: Sequence[T] = answers if isinstance(answers, list) else getattr(answers, "results", ())
        for i, answer in zip(own, known, strict=False):
            merged[i] = answer
        if isinstance(answers, Exception):
            errors.append((own[len(known)], answers))
    errors.sort(key=lambda error: error[0])
    return merged, error_to_raise([error for _, error in errors]) if errors else None


def interrupted_error(
    answers: list[Any],
    items: Sequence[object],
    error: Exception,
    outcomes: Iterable[tuple[list[int], object]],
) -> BatchInterruptedError:
    """Return the error for an interrupted batch; raise the original error if no item was touched."""
    if all(answer is None for answer in answers) and not isinstance(error, BatchInterruptedError):
        raise error
    known = answers.index(None)
    reason = error.__cause__ if isinstance(error, BatchInterruptedError) else error
    tokens: list[str | None] = [None] * (len(items) - known)
    for own, stopped in outcomes:
        if isinstance(stopped, BatchInterruptedError):
            for i, token in zip(own[len(stopped.results) :], stopped.tokens, strict=False):
                tokens[i - known] = token
    interrupted = interrupted_by(reason, "add_many", answers[:known], items, tokens)
    interrupted.__cause__ = reason
    return interrupted
