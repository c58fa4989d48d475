"""Filters whose items are spread over several parts: each item lives in one of them.

A part is a filter of its own, so the guarantees for one item hold here.  A batch is cut into a batch for
each part; these run concurrently, and the answers are put together again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, NoReturn, TypeVar, cast

from bloomredis.bits.batch import Encoded, Prepared, parts_of
from bloomredis.bits.encoding import rows_from
from bloomredis.errors import BatchInterruptedError, BloomError
from bloomredis.operations.claims.state import Held, Terms
from bloomredis.operations.codec import Codec
from bloomredis.operations.items.outcomes import PASSING, Answers, interrupted_by, raise_unread
from bloomredis.operations.kinds.filter import FilterOperations
from bloomredis.operations.kinds.pipelines import AnyPipeline, Queueing
from bloomredis.operations.kinds.verbs import Keep, Verbs
from bloomredis.operations.options import Options, Seconds
from bloomredis.operations.whole.loading import load_one_batch
from bloomredis.protocol.gather import at, gather, unless_failed
from bloomredis.protocol.keys import as_bytes
from bloomredis.protocol.steps import Batches, Next, Op

T = TypeVar("T")
C = TypeVar("C")
Place = tuple[int, Any]
"""The part that an item lives in: the number of its server, and a name or a state, as the class has it."""

LOADED_TOGETHER: Final = 4
"""Parts that a load works on at a time: each takes memory while its segments are sent."""


class RoutedOperations(Verbs):
    """The verbs of a filter in several parts; the subclass finds the part of an item."""

    servers: int
    cache: None = None
    """There is no local cache of several parts."""

    def __init__(self, name: str, codec: Codec, options: Options) -> None:
        self.name = name
        self.codec = codec
        self.options = options
        self.batched: set[str] = set()
        self._parts: dict[Place, Queueing] = {}
        self._reads = False

    def read_at_once(self, reads: bool) -> None:  # noqa: FBT001 - the one thing that it sets
        """Let tests of one item read its blocks: several commands cost hardly more than one."""
        self._reads = reads
        for part in list(self._parts.values()):
            part.read_at_once(reads)

    @abstractmethod
    def _place(self, encoded: bytes) -> Place:
        """Return the part that an item lives in."""

    @abstractmethod
    def _new_part(self, place: Place) -> Queueing:
        """Return the operations of a part."""

    @abstractmethod
    def expire(self, seconds: Seconds) -> Op[None]:
        """Let everything that the filter stores expire that many seconds (or a timedelta) from now."""

    def _ready(self) -> Op[None]:
        """Open the filter, if the parts of items depend on what is stored."""
        return
        yield  # a generator, as those that override it

    def _ready_anew(self) -> Op[None]:
        """Open the filter, or look whether the one that is open is still the same."""
        return self._ready()

    def _part(self, place: Place) -> Queueing:
        part = self._parts.get(place)
        if part is None:
            part = self._new_part(place)
            part.read_at_once(self._reads)
            part = self._parts.setdefault(place, part)
        return part

    def _on(self, place: Place, call: Callable[[Queueing], Op[T]]) -> Op[T]:
        """Run an operation of a part on its server."""
        return at(place[0] if self.servers > 1 else None, call(self._part(place)))

    def _route_encoded(self, encoded: bytes, call: Callable[[Queueing], Op[T]]) -> Op[T]:
        yield from self._ready()
        return (yield from self._on(self._place(encoded), call))

    def _queued(self, item: object, call: Callable[[Queueing], Op[None]]) -> Op[None]:
        yield from self._ready_anew()
        yield from self._route_encoded(self.codec.encode(item), call)

    def _everywhere(self, places: Iterable[Place], call: Callable[[Queueing], Op[T]]) -> Op[list[T]]:
        """Run an operation of several parts; all are done before an error of one is raised."""
        outcomes = yield from gather(self._on(place, call) for place in places)
        return unless_failed(outcomes)

    def _cut(self, encoded: Encoded) -> dict[Place, list[int]]:
        """Return the indexes in a batch of each part's items, in order."""
        parts: dict[Place, list[int]] = {}
        for i, item in enumerate(encoded):
            parts.setdefault(self._place(as_bytes(item)), []).append(i)
        return parts

    def _batches(self, encoded: Encoded, parts: dict[Place, list[int]]) -> Iterable[Encoded | Prepared]:
        """Return the items of each part, packed or not."""
        return ([encoded[i] for i in own] for own in parts.values())

    def _gathered(
        self, encoded: Encoded, call: Callable[[list[int], Any, Queueing], Op[list[T]]]
    ) -> Op[list[tuple[list[int], list[T] | Exception]]]:
        """Call each part with its indexes and items; return the indexes with its answers or error."""
        yield from self._ready()
        parts = self._cut(encoded)
        batches = self._batches(encoded, parts)
        outcomes = yield from gather(
            self._on(place, partial(call, own, mine))
            for (place, own), mine in zip(parts.items(), batches, strict=True)
        )
        return list(zip(parts.values(), outcomes, strict=True))

    # -- items

    def add(self, item: object, *, token: str | None = None) -> Op[bool]:
        """Add an item; True if this call was the first to add it."""
        encoded = self.codec.encode(item)
        return self._route_encoded(encoded, lambda part: part.add_one(encoded, token))

    def contains(self, item: object) -> Op[bool]:
        """Return whether an item is in the filter."""
        encoded = self.codec.encode(item)
        return self._route_encoded(encoded, lambda part: part.test_one(encoded))

    def add_encoded(self, encoded: Encoded, items: Sequence[object]) -> Op[Answers]:
        """Add `items`, which have been encoded."""
        answered = Answered()

        def call(own: list[int], mine: Any, part: Queueing) -> Op[list[bool]]:
            try:
                answers = yield from part.add_encoded(mine, [items[i] for i in own])
            except BatchInterruptedError as error:
                answered.record(own, error.answers)
                raise
            answered.record(own, answers)
            return answers

        try:
            outcomes = yield from self._gathered(encoded, call)
        except BaseException:  # the caller was cancelled or interrupted
            answered.keep(range(len(items)))
            raise
        merged, error = put_together(len(items), outcomes)
        if error is None:
            return Answers(lambda i, _: answered.keep([i]), cast("list[bool]", merged))
        known = merged.index(None)
        answered.keep(range(known, len(items)))
        interrupted = stopped_batch("add_many", merged, items, error, outcomes)
        interrupted.answers = Answers(lambda i, _: answered.keep([i]), interrupted.results)
        raise interrupted

    def contains_encoded(self, encoded: Encoded) -> Op[list[bool]]:
        """Test items that have been encoded."""
        outcomes = yield from self._gathered(encoded, lambda _, mine, part: part.contains_encoded(mine))
        merged, error = put_together(len(encoded), outcomes)
        if error is not None:
            raise error
        return cast("list[bool]", merged)

    def keeper(self) -> Keep:
        """Return what keeps answers of the filter as it is now, for a caller who asks again."""
        keepers = {place: part.keeper() for place, part in list(self._parts.items())}  # threads add parts

        def keep(encoded: Encoded, answers: Sequence[bool]) -> None:
            for item, answer in zip(encoded, answers, strict=False):
                if own := keepers.get(self._place(as_bytes(item))):
                    own([item], [answer])

        return keep

    def has_pending(self) -> bool:
        """True if a call has no answer yet."""
        return any(part.has_pending() for part in list(self._parts.values()))

    # -- claims

    def claim_one(self, encoded: bytes, item: object, terms: Terms, make: Callable[[Held], C]) -> Op[C]:
        """Claim an item, which has been encoded."""
        return self._route_encoded(encoded, lambda part: part.claim_one(encoded, item, terms, make))

    def claim_encoded(
        self, encoded: Encoded, items: Sequence[object], terms: Terms, make: Callable[[Held], C]
    ) -> Op[list[C]]:
        """Claim `items`, which have been encoded."""
        claimed: list[tuple[Queueing, Held]] = []

        def call(own: list[int], mine: Any, part: Queueing) -> Op[list[Held]]:
            def made(held: Held) -> Held:
                claimed.append((part, held))
                return held

            return part.claim_encoded(parts_of(mine)[0], [items[i] for i in own], terms, made)

        try:
            outcomes = yield from self._gathered(encoded, call)
        except BaseException:  # the caller was cancelled or interrupted
            for part, held in claimed:
                part.claim_again(held)
            raise
        merged, error = put_together(len(items), outcomes)
        made = {id(held): make(held) for held in merged if held is not None}
        if error is None:
            return [made[id(held)] for held in merged]
        known = merged.index(None)
        handed_out = set(map(id, merged[:known]))  # of equal items it is one
        for part, held in claimed:
            if id(held) not in handed_out:
                part.claim_again(held)
        raise stopped_batch("claim_many", [made.get(id(held)) for held in merged], items, error, outcomes)

    def commit_now(self, held: Held) -> Op[None]:
        """Put the item into the filter and drop the claim, in one step."""
        return self._route_encoded(held.encoded, lambda part: part.commit_now(held))

    def release_now(self, held: Held) -> Op[None]:
        """Give the item back."""
        return self._route_encoded(held.encoded, lambda part: part.release_now(held))

    def extend_now(self, held: Held, lease: int) -> Op[None]:
        """Hold the item for `lease` ms from now."""
        return self._route_encoded(held.encoded, lambda part: part.extend_now(held, lease))

    def renew_lease(self, held: Held) -> Op[None]:
        """Hold the item for its lease from now, unless its commit or release has begun meanwhile."""
        return self._route_encoded(held.encoded, lambda part: part.renew_lease(held))

    # -- pipelines and bulk

    def queue_add(self, pipe: AnyPipeline, item: object) -> Op[None]:
        """Queue an add; that place in `pipe.execute()` holds 1 or 0."""
        self._check_one_server()
        return self._queued(item, lambda part: part.queue_add(pipe, item))

    def queue_contains(self, pipe: AnyPipeline, item: object) -> Op[None]:
        """Queue a test; that place in `pipe.execute()` holds 1 or 0."""
        self._check_one_server()
        return self._queued(item, lambda part: part.queue_contains(pipe, item))

    def _check_one_server(self) -> None:
        if self.servers > 1:
            raise TypeError(f"{self.name!r} is on {self.servers} servers, and a pipeline is on one")

    def load(self, source: Batches, progress: Callable[[int], object] | None = None) -> Op[int]:
        """Add items as fast as possible, without an answer for each; return how many were read."""
        done = 0
        batch: list[object] | None
        while batch := (yield Next(source)):
            yield from self._ready_anew()
            with rows_from(done):
                encoded = self.codec.encode_all(batch)
            outcomes = yield from gather(
                (
                    self._on(place, partial(_loaded, items=[batch[i] for i in own]))
                    for place, own in self._cut(encoded).items()
                ),
                most=LOADED_TOGETHER,
            )
            if errors := [each for each in outcomes if isinstance(each, Exception)]:
                _raise_unread(errors[0], batch, is_alone=not done)
            done += len(batch)
            if progress is not None:
                progress(done)
        return done


