"""How a filter is spread over keys and servers: each item has its place in one shard.

A shard is a filter of its own, so what holds for the adds of one item holds here.  A batch is cut into a
batch for each shard, and the answers are put together again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Any, Protocol, TypeVar, runtime_checkable

from bloomredis import info
from bloomredis.arguments import listed
from bloomredis.bitmaps import ForeignLayout
from bloomredis.claims import Held
from bloomredis.errors import BatchInterruptedError
from bloomredis.filter import FilterOperations
from bloomredis.hashing import Item
from bloomredis.info import FilterInfo
from bloomredis.pipelines import AnyPipeline
from bloomredis.protocol import At, Op
from bloomredis.stored import Opened

T = TypeVar("T")
C = TypeVar("C")


@runtime_checkable
class PartitionedLayout(ForeignLayout, Protocol):
    """A layout whose system spreads the items over servers and keys."""

    @property
    def servers(self) -> tuple[Any, ...] | None:
        """What stands for the servers, None for one."""

    @property
    def partitions(self) -> int | None:
        """Keys a server, None for one key that has the filter's own name."""

    def partition(self, encoded: bytes) -> tuple[int, str]:
        """Return which server an item is on, and what follows the filter's name in its key there."""


def operations(name: str, **options: Any) -> FilterOperations:
    """Return the operations of a filter with these parameters, of one shard or of several."""
    layout = options.get("layout")
    if isinstance(layout, PartitionedLayout) and layout.partitions is not None:
        return ShardedOperations(name, **options)
    return FilterOperations(name, **options)


