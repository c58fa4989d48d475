"""How a filter's items are spread over several shards: each item has its place in one of them.

A shard is a filter of its own, so what holds for the adds of one item holds here.  A batch is cut into a
batch for each shard; these are under way at the same time, and the answers are put together again.
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final, Generic, TypeVar

from bloomredis.arguments import listed
from bloomredis.bits.encoding import Item
from bloomredis.errors import BatchInterruptedError
from bloomredis.operations.claims import Held
from bloomredis.operations.filter import FilterOperations
from bloomredis.operations.info import FilterInfo
from bloomredis.operations.loading import Load
from bloomredis.operations.pipelines import AnyPipeline
from bloomredis.protocol.gather import at, gather, unless_failed
from bloomredis.protocol.keys import as_bytes
from bloomredis.protocol.receipts import KEPT_SECONDS, MOST_DOUBTS
from bloomredis.protocol.steps import Op
from bloomredis.stored.base import Handle

T = TypeVar("T")
C = TypeVar("C")
Place = tuple[int, Any]
"""Where an item lives: the number of the server, and what tells its shard from others there."""

LOADED_TOGETHER: Final = 4
"""Shards that a load works on at a time: each takes memory while its segments are sent."""


class Owed(Generic[T]):
    """Answers that arrived for items behind the one that stopped a batch, for whoever asks again."""

    def __init__(self) -> None:
        self._answers: dict[bytes, tuple[T, float]] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Owed[T]], tuple[()]]:
        return Owed, ()  # another process is owed nothing

    def __bool__(self) -> bool:
        return bool(self._answers)

    def keep(self, item: str | bytes, answer: T) -> None:
        """Keep an item's answer, for as long as doubts are remembered."""
        now = time.monotonic()
        with self._lock:
            while self._answers:
                oldest = next(iter(self._answers))
                if self._answers[oldest][1] > now and len(self._answers) < MOST_DOUBTS:
                    break
                del self._answers[oldest]
            self._answers[as_bytes(item)] = answer, now + KEPT_SECONDS

    def take(self, item: str | bytes) -> T | None:
        """Return the answer that is owed for an item, once."""
        if not self._answers:
            return None
        with self._lock:
            answer, until = self._answers.pop(as_bytes(item), (None, 0.0))
        return answer if until > time.monotonic() else None

    def clear(self) -> None:
        """Owe nothing."""
        with self._lock:
            self._answers.clear()


