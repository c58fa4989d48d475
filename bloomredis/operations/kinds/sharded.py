"""Operations of a filter of any capacity, in shards that are filters themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from typing import TypeVar, Unpack

from bloomredis import arguments
from bloomredis.bits.arrays import NDArray, np
from bloomredis.bits.batch import Encoded, PackedBatch, Prepared
from bloomredis.bits.hashing import Digests
from bloomredis.operations.codec import Codec
from bloomredis.operations.items.packing import PACKED
from bloomredis.operations.kinds.filter import FilterOperations
from bloomredis.operations.kinds.pipelines import Queueing
from bloomredis.operations.kinds.routed import PartId, RoutedOperations
from bloomredis.operations.kinds.verbs import StoredOperations
from bloomredis.operations.options import Common, Options, Seconds
from bloomredis.operations.whole import info
from bloomredis.operations.whole.info import FilterInfo
from bloomredis.protocol.receipts import Sessions
from bloomredis.protocol.steps import Op
from bloomredis.stored import planning
from bloomredis.stored.shards import record as shard_record
from bloomredis.stored.shards.record import checked_name, checked_seed, checked_shards
from bloomredis.stored.shards.shards import StoredShards

T = TypeVar("T")


class ShardedOperations(StoredOperations, RoutedOperations):
    """The operations of `ShardedBloomFilter`."""

    stored: StoredShards

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
        options = Options(**common)
        super().__init__(checked_name(name), Codec(options.encode, None), options)
        shards = None if shards is None else checked_shards(shards)
        seed = None if seed is None else checked_seed(seed)
        if layout is not None:
            planning.check_name(layout)
        made_for = arguments.parameters(capacity, error_rate)
        plan = made_for and shard_record.plan_record(*made_for, layout=layout, shards=shards, seed=seed)
        storage = options.storage(ttl, can_create=plan is not None)
        wanted = {"shards": shards, "seed": seed}
        self.stored = StoredShards(name, plan=plan, layout=layout, wanted=wanted, **storage)
        self.sessions = Sessions(self.stored.key)

    def _ready(self, *, creates: bool = True) -> Op[None]:
        yield from self.stored.acquire() if creates else self.stored.existing()

    def _shard(self, number: int) -> PartId:
        return self.stored.shard(number)

    def _place(self, encoded: bytes) -> PartId:
        return self._shard(self.stored.cached_record.number(encoded))

    def _cut(self, encoded: Encoded) -> dict[PartId, NDArray[np.intp]]:
        return {self._shard(number): own for number, own in self.stored.cached_record.parted(encoded).items()}

    def on_item(self, encoded: bytes, call: Callable[[Queueing], Op[T]]) -> Op[T]:
        if self.stored.handle is not None:
            return call(self._part(self._place(encoded)))
        return super().on_item(encoded, call)

    def contains(self, item: object, *, by_reading: bool = False) -> Op[bool]:
        """Return whether an item is in the filter.

        :param by_reading: read the item's blocks without a script, if there are blocks.
        """
        if self.stored.handle is None:
            testing = super().contains(item, by_reading=by_reading)
            return self._unless_none(testing)
        encoded = self.codec.encode(item)
        return self._part(self._place(encoded)).items.test_one(encoded, by_reading=by_reading)

    def _unless_none(self, testing: Op[bool]) -> Op[bool]:
        return (yield from self.stored.or_none(testing)) or False

    def contains_encoded(self, encoded: Encoded) -> Op[list[bool]]:
        """Test encoded items."""
        return self._unless_missing(encoded, super().contains_encoded(encoded))

    def contains_shared(self, encoded: Encoded) -> Op[list[bool]]:
        """Test the items of several callers; a shard that does not answer fails its own items only."""
        return self._unless_missing(encoded, super().contains_shared(encoded))

    def _unless_missing(self, encoded: Encoded, testing: Op[list[bool]]) -> Op[list[bool]]:
        answers = yield from self.stored.or_none(testing)
        return answers or [False] * len(encoded)

    def _batches(self, encoded: Encoded, owns: Sequence[NDArray[np.intp]]) -> Iterable[Encoded | Prepared]:
        handle = self.stored.handle
        if handle is None or len(encoded) > PACKED:
            return super()._batches(encoded, owns)
        layout = handle.layout
        ordered = list(map(encoded.__getitem__, np.concatenate(owns).tolist()))
        data, size = layout.pack(ordered), layout.item_bytes
        ends = accumulate(map(len, owns), initial=0)
        return [
            PackedBatch(layout, ordered[start:end], data[start * size : end * size])
            for start, end in pairwise(ends)
        ]

    def _digests(self, encoded: Encoded) -> Digests:
        return Digests.of(encoded)

    def _num_parts(self) -> int:
        return self.stored.cached_record.shards

    def _new_part(self, place: PartId) -> Queueing:
        return Queueing(place, self.options)

    def on_part(self, number: int, call: Callable[[Queueing], Op[T]]) -> Op[T]:
        """Run an operation on the shard with that number; the filter must be open."""
        return self._on(self._shard(number), call)

    def _shards(self) -> list[PartId]:
        return list(map(self._shard, range(self.stored.cached_record.shards)))

    def local_parameters(self) -> dict[str, object]:
        """Return the parameters that are known without I/O."""
        return info.local_parameters(self.stored.head, None)

    def info(self) -> Op[FilterInfo]:
        """Return the filter's parameters and how full it is."""
        return (yield from self.stored.untold(self._info()))

    def _info(self) -> Op[FilterInfo]:
        (found,) = yield from self.stored.current()
        parts = yield from self._everywhere(self._shards(), FilterOperations.info)
        record = self.stored.cached_record
        return info.sharded(self.name, found, record.shard, record.shards, parts)

    def discard_pending(self) -> None:
        for part in list(self._parts.values()):
            part.discard_pending()
