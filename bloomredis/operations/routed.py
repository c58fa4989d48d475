"""Filters whose items are spread over several parts: each item lives in one of them.

A part is a filter of its own, so what holds for the adds of one item holds here.  A batch is cut into a
batch for each part; these are under way at the same time, and the answers are put together again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar

from bloomredis.arguments import listed
from bloomredis.errors import BatchInterruptedError
from bloomredis.operations.claims import Held
from bloomredis.operations.filter import Codec, FilterOperations
from bloomredis.operations.info import FilterInfo
from bloomredis.operations.loading import load_one_batch
from bloomredis.operations.membership import Encoded
from bloomredis.operations.options import Options
from bloomredis.operations.outcomes import Answers
from bloomredis.operations.pipelines import AnyPipeline, Queueing
from bloomredis.protocol.gather import at, gather, unless_failed
from bloomredis.protocol.keys import as_bytes
from bloomredis.protocol.steps import NextBatch, Op

T = TypeVar("T")
C = TypeVar("C")
Place = tuple[int, Any]
"""Where an item lives: the number of the server, and what tells its part from others there."""

LOADED_TOGETHER: Final = 4
"""Parts that a load works on at a time: each takes memory while its segments are sent."""


class RoutedOperations(ABC):
    """The verbs of a filter in several parts; where an item lives is up to the subclass."""

    servers: int

    def __init__(self, name: str, codec: Codec, options: Options) -> None:
        self.name = name
        self.codec = codec
        self.options = options
        self._parts: dict[Place, Queueing] = {}

    @abstractmethod
    def _place(self, encoded: bytes) -> Place:
        """Return where an item lives."""

    @abstractmethod
    def _new_part(self, place: Place) -> Queueing:
        """Return the operations of a part."""

    def _ready(self) -> Op[None]:
        """Make sure that it is known where items live."""
        return
        yield  # a generator, as those that override it

    def _part(self, place: Place) -> Queueing:
        part = self._parts.get(place)
        if part is None:
            part = self._parts.setdefault(place, self._new_part(place))
        return part

    def _on(self, place: Place, call: Callable[[Queueing], Op[T]]) -> Op[T]:
        """Run an operation of a part on its server."""
        return at(place[0] if self.servers > 1 else None, call(self._part(place)))

    def _route(self, item: Any, call: Callable[[Queueing], Op[T]]) -> Op[T]:
        encoded = self.codec.encode(item)
        yield from self._ready()
        return (yield from self._on(self._place(encoded), call))

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

    def _gathered(
        self, encoded: Encoded, call: Callable[[Queueing, list[int]], Op[list[T]]]
    ) -> Op[list[tuple[list[int], list[T] | Exception]]]:
        """Call each part with the indexes of its items; return these with its answers or its error."""
        yield from self._ready()
        parts = self._cut(encoded)
        outcomes = yield from gather(
            self._on(place, partial(_with_indexes, call, own)) for place, own in parts.items()
        )
        return list(zip(parts.values(), outcomes, strict=True))

    # -- items

    def add(self, item: Any, *, token: str | None = None) -> Op[bool]:
        """Add an item; True if this call was the first to add it."""
        return self._route(item, lambda part: part.add(item, token=token))

    def contains(self, item: Any) -> Op[bool]:
        """Return whether an item is in the filter."""
        return self._route(item, lambda part: part.contains(item))

    def add_many(self, items: Iterable[Any]) -> Op[list[bool]]:
        """Add items; say of each, in order, whether it was new."""
        batch = listed(items)
        encoded = self.codec.encode_all(batch)
        return list((yield from self.add_encoded(encoded, batch))) if batch else []

    def contains_many(self, items: Iterable[Any]) -> Op[list[bool]]:
        """Return for each item, in order, whether it is in the filter."""
        encoded = self.codec.encode_all(listed(items))
        return (yield from self.contains_encoded(encoded)) if encoded else []

    def add_encoded(self, encoded: Encoded, items: Sequence[Any]) -> Op[Answers]:
        """Add `items`, which have been encoded."""
        told: dict[
            int, tuple[Answers, int]
        ] = {}  # by the item's index: the answers of its part, its index there

        def call(part: Queueing, own: list[int]) -> Op[list[bool]]:
            answers: Answers | None = None
            try:
                answers = yield from part.add_encoded([encoded[i] for i in own], [items[i] for i in own])
            except BatchInterruptedError as error:
                answers = error.answers
                raise
            finally:
                if answers is not None:
                    told.update((own[j], (answers, j)) for j in range(len(answers)))
            return answers

        def keep(i: int) -> None:
            if i in told:
                answers, j = told[i]
                answers.keep([j])

        try:
            merged, error = _merged(len(items), outcomes := (yield from self._gathered(encoded, call)))
        except GeneratorExit:  # the caller was cancelled
            for i in told:
                keep(i)
            raise
        if error is None:
            return Answers(keep, [answer is True for answer in merged])
        for i in range(merged.index(None), len(items)):
            keep(i)
        raise _interrupted("add_many", merged, items, error, outcomes)

    def contains_encoded(self, encoded: Encoded) -> Op[list[bool]]:
        """Test items that have been encoded."""
        told = yield from self._gathered(
            encoded, lambda part, own: part.contains_encoded([encoded[i] for i in own])
        )
        merged, error = _merged(len(encoded), told)
        if error is not None:
            raise error
        return [answer is True for answer in merged]

    def keep(self, encoded: Encoded, answers: Sequence[bool]) -> None:
        """Keep the answers to an add that came when nobody was there to receive them."""
        for item, answer in zip(encoded, answers, strict=False):
            self._part(self._place(as_bytes(item))).keep([item], [answer])

    def in_local_cache(self, item: Any) -> bool:  # noqa: ARG002 - the signature of other filters
        """False: there is no local cache."""
        return False

    # -- claims

    def claim(self, item: Any, lease: float | timedelta, make: Callable[[Held], C]) -> Op[C]:
        """Hold an item while working on it, unless it is done or another worker holds it."""
        return self._route(item, lambda part: part.claim(item, lease, make))

    def claim_many(
        self, items: Iterable[Any], lease: float | timedelta, make: Callable[[Held], C]
    ) -> Op[list[C]]:
        """Claim items; return a `Claim` of each, in order."""
        batch = listed(items)
        encoded = self.codec.encode_all(batch)
        if not batch:
            return []
        told = yield from self._gathered(
            encoded,
            lambda part, own: part.claim_many([batch[i] for i in own], lease, lambda held: held),
        )
        held, error = _merged(len(batch), told)
        if error is None:
            return [make(each) for each in held if each is not None]
        known = held.index(None)
        for i in range(known, len(batch)):
            if (mine := held[i]) is not None:
                self._part(self._place(as_bytes(encoded[i]))).claim_again(mine)
        raise _interrupted("claim_many", [each and make(each) for each in held], batch, error, told)

    def commit(self, held: Held) -> Op[None]:
        """Put the item into the filter and drop the claim, in one step."""
        return self._route(held.item, lambda part: part.commit(held))

    def release(self, held: Held) -> Op[None]:
        """Give the item back at once."""
        return self._route(held.item, lambda part: part.release(held))

    def extend(self, held: Held, lease: float | timedelta) -> Op[None]:
        """Hold the item for `lease` seconds (or a timedelta) from now."""
        return self._route(held.item, lambda part: part.extend(held, lease))

    # -- pipelines and bulk

    def queue_add(self, pipe: AnyPipeline, item: Any) -> Op[None]:
        """Queue an add; that place in `pipe.execute()` holds 1 or 0."""
        self._check_one_server()
        return self._route(item, lambda part: part.queue_add(pipe, item))

    def queue_contains(self, pipe: AnyPipeline, item: Any) -> Op[None]:
        """Queue a test; that place in `pipe.execute()` holds 1 or 0."""
        self._check_one_server()
        return self._route(item, lambda part: part.queue_contains(pipe, item))

    def _check_one_server(self) -> None:
        if self.servers > 1:
            raise TypeError(f"{self.name!r} is on {self.servers} servers, and a pipeline is on one")

    def load(self, source: Any, progress: Callable[[int], object] | None = None) -> Op[int]:
        """Add items as fast as possible, without an answer for each; return how many were read."""
        done = 0
        while batch := (yield NextBatch(source)):
            yield from self._ready()
            encoded = self.codec.encode_all(batch)
            outcomes = yield from gather(
                (
                    self._on(place, partial(_loaded, items=[batch[i] for i in own]))
                    for place, own in self._cut(encoded).items()
                ),
                most=LOADED_TOGETHER,
            )
            unless_failed(outcomes)
            done += len(batch)
            if progress is not None:
                progress(done)
        return done

    # -- the filter as a whole

    def approximate_count(self) -> Op[int]:
        """Estimate the number of items from the share of bits set."""
        return (yield from self.info()).approximate_count

    @abstractmethod
    def reserve(self) -> Op[None]:
        """Create the filter now, or check the stored one."""

    @abstractmethod
    def clear(self) -> Op[None]:
        """Empty the filter."""

    @abstractmethod
    def delete(self) -> Op[bool]:
        """Delete the filter; True if it existed."""

    @abstractmethod
    def info(self) -> Op[FilterInfo]:
        """Return the filter's parameters and how full it is."""


