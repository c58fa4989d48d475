"""Operations of filters in several parts: each item belongs to one part.

A part is a filter itself, so all guarantees for one item hold.  A batch is split into a run for each part.
The runs are sent concurrently, and their answers are merged.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast

from bloomredis.bits.arrays import NDArray, np
from bloomredis.bits.batch import Encoded, Prepared
from bloomredis.bits.encoding import rows_from
from bloomredis.bits.hashing import Digests
from bloomredis.bits.picked import Picked
from bloomredis.errors import BatchInterruptedError
from bloomredis.later import later
from bloomredis.operations.claims.requests import ClaimRequest
from bloomredis.operations.codec import Codec
from bloomredis.operations.items.outcomes import TRANSIENT, Answers, raise_batch_of_stream
from bloomredis.operations.items.packing import packed_batch
from bloomredis.operations.kinds.filter import FilterOperations
from bloomredis.operations.kinds.pipelines import AnyPipeline, Queueing
from bloomredis.operations.kinds.sharded_batches import (
    CallAndOutcome,
    ShardAnswers,
    ShardItems,
    answers_of,
    answers_of_several,
    merge_replies,
    raise_interruption,
    store_one,
    told_apart,
    unless_interrupted,
)
from bloomredis.operations.kinds.verbs import ItemOperations, StoreAnswers
from bloomredis.operations.options import Options, Seconds
from bloomredis.protocol.gather import error_to_raise, gather, unless_failed
from bloomredis.protocol.keys import as_bytes
from bloomredis.protocol.receipts import parse_token
from bloomredis.protocol.replies import is_answer
from bloomredis.protocol.steps import Batches, Compute, Many, Next, Op, Outcome
from bloomredis.stored.state.handle import Handle

if TYPE_CHECKING:
    from bloomredis.operations.whole import loading
    from bloomredis.operations.whole.loading import Load, WaitingItems
else:
    loading = later("bloomredis.operations.whole", "loading")

T = TypeVar("T")
PartId = Any
"""The identity of a part, which depends on the class."""

CUT_TOGETHER: Final = 1 << 16
"""Items that a load reads before it splits them by part, so that each part hashes many at once."""
LOADED_TOGETHER: Final = 4
"""Parts to which a load sends at a time: each takes memory while its segments are sent."""


class RoutedOperations(ItemOperations):
    """The operations of a filter in several parts; the subclass finds the part of an item."""

    cache: None = None
    """Filters in several parts have no local cache."""

    def __init__(self, name: str, codec: Codec, options: Options) -> None:
        self.name = name
        self.codec = codec
        self.options = options
        self._parts: dict[PartId, Queueing] = {}

    @abstractmethod
    def _place(self, encoded: bytes) -> PartId:
        """Return the part of an item."""

    @abstractmethod
    def _new_part(self, place: PartId) -> Queueing:
        """Return the operations of a part."""

    @abstractmethod
    def expire(self, seconds: Seconds) -> Op[None]:
        """Let all keys of the filter expire that many seconds (or a timedelta) from now."""

    def _ready(self, *, creates: bool = True) -> Op[None]:  # noqa: ARG002 - for its overrides
        """Open the filter, if the parts of items depend on stored parameters.

        :param creates: create it if it is missing; otherwise raise `FilterNotFoundError`.
        """
        return
        yield  # makes this a generator, like its overrides

    def _part(self, place: PartId) -> Queueing:
        part = self._parts.get(place)
        if part is None:
            part = self._parts.setdefault(place, self._new_part(place))
        return part

    def _on(self, place: PartId, call: Callable[[Queueing], Op[T]]) -> Op[T]:
        """Run an operation on a part."""
        return call(self._part(place))

    def on_item(self, encoded: bytes, call: Callable[[Queueing], Op[T]]) -> Op[T]:
        """Run an operation on the part of the filter that has an item."""
        yield from self._ready()
        return (yield from self._on(self._place(encoded), call))

    def part_of(self, encoded: bytes) -> Queueing:
        """Return the part that has an item; the filter must be open."""
        return self._part(self._place(encoded))

    def _everywhere(self, places: Iterable[PartId], call: Callable[[Queueing], Op[T]]) -> Op[list[T]]:
        """Run an operation on several parts; all end before the error of one is raised."""
        outcomes = yield from gather(self._on(place, call) for place in places)
        return unless_failed(outcomes)

    def _cut(self, encoded: Encoded) -> dict[PartId, NDArray[np.intp]]:
        """Return for each part the indexes of its items in a batch, in order."""
        parts: dict[PartId, list[int]] = {}
        for i, item in enumerate(encoded):
            parts.setdefault(self._place(as_bytes(item)), []).append(i)
        return {place: np.array(own, np.intp) for place, own in parts.items()}

    def _batches(self, encoded: Encoded, owns: Sequence[NDArray[np.intp]]) -> Iterable[Encoded | Prepared]:
        """Return the items of each part, possibly packed."""
        return ([*Picked(encoded, own)] for own in owns)

    def _runs(self, encoded: Encoded) -> list[ShardItems]:
        """Return a run for each part that has items of the batch."""
        cut = self._cut(encoded)
        owns = list(cut.values())
        batches = zip(cut, owns, self._batches(encoded, owns), strict=True)
        return [ShardItems(self._part(place), own, mine) for place, own, mine in batches]

    def _gathered(
        self, runs: Sequence[ShardItems], operations: Iterable[Op[list[T]]]
    ) -> Op[list[tuple[list[int], list[T] | Exception]]]:
        """Run an operation for each run; return the indexes of its items with its answers or error."""
        outcomes = yield from gather(operations)
        return [(run.own.tolist(), outcome) for run, outcome in zip(runs, outcomes, strict=True)]

    def _calls(self, runs: Sequence[ShardItems], *, adds: bool) -> list[Any]:
        """Return one call for each run; none at all if a run needs more than one call."""
        handles = [run.part.membership.handle_if_ready(len(run.own), adds=adds) for run in runs]
        calls: list[Any] = []
        for run, handle in zip(runs, handles, strict=True) if None not in handles else ():
            new = run.part.membership.new_add if adds else run.part.membership.new_test
            calls.append(new(cast("Handle", handle), *packed_batch(cast("Handle", handle), run.batch)))
        return calls

    # -- items

    def add(self, item: object, *, token: str | None = None) -> Op[bool]:
        """Add an item; True if this call was the first to add it."""
        encoded = self.codec.encode(item)
        pending = None if token is None else parse_token(token, encoded)
        return self.on_item(encoded, lambda part: part.items.add_one(encoded, pending))

    def contains(self, item: object, *, by_reading: bool = False) -> Op[bool]:
        """Return whether an item is in the filter.

        :param by_reading: read the item's blocks without a script, if there are blocks.
        """
        encoded = self.codec.encode(item)
        yield from self._ready(creates=False)

        def test(part: Queueing) -> Op[bool]:
            return part.items.test_one(encoded, by_reading=by_reading)

        return (yield from self._on(self._place(encoded), test))

    def add_encoded(self, encoded: Encoded, items: Sequence[object]) -> Op[Answers]:
        """Add encoded items; `items` are the caller's."""
        return self._added(encoded, items, answers_of)

    def add_shared(self, encoded: Encoded) -> Op[Answers]:
        """Add the items of several callers; a part that does not answer fails its own items only."""
        return self._added(encoded, encoded, answers_of_several)

    def _added(
        self, encoded: Encoded, items: Sequence[object], merged: Callable[..., Answers]
    ) -> Op[Answers]:
        yield from self._ready()
        runs, answered = self._runs(encoded), ShardAnswers()
        calls, made = self._calls(runs, adds=True), list[CallAndOutcome | None]([None]) * len(runs)
        if calls:
            replies: Sequence[Outcome]
            try:
                replies = yield Many(calls)
            except BaseException as interruption:  # an interruption of the caller, or an error of all calls
                replies = [interruption] * len(calls)
            made = list(zip(calls, replies, strict=True))
        if all(each is not None and each[0].is_plain(each[1]) for each in made):
            for run, each in zip(runs, made, strict=True):
                run.part.membership.end_call(cast("CallAndOutcome", each)[0])
            return Answers(partial(store_one, runs, made), merge_replies(runs, made))
        operations = [
            answered.recorded(
                run.own.tolist(), run.part.membership.add(run.batch, Picked(items, run.own), own)
            )
            for run, own in zip(runs, made, strict=True)
        ]
        try:
            raise_interruption(made, operations)
            outcomes = yield from self._gathered(runs, operations)
        except BaseException:  # the caller was cancelled or interrupted
            answered.store(range(len(items)))
            raise
        return merged(items, outcomes, answered)

    def contains_encoded(self, encoded: Encoded) -> Op[list[bool]]:
        """Test encoded items."""
        return self._tested(encoded, unless_interrupted)

    def contains_shared(self, encoded: Encoded) -> Op[list[bool]]:
        """Test the items of several callers; a part that does not answer fails its own items only."""
        return self._tested(encoded, told_apart)

    def _tested(self, encoded: Encoded, merged: Callable[..., list[bool]]) -> Op[list[bool]]:
        yield from self._ready(creates=False)
        runs = self._runs(encoded)
        calls, made = self._calls(runs, adds=False), list[CallAndOutcome | None]([None]) * len(runs)
        if calls:
            made = list(zip(calls, (yield Many(calls)), strict=True))
        pairs = list(zip(runs, made, strict=True))
        if all(each and is_answer(each[1], len(run.own), len(run.own)) for run, each in pairs):
            return merge_replies(runs, made)
        operations = [run.part.membership.test(run.batch, each) for run, each in pairs]
        return merged(len(encoded), (yield from self._gathered(runs, operations)))

    def answer_store(self) -> StoreAnswers:
        """Return a function that stores answers for retries, for the present generation and process."""
        parts = list(self._parts.items())  # a copy, since threads add parts
        stores = {place: part.answer_store() for place, part in parts}

        def store(encoded: Encoded, answers: Sequence[bool]) -> None:
            for item, answer in zip(encoded, answers, strict=False):
                if own := stores.get(self._place(as_bytes(item))):
                    own([item], [answer])

        return store

    def has_pending(self) -> bool:
        """Return whether a call is pending."""
        return any(part.has_pending() for part in list(self._parts.values()))

    # -- claims

    def on_items(self, requests: Sequence[ClaimRequest]) -> Op[None]:
        """Make an attempt at requests of one group, on the parts of the filter that have the items."""
        yield from self._ready()
        parts: dict[PartId, list[ClaimRequest]] = {}
        for request in requests:
            parts.setdefault(self._place(request.encoded), []).append(request)

        def attempt(own: Sequence[ClaimRequest]) -> Callable[[Queueing], Op[None]]:
            return lambda part: part.attempted(own)

        yield from gather(self._on(place, attempt(own)) for place, own in parts.items())

    # -- pipelines and bulk

    def queue_add(self, pipe: AnyPipeline, item: object) -> Op[None]:
        """Queue an add; its result in `pipe.execute()` is 1 or 0."""
        return self.on_item(self.codec.encode(item), lambda part: part.queue_add(pipe, item))

    def queue_contains(self, pipe: AnyPipeline, item: object) -> Op[None]:
        """Queue a test; its result in `pipe.execute()` is 1 or 0."""
        encoded = self.codec.encode(item)
        yield from self._ready(creates=False)
        yield from self._on(self._place(encoded), lambda part: part.queue_contains(pipe, item))

    def load(self, source: Batches, progress: Callable[[int], object] | None = None) -> Op[int]:
        """Add items as fast as possible, without an answer for each; return how many were read."""
        parts: dict[PartId, ShardLoad] = {}
        read = told = 0
        is_over = False
        while not is_over:
            batch: list[object] = []
            while not is_over and len(batch) < CUT_TOGETHER:
                some: list[object] | None = yield Next(source)
                batch += some or ()
                is_over = not some
            if batch:
                yield from self._ready()
                cut: dict[PartId, WaitingItems] = yield Compute(partial(self._cut_for_load, batch, read))
                for part_id in cut:
                    if part_id not in parts:
                        parts[part_id] = yield from self._on(part_id, self._new_load)
                yield Compute(partial(_add_to_parts, parts, cut, read))
                read += len(batch)
            begun = {place: each for place, each in parts.items() if each.load.items}
            due = (place for place, each in begun.items() if each.load.is_full or is_over)
            outcomes = yield from gather(
                (self._on(place, begun[place].send) for place in due), most=LOADED_TOGETHER
            )
            done = min((each.since for each in parts.values() if each.load.items), default=read)
            if errors := [each for each in outcomes if isinstance(each, Exception)]:
                _raise_unread(error_to_raise(errors), [each.load for each in parts.values()], read, done)
            if progress is not None and done > told:
                told = done
                progress(done)
        return read

    def _cut_for_load(self, batch: Sequence[Any], read: int) -> dict[PartId, WaitingItems]:
        """Return the items of each part; `read` is the number of items read before the batch."""
        with rows_from(read):
            encoded = self.codec.encode_all(batch)
        digests = self._digests(encoded)
        cut = {}
        for part_id, own in self._cut(encoded).items():
            mine = Picked(encoded, own)
            cut[part_id] = loading.WaitingItems(
                Picked(batch, own), mine, mine if digests is None else digests.take(own)
            )
        return cut

    def _digests(self, encoded: Encoded) -> Digests | None:  # noqa: ARG002 - used by overrides
        """Return the digests of a batch if the parts compute bits from them; else None."""
        return None

    @abstractmethod
    def _num_parts(self) -> int:
        """Return the number of parts that can have items; the filter must be open."""

    def _new_load(self, part: Queueing) -> Op[ShardLoad]:
        handle = yield from part.stored.acquire()
        load = loading.Load(part.stored.segmented(handle), part.codec, parts=self._num_parts())
        return ShardLoad(load)


