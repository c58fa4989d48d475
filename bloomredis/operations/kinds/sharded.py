"""Operations of a filter of any capacity, in shards that are filters themselves.

Each item belongs to one shard, so all guarantees for one item hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, Unpack

from bloomredis.bits import sizing
from bloomredis.bits.batch import Encoded
from bloomredis.later import later
from bloomredis.operations.claims.requests import ClaimRequest
from bloomredis.operations.codec import Codec
from bloomredis.operations.kinds import sharded_items as batches
from bloomredis.operations.kinds.pipelines import AnyPipeline, Queueing
from bloomredis.operations.kinds.verbs import ItemOperations, StoreAnswers
from bloomredis.operations.options import Common, Seconds, checked_options
from bloomredis.protocol.gather import gather, unless_failed
from bloomredis.protocol.keys import as_bytes
from bloomredis.protocol.pending import Answers
from bloomredis.protocol.receipts import Sessions, parse_token
from bloomredis.protocol.steps import Batches, Op
from bloomredis.stored import planning
from bloomredis.stored.shards import record as shard_record
from bloomredis.stored.shards.parts import StoredShard
from bloomredis.stored.shards.record import MAX_SEED, MAX_SHARDS, checked_name
from bloomredis.stored.shards.shards import StoredShards
from bloomredis.stored.state.knowledge import untold

if TYPE_CHECKING:
    from bloomredis.operations.whole import info, sharded_loading
    from bloomredis.operations.whole.info import FilterInfo
else:
    info, sharded_loading = later("bloomredis.operations.whole", "info", "sharded_loading")

T = TypeVar("T")


class ShardedOperations(ItemOperations):
    """The operations of `ShardedBloomFilter`."""

    stored: StoredShards
    cache: None = None
    """Sharded filters have no local cache."""

    def __init__(
        self,
        name: str,
        *,
        capacity: int | None = None,
        error_rate: float | None = None,
        shards: int | None = None,
        layout: str | None = None,
        seed: int | None = None,
        ttl: Seconds | None = None,
        **common: Unpack[Common],
    ) -> None:
        self.options = options = checked_options(common)
        self.name = checked_name(name)
        self.codec = Codec(options.encode, None)
        shards = None if shards is None else sizing.positive("shards", shards, MAX_SHARDS)
        seed = None if seed is None else sizing.positive("seed", seed, MAX_SEED)
        made_for = planning.checked_sizes(capacity, error_rate, layout)
        plan = made_for and shard_record.plan_record(*made_for, layout=layout, shards=shards, seed=seed)
        storage = options.storage(ttl, can_create=plan is not None)
        wanted = {"shards": shards, "seed": seed}
        self.stored = StoredShards(name, plan=plan, layout=layout, wanted=wanted, **storage)
        self.sessions = Sessions(self.stored.auxiliary)
        self._parts: dict[StoredShard, Queueing] = {}

    # -- the shards

    def _part(self, shard: StoredShard) -> Queueing:
        """Return the operations of a shard."""
        part = self._parts.get(shard)
        if part is None:
            part = self._parts.setdefault(shard, Queueing(shard, self.options))
        return part

    def part_of(self, encoded: bytes) -> Queueing:
        """Return the shard that has an item; the filter must be open."""
        return self._part(self.stored.shard_with(encoded))

    def on_item(self, encoded: bytes, call: Callable[[Queueing], Op[T]]) -> Op[T]:
        """Run an operation on the shard that has an item."""
        if self.stored.handle is None:
            return self._on_item_once_open(encoded, call)
        return call(self.part_of(encoded))

    def _on_item_once_open(self, encoded: bytes, call: Callable[[Queueing], Op[T]]) -> Op[T]:
        yield from self.stored.acquire()
        return (yield from call(self.part_of(encoded)))

    def on_part(self, number: int, call: Callable[[Queueing], Op[T]]) -> Op[T]:
        """Run an operation on the shard with that number; the filter must be open."""
        return call(self._part(self.stored.shard(number)))

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
        if self.stored.handle is None:
            return self._contains_if_there(encoded, by_reading=by_reading)
        return self.part_of(encoded).items.test_one(encoded, by_reading=by_reading)

    def _contains_if_there(self, encoded: bytes, *, by_reading: bool) -> Op[bool]:
        if (yield from self.stored.find()) is None:
            return False
        return (yield from self.part_of(encoded).items.test_one(encoded, by_reading=by_reading))

    def add_encoded(self, encoded: Encoded, items: Sequence[object]) -> Op[Answers]:
        """Add encoded items; `items` are the caller's."""
        return self._add(encoded, items, batches.answers_of)

    def add_shared(self, encoded: Encoded) -> Op[Answers]:
        """Add the items of several callers; a shard that does not answer fails its own items only."""
        return self._add(encoded, encoded, batches.answers_of_several)

    def _add(self, encoded: Encoded, items: Sequence[object], merged: Callable[..., Answers]) -> Op[Answers]:
        yield from self.stored.acquire()
        return (yield from batches.add(self._split(encoded), items, merged))

    def contains_encoded(self, encoded: Encoded) -> Op[list[bool]]:
        """Test encoded items."""
        return self._test(encoded, batches.unless_interrupted)

    def contains_shared(self, encoded: Encoded) -> Op[list[bool]]:
        """Test the items of several callers; a shard that does not answer fails its own items only."""
        return self._test(encoded, batches.told_apart)

    def _test(self, encoded: Encoded, merged: Callable[..., list[bool]]) -> Op[list[bool]]:
        if (yield from self.stored.find()) is None:
            return [False] * len(encoded)
        return (yield from batches.test(self._split(encoded), len(encoded), merged))

    def _split(self, encoded: Encoded) -> list[batches.ShardItems]:
        """Return the items of each shard that has items of a batch; the filter must be open."""
        parted = {self._part(shard): own for shard, own in self.stored.parted(encoded).items()}
        return batches.split(encoded, parted, self.stored.handle)

    def answer_store(self) -> StoreAnswers:
        """Return a function that stores answers for retries, for the present generation and process."""
        parts = list(self._parts.items())  # a copy, since threads add parts
        stores = {shard: part.answer_store() for shard, part in parts}

        def store(encoded: Encoded, answers: Sequence[bool]) -> None:
            for item, answer in zip(encoded, answers, strict=False):
                if own := stores.get(self.stored.shard_with(as_bytes(item))):
                    own([item], [answer])

        return store

    def update(self, source: Batches, progress: Callable[[int], object] | None = None) -> Op[int]:
        """Add items as fast as possible, without an answer for each; return how many were read."""
        return sharded_loading.load(
            self.stored, lambda shard: self._part(shard).membership, self.codec, source, progress
        )

    def queue_add(self, pipe: AnyPipeline, item: object) -> Op[None]:
        """Queue an add; its result in `pipe.execute()` is 1 or 0."""
        return self.on_item(self.codec.encode(item), lambda part: part.queue_add(pipe, item))

    def queue_contains(self, pipe: AnyPipeline, item: object) -> Op[None]:
        """Queue a test; its result in `pipe.execute()` is 1 or 0."""
        encoded = self.codec.encode(item)
        yield from self.stored.existing()
        yield from self.part_of(encoded).queue_contains(pipe, item)

    # -- claims

    def on_items(self, requests: Sequence[ClaimRequest]) -> Op[None]:
        """Make an attempt at requests of one group, on the shards that have the items."""
        yield from self.stored.acquire()
        parts: dict[Queueing, list[ClaimRequest]] = {}
        for request in requests:
            parts.setdefault(self.part_of(request.encoded), []).append(request)
        yield from gather(part.attempted(own) for part, own in parts.items())

    # -- the filter as a whole

    def local_parameters(self) -> dict[str, object]:
        """Return the parameters that are known without I/O."""
        return info.local_parameters(self.stored.head, None)

    def info(self) -> Op[FilterInfo]:
        """Return the filter's parameters and how full it is."""
        return (yield from untold(self._info()))

    def _info(self) -> Op[FilterInfo]:
        (found,) = yield from self.stored.current()
        record = self.stored.record
        shards = map(self.stored.shard, range(record.shards))
        parts = unless_failed((yield from gather(self._part(shard).info() for shard in shards)))
        return info.sharded(self.name, found, record.shard, record.shards, parts)

    def discard_pending(self) -> None:
        for part in list(self._parts.values()):
            part.discard_pending()
