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
from bloomredis.operations.claims.state import ClaimState
from bloomredis.operations.codec import Codec
from bloomredis.operations.kinds.pipelines import AnyPipeline, Queueing
from bloomredis.operations.kinds.sharded_items import ShardedItems, answers_of_several, told_apart
from bloomredis.operations.kinds.verbs import ItemOperations, StoreAnswers
from bloomredis.operations.options import Common, Seconds, checked_options
from bloomredis.protocol.gather import gather, unless_failed
from bloomredis.protocol.keys import as_bytes
from bloomredis.protocol.pending import Answers
from bloomredis.protocol.receipts import Sessions
from bloomredis.protocol.steps import Batches, Op
from bloomredis.stored import planning
from bloomredis.stored.shards import record as shard_record
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
    items: ShardedItems  # type: ignore[assignment]  # for one item and for batches like the others
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
        self.items = ShardedItems(self.stored, options)

    def part_of(self, encoded: bytes) -> Queueing:
        """Return the shard that has an item; the filter must be open."""
        return self.items.part_of(encoded)

    def on_part(self, number: int, call: Callable[[Queueing], Op[T]]) -> Op[T]:
        """Run an operation on the shard with that number; the filter must be open."""
        return call(self.items.part(self.stored.shard(number)))

    # -- items

    def add_shared(self, encoded: Encoded) -> Op[Answers]:
        """Add the items of several callers; a shard that does not answer fails its own items only."""
        return self.items.add(encoded, encoded, answers_of_several)

    def contains_shared(self, encoded: Encoded) -> Op[list[bool]]:
        """Test the items of several callers; a shard that does not answer fails its own items only."""
        return self.items.test(encoded, told_apart)

    def answer_store(self) -> StoreAnswers:
        """Return a function that stores answers for retries, for the present generation and process."""
        stores = {shard: part.answer_store() for shard, part in self.items.parts()}

        def store(encoded: Encoded, answers: Sequence[bool]) -> None:
            for item, answer in zip(encoded, answers, strict=False):
                if own := stores.get(self.stored.shard_with(as_bytes(item))):
                    own([item], [answer])

        return store

    def update(self, source: Batches, progress: Callable[[int], object] | None = None) -> Op[int]:
        """Add items as fast as possible, without an answer for each; return how many were read."""
        return sharded_loading.load(self.stored, self.items.part, self.codec, source, progress)

    def queue(self, pipe: AnyPipeline, item: object, *, adds: bool) -> Op[None]:
        """Queue an add or a test; its result in `pipe.execute()` is 1 or 0."""
        encoded = self.codec.encode(item)
        yield from self.stored.acquire() if adds else self.stored.existing()
        yield from self.part_of(encoded).queue(pipe, item, adds=adds)

    # -- claims

    def attempt_one(self, request: ClaimRequest) -> Op[ClaimState]:
        """Make an attempt at a request; return the claim, or raise the error."""
        return self.items.on_item(request.encoded, lambda part: part.claims.one(request))

    def on_items(self, requests: Sequence[ClaimRequest]) -> Op[None]:
        """Make an attempt at requests of one group, on the shards that have the items."""
        yield from self.stored.acquire()
        parts: dict[Queueing, list[ClaimRequest]] = {}
        for request in requests:
            parts.setdefault(self.part_of(request.encoded), []).append(request)
        unless_failed((yield from gather(part.attempted(own) for part, own in parts.items())))

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
        parts = unless_failed((yield from gather(self.items.part(shard).info() for shard in shards)))
        return info.sharded(self.name, found, record.shard, record.shards, parts)

    def discard_pending(self) -> None:
        for _, part in self.items.parts():
            part.discard_pending()