@dataclass(slots=True)
class ShardLoad:
    """The batch of a load for one part of a filter.

    :ivar since: number of items that had been read when the batch began.
    """

    load: Load
    since: int = 0

    def append(self, waiting: WaitingItems, read: int) -> None:
        """Add items to the batch; `read` is the number of items read before them."""
        if not self.load.items:
            self.since = read
        self.load.append(waiting)

    def send(self, part: FilterOperations) -> Op[None]:
        """Add the items of the batch to the part."""
        return loading.send_full(part.stored, part.membership, self.load, ends=True)


def _add_to_parts(parts: Mapping[PartId, ShardLoad], cut: Mapping[PartId, WaitingItems], read: int) -> None:
    """Add the items of each part to its batch."""
    for part_id, waiting in cut.items():
        parts[part_id].append(waiting, read)


def _raise_unread(error: Exception, loads: Iterable[Load], read: int, done: int) -> NoReturn:
    """Raise the error of a load that has read `read` items and added the first `done` of them.

    The error has the items that were not added, if they are still in this process.
    """
    reason = error.__cause__ if isinstance(error, BatchInterruptedError) else error
    unsent = [each for each in loads if each.items]
    with loading.counted(lambda: done):
        if isinstance(reason, TRANSIENT) and all(each.waiting for each in unsent):
            rest = [item for each in unsent for run in each.waiting for item in run.items]
            raise_batch_of_stream(reason, "load", rest, can_repeat_all=len(rest) == read)
        raise error