def _raise_unread(error: Exception, batch: Sequence[object], *, is_alone: bool) -> NoReturn:
    """Raise the error of a load; what was added of the batch is there already the next time."""
    if isinstance(error, BatchInterruptedError):
        error = error.__cause__ if isinstance(error.__cause__, BloomError) else error
    if isinstance(error, PASSING):
        raise_unread(error, "load", batch, is_alone=is_alone)
    raise error


def _loaded(part: FilterOperations, items: Sequence[object]) -> Op[None]:
    return load_one_batch(part.stored, part.membership, part.codec, items)


class Answered:
    """The answers of a batch's parts, as they come."""

    def __init__(self) -> None:
        self._parts: list[tuple[list[int], Answers]] = []
        self._places: dict[int, tuple[Answers, int]] = {}  # by index in the batch

    def record(self, own: list[int], answers: Answers | None) -> None:
        """Record a part's answers to the first of its items, which have these indexes in the batch."""
        if answers is not None:
            self._parts.append((own, answers))

    def keep(self, indexes: Iterable[int]) -> None:
        """Keep the answers of these items of the batch, where there is one."""
        while self._parts:
            own, answers = self._parts.pop()
            self._places.update((own[j], (answers, j)) for j in range(len(answers)))
        for i in indexes:
            if i in self._places:
                answers, j = self._places[i]
                answers.keep([j])