class RoutedOperations(FilterOperations):
    """The operations of a filter in several shards; where an item lives is up to the subclass."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(name, **options)
        self._shards: dict[Place, FilterOperations] = {}
        self._owed: Owed[bool] = Owed()

    @property
    def is_one_bitmap(self) -> bool:
        return False

    @abstractmethod
    def _place(self, encoded: bytes) -> Place:
        """Return where an item lives."""

    @abstractmethod
    def _new_shard(self, place: Place) -> FilterOperations:
        """Return the operations of a shard."""

    @abstractmethod
    def handle(self, item: Item | None = None) -> Op[Handle]:
        """Return what is known of the filter, or of the shard that an item lives in, opening it first."""

    def _ready(self) -> Op[None]:
        """Make sure that it is known where items live."""
        return
        yield  # what makes it an operation

    def _shard(self, place: Place) -> FilterOperations:
        shard = self._shards.get(place)
        if shard is None:
            shard = self._shards.setdefault(place, self._new_shard(place))
        return shard

    def _of(self, item: str | bytes) -> Place:
        return self._place(as_bytes(item))

    def _on(self, place: Place, call: Callable[[FilterOperations], Op[T]]) -> Op[T]:
        """Run an operation of a shard on its server."""
        return at(place[0] if self.servers > 1 else None, call(self._shard(place)))

    def _route(self, item: Item, call: Callable[[FilterOperations], Op[T]]) -> Op[T]:
        encoded = self.encode(item)
        yield from self._ready()
        return (yield from self._on(self._of(encoded), call))

    def _everywhere(self, places: Iterable[Place], call: Callable[[FilterOperations], Op[T]]) -> Op[list[T]]:
        """Run an operation of several shards; all are done before an error of one is raised."""
        outcomes = yield from gather(self._on(place, call) for place in places)
        return unless_failed(outcomes)

    def _cut(self, encoded: Sequence[str | bytes]) -> dict[Place, list[int]]:
        """Return the places in a batch of each shard's items, in order."""
        parts: dict[Place, list[int]] = {}
        for i, place in enumerate(map(self._of, encoded)):
            parts.setdefault(place, []).append(i)
        return parts

    def _gathered(
        self,
        encoded: Sequence[str | bytes],
        call: Callable[[FilterOperations, list[int]], Op[list[T]]],
    ) -> Op[tuple[list[T | None], Exception | None]]:
        """Call each shard with its part of a batch: the answers, None where there is none, and why."""
        yield from self._ready()
        parts = self._cut(encoded)
        outcomes = yield from gather(
            self._on(place, lambda shard, own=own: call(shard, own))  # type: ignore[misc]  # mypy wants no defaults
            for place, own in parts.items()
        )
        answers: list[T | None] = [None] * len(encoded)
        errors: list[tuple[int, Exception]] = []
        for own, told in zip(parts.values(), outcomes, strict=True):
            known: Sequence[T] = told if isinstance(told, list) else getattr(told, "results", ())
            for i, answer in zip(own, known, strict=False):
                answers[i] = answer
            if isinstance(told, Exception):
                errors.append((own[len(known)], told))
        return answers, min(errors, key=lambda error: error[0])[1] if errors else None

    # -- items

    def add(self, item: Item, *, token: str | None = None) -> Op[bool]:
        new = yield from self._route(item, lambda shard: shard.add(item, token=token))
        owed = self._owed.take(self.encode(item)) if token is None and self._owed else None
        return bool(owed) or new

    def contains(self, item: Item) -> Op[bool]:
        return self._route(item, lambda shard: shard.contains(item))

    def add_encoded(self, encoded: Sequence[str | bytes], items: Sequence[Item]) -> Op[list[bool]]:
        answers, error = yield from self._gathered(
            encoded,
            lambda shard, own: shard.add_encoded([encoded[i] for i in own], [items[i] for i in own]),
        )
        if error is not None:
            known = _told("add_many", answers, items, error)
            # What this batch is a rest of may have been interrupted as well.
            known.results[:] = map(self._or_owed, encoded, known.results)
            for i in range(len(known.results), len(items)):
                if answers[i]:
                    self._owed.keep(encoded[i], True)
            raise known from error.__cause__ if isinstance(error, BatchInterruptedError) else error
        return list(map(self._or_owed, encoded, answers)) if self._owed else list(map(bool, answers))

    def _or_owed(self, item: str | bytes, new: bool | None) -> bool:  # noqa: FBT001 - an answer
        return bool(self._owed.take(item) or new)

    def contains_encoded(self, encoded: Sequence[str | bytes]) -> Op[list[bool]]:
        answers, error = yield from self._gathered(
            encoded, lambda shard, own: shard.contains_encoded([encoded[i] for i in own])
        )
        if error is not None:
            raise error
        return [answer is True for answer in answers]

    def token_of(self, encoded: str | bytes) -> str | None:
        return self._shard(self._of(encoded)).token_of(encoded)

    def claim(self, item: Item, lease: float | timedelta, make: Callable[[Held], C]) -> Op[C]:
        return self._route(item, lambda shard: shard.claim(item, lease, make))

    def claim_many(
        self, items: Iterable[Item], lease: float | timedelta, make: Callable[[Held], C]
    ) -> Op[list[C]]:
        batch = listed(items)
        encoded = self.encode_all(batch)
        if not batch:
            return []
        held, error = yield from self._gathered(
            encoded,
            lambda shard, own: shard.claim_many([batch[i] for i in own], lease, lambda held: held),
        )
        if error is not None:
            known = _told("claim_many", held, batch, error)
            for i in range(len(known.results), len(batch)):
                if (mine := held[i]) is not None:
                    self._shard(self._of(encoded[i])).claim_again(mine)
            known.results[:] = map(make, known.results)
            raise known from error.__cause__ if isinstance(error, BatchInterruptedError) else error
        return [make(each) for each in held if each is not None]

    def commit(self, held: Held) -> Op[None]:
        return self._route(held.item, lambda shard: shard.commit(held))

    def release(self, held: Held) -> Op[None]:
        return self._route(held.item, lambda shard: shard.release(held))

    def extend(self, held: Held, lease: float | timedelta) -> Op[None]:
        return self._route(held.item, lambda shard: shard.extend(held, lease))

    def queue_add(self, handle: Handle, pipe: AnyPipeline, item: Item) -> None:
        self._queued(item).queue_add(handle, pipe, item)

    def queue_contains(self, handle: Handle, pipe: AnyPipeline, item: Item) -> None:
        self._queued(item).queue_contains(handle, pipe, item)

    def _queued(self, item: Item) -> FilterOperations:
        return self._shard(self._of(self.encode(item)))

    def _check_one_server(self) -> None:
        if self.servers > 1:
            raise TypeError(f"{self.name!r} is on {self.servers} servers, and a pipeline is on one")

    # -- bulk

    def loading(self, handle: Handle) -> Load:  # noqa: ARG002 - each shard has its own
        return Load(None, self)

    def load(self, load: Load) -> Op[None]:
        yield from self._ready()
        for each in load.waiting:
            outcomes = yield from gather(
                (
                    self._on(place, partial(_loaded, items=[each.items[i] for i in own]))
                    for place, own in self._cut(each.encoded).items()
                ),
                most=LOADED_TOGETHER,
            )
            unless_failed(outcomes)

    # -- the filter as a whole

    def approximate_count(self) -> Op[int]:
        return (yield from self.info()).approximate_count

    @abstractmethod
    def info(self) -> Op[FilterInfo]: ...


def _told(
    call: str, answers: Sequence[T | None], items: Sequence[Any], error: Exception
) -> BatchInterruptedError:
    """Return what the caller of a batch that stopped is told; raise its reason if nothing was touched."""
    if all(answer is None for answer in answers) and not isinstance(error, BatchInterruptedError):
        raise error
    known = answers.index(None)
    reason = error.__cause__ if isinstance(error, BatchInterruptedError) else error
    return BatchInterruptedError(
        f"{known} of {len(items)} items were answered, then: {reason}. Go on with {call}(error.rest) once "
        "the reason is gone: nothing is lost",
        list(answers[:known]),
        items[known:],
    )


def _loaded(shard: FilterOperations, items: Sequence[Item]) -> Op[None]:
    load = shard.loading((yield from shard.handle()))
    load.take(items)
    handle = yield from shard.load(load)
    yield from shard.tally(handle, load.finish())