def _with_indexes(
    call: Callable[[Queueing, list[int]], Op[list[T]]], own: list[int], part: Queueing
) -> Op[list[T]]:
    return call(part, own)


def _merged(
    count: int, told: Iterable[tuple[list[int], list[T] | Exception]]
) -> tuple[list[T | None], Exception | None]:
    """Return the answers to a batch, None where there is none, and the error of the first such item."""
    merged: list[T | None] = [None] * count
    errors: list[tuple[int, Exception]] = []
    for own, answers in told:
        known: Sequence[T] = answers if isinstance(answers, list) else getattr(answers, "results", ())
        for i, answer in zip(own, known, strict=False):
            merged[i] = answer
        if isinstance(answers, Exception):
            errors.append((own[len(known)], answers))
    return merged, min(errors, key=lambda error: error[0])[1] if errors else None


def _interrupted(
    call: str,
    answers: Sequence[Any],
    items: Sequence[Any],
    error: Exception,
    told: Iterable[tuple[list[int], Any]],
) -> BatchInterruptedError:
    """Return the error for a batch that stopped; raise its reason if nothing was touched."""
    if all(answer is None for answer in answers) and not isinstance(error, BatchInterruptedError):
        raise error
    known = answers.index(None)
    reason = error.__cause__ if isinstance(error, BatchInterruptedError) else error
    tokens: list[str | None] = [None] * (len(items) - known)
    for own, stopped in told:
        if isinstance(stopped, BatchInterruptedError):
            for i, token in zip(own[len(stopped.results) :], stopped.tokens, strict=False):
                tokens[i - known] = token
    interrupted = BatchInterruptedError(
        f"{known} of {len(items)} items were answered, then: {reason}. Go on with {call}(error.rest) once "
        "the reason is gone: nothing is lost",
        list(answers[:known]),
        items[known:],
        tokens,
    )
    interrupted.__cause__ = reason
    return interrupted


def _loaded(part: FilterOperations, items: Sequence[Any]) -> Op[None]:
    return load_one_batch(part.stored, part.membership, part.codec, items)