class ShardedOperations(FilterOperations):
    """The operations of a filter in several shards."""

    def __init__(self, name: str, *, layout: PartitionedLayout, **options: Any) -> None:
        super().__init__(name, layout=layout, **options)
        self._partitioned = layout
        self._options = {"layout": layout, **options}
        self._shards: dict[tuple[int, str], FilterOperations] = {}
        self._owed: dict[bytes, bool] = {}  # new items whose answer an interrupted batch could not give
        self.servers = len(layout.servers or (None,))

    @property
    def is_one_bitmap(self) -> bool:
        return False

    def _shard(self, place: tuple[int, str]) -> FilterOperations:
        if place not in self._shards:
            self._shards[place] = FilterOperations(self.name + place[1], **self._options)
        return self._shards[place]

    def _place(self, encoded: str | bytes) -> tuple[int, str]:
        return self._partitioned.partition(encoded.encode() if isinstance(encoded, str) else encoded)

    def _places(self) -> list[tuple[int, str]]:
        """Return every shard that can have an item: those that a checksum can choose."""
        keys = self._partitioned.partitions or 1
        period = range(self.servers * keys)
        return sorted({(number % self.servers, f".{number % keys}") for number in period})

    def _on(self, place: tuple[int, str], operation: Op[T]) -> Op[T]:
        """Run a shard's operation on its server."""
        if self.servers == 1:
            return (yield from operation)
        try:
            step = next(operation)
            while True:
                try:
                    reply = yield At(place[0], step)
                except Exception as error:
                    step = operation.throw(error)
                else:
                    step = operation.send(reply)
        except StopIteration as end:
            answer: T = end.value
            return answer
        finally:
            operation.close()

    def _route(self, item: Item, call: Callable[[FilterOperations], Op[T]]) -> Op[T]:
        place = self._place(self.encode(item))
        return self._on(place, call(self._shard(place)))

    def _everywhere(self, call: Callable[[FilterOperations], Op[T]]) -> Op[list[T]]:
        results = []
        for place in self._places():
            result = yield from self._on(place, call(self._shard(place)))
            results.append(result)
        return results

    def _gathered(
        self,
        encoded: Sequence[str | bytes],
        call: Callable[[FilterOperations, list[int]], Op[list[T]]],
        answers: list[T | None],
    ) -> Op[None]:
        """Call each shard with the places of its part of a batch, in which equal items keep their order.

        What was answered before an error stands in `answers`.
        """
        shards = [self._place(item) for item in encoded]
        for shard, group in groupby(sorted(range(len(encoded)), key=shards.__getitem__), shards.__getitem__):
            places = list(group)
            told: Sequence[T] = ()
            try:
                told = yield from self._on(shard, call(self._shard(shard), places))
            except BatchInterruptedError as error:
                told = error.results
                raise
            finally:
                for place, answer in zip(places, told, strict=False):
                    answers[place] = answer

    # -- items

    def add(self, item: Item, *, token: str | None = None) -> Op[bool]:
        if token is None and self._owed.pop(self.encode(item), False):
            return True
        return (yield from self._route(item, lambda shard: shard.add(item, token=token)))

    def contains(self, item: Item) -> Op[bool]:
        return self._route(item, lambda shard: shard.contains(item))

    def add_encoded(self, encoded: Sequence[str | bytes], items: Sequence[Item]) -> Op[list[bool]]:
        answers: list[bool | None] = [None] * len(items)
        try:
            yield from self._gathered(
                encoded,
                lambda shard, places: shard.add_encoded(
                    [encoded[i] for i in places], [items[i] for i in places]
                ),
                answers,
            )
        except Exception as error:
            known = answers.index(None)
            # Those behind the first one without an answer will be asked about again.
            self._owed.update((_bytes(encoded[i]), True) for i in range(known, len(items)) if answers[i])
            reason = error.__cause__ if isinstance(error, BatchInterruptedError) else error
            if all(answer is None for answer in answers) and not isinstance(error, BatchInterruptedError):
                raise
            told = [answer is True for answer in answers[:known]]
            raise BatchInterruptedError(str(error), told, items[known:]) from reason
        return [
            self._owed.pop(_bytes(item), False) or bool(answer)
            for item, answer in zip(encoded, answers, strict=True)
        ]

    def contains_encoded(self, encoded: Sequence[str | bytes]) -> Op[list[bool]]:
        answers: list[bool | None] = [None] * len(encoded)
        yield from self._gathered(
            encoded, lambda shard, places: shard.contains_encoded([encoded[i] for i in places]), answers
        )
        return [answer is True for answer in answers]

    def token_of(self, encoded: str | bytes) -> str | None:
        return self._shard(self._place(encoded)).token_of(encoded)

    def claim(self, item: Item, lease: float | timedelta, make: Callable[[Held], C]) -> Op[C]:
        return self._route(item, lambda shard: shard.claim(item, lease, make))

    def claim_many(
        self, items: Iterable[Item], lease: float | timedelta, make: Callable[[Held], C]
    ) -> Op[list[C]]:
        batch = listed(items)
        answers: list[C | None] = [None] * len(batch)
        try:
            yield from self._gathered(
                self.encode_all(batch),
                lambda shard, places: shard.claim_many([batch[i] for i in places], lease, make),
                answers,
            )
        except BatchInterruptedError as error:
            known = answers.index(None)
            raise BatchInterruptedError(str(error), answers[:known], batch[known:]) from error.__cause__
        return [claim for claim in answers if claim is not None]

    def commit(self, held: Held) -> Op[None]:
        return self._route(held.item, lambda shard: shard.commit(held))

    def release(self, held: Held) -> Op[None]:
        return self._route(held.item, lambda shard: shard.release(held))

    def extend(self, held: Held, lease: float | timedelta) -> Op[None]:
        return self._route(held.item, lambda shard: shard.extend(held, lease))

    def queue_add(self, opened: Opened, pipe: AnyPipeline, item: Item) -> None:  # noqa: ARG002 - a shard's is used
        shard = self._queued(item)
        shard.queue_add(shard.assumed(), pipe, item)

    def queue_contains(self, opened: Opened, pipe: AnyPipeline, item: Item) -> None:  # noqa: ARG002 - as above
        shard = self._queued(item)
        shard.queue_contains(shard.assumed(), pipe, item)

    def _queued(self, item: Item) -> FilterOperations:
        if self.servers > 1:
            raise TypeError(f"{self.name!r} is on {self.servers} servers, and a pipeline is on one")
        return self._shard(self._place(self.encode(item)))

    # -- the filter as a whole

    def opened(self) -> Op[Opened]:
        yield from self._everywhere(FilterOperations.opened)
        return self._shard(self._places()[0]).assumed()

    def reserve(self) -> Op[None]:
        yield from self._everywhere(FilterOperations.reserve)

    def info(self) -> Op[FilterInfo]:
        return info.spread(self.name, (yield from self._everywhere(FilterOperations.info)))

    def approximate_count(self) -> Op[int]:
        return (yield from self.info()).approximate_count

    def clear(self) -> Op[None]:
        self._owed.clear()
        yield from self._everywhere(FilterOperations.clear)

    def delete(self) -> Op[bool]:
        self._owed.clear()
        return any((yield from self._everywhere(FilterOperations.delete)))

    def expire(self, seconds: float | timedelta) -> Op[None]:
        yield from self._everywhere(lambda shard: shard.expire(seconds))


def _bytes(encoded: str | bytes) -> bytes:
    return encoded.encode() if isinstance(encoded, str) else encoded