def put_together(
    count: int, outcomes: Iterable[tuple[list[int], list[T] | Exception]]
) -> tuple[list[T | None], Exception | None]:
    """Return a batch's answers, None for items without one, and the error of the first of these."""
    merged: list[T | None] = [None] * count
    errors: list[tuple[int, Exception]] = []
    for own, answers in outcomes:
        known: Sequence[T] = answers if isinstance(answers, list) else getattr(answers, "results", ())
        for i, answer in zip(own, known, strict=False):
            merged[i] = answer
        if isinstance(answers, Exception):
            errors.append((own[len(known)], answers))
    return merged, min(errors, key=lambda error: error[0])[1] if errors else None


def stopped_batch(
    call: str,
    answers: Sequence[object],
    items: Sequence[object],
    error: Exception,
    outcomes: Iterable[tuple[list[int], object]],
) -> BatchInterruptedError:
    """Return the error for a batch that stopped; raise its reason if no item was touched."""
    if all(answer is None for answer in answers) and not isinstance(error, BatchInterruptedError):
        raise error
    known = answers.index(None)
    reason = error.__cause__ if isinstance(error, BatchInterruptedError) else error
    tokens: list[str | None] = [None] * (len(items) - known)
    for own, stopped in outcomes:
        if isinstance(stopped, BatchInterruptedError):
            for i, token in zip(own[len(stopped.results) :], stopped.tokens, strict=False):
                tokens[i - known] = token
    interrupted = interrupted_by(reason, call, answers[:known], items, tokens)
    interrupted.__cause__ = reason
    return interrupted
