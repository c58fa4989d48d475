"""A filter of any capacity, in shards that are filters of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, TypeVar, Unpack

from bloomredis import arguments
from bloomredis.bits.batch import Encoded, PackedBatch, Prepared, parts_of
from bloomredis.operations.codec import Codec
from bloomredis.operations.items.membership import PACKED
from bloomredis.operations.items.outcomes import Answers
from bloomredis.operations.kinds.filter import FilterOperations
from bloomredis.operations.kinds.pipelines import Queueing
from bloomredis.operations.kinds.routed import Place, RoutedOperations
from bloomredis.operations.kinds.verbs import StoredVerbs
from bloomredis.operations.options import Common, Options, Seconds
from bloomredis.operations.whole import info
from bloomredis.operations.whole.info import FilterInfo
from bloomredis.protocol.gather import beside
from bloomredis.protocol.receipts import Lanes
from bloomredis.protocol.steps import Op
from bloomredis.stored import planning
from bloomredis.stored.shards import record as shard_record
from bloomredis.stored.shards.record import checked_name, checked_seed, checked_shards
from bloomredis.stored.shards.shards import StoredShards
from bloomredis.stored.shards.table import StoredShard

T = TypeVar("T")


class Shard(Queueing):
    """The verbs of one shard; one that was never made has no item."""

    stored: StoredShard

    def test_one(self, encoded: bytes) -> Op[bool]:
        """Test an item, which has been encoded."""
        operation = super().test_one(encoded)
        return operation if self.stored.handle is not None else self._test_if_made(operation)

    def _test_if_made(self, operation: Op[bool]) -> Op[bool]:
        return not (yield from self.stored.is_absent()) and (yield from operation)

    def contains_encoded(self, encoded: Encoded | Prepared) -> Op[list[bool]]:
        """Test items that have been encoded."""
        if (yield from self.stored.is_absent()):
            return [False] * len(parts_of(encoded)[0])
        return (yield from self.membership.test(encoded))

    def add_encoded(self, encoded: Encoded | Prepared, items: Sequence[object]) -> Op[Answers]:
        """Add `items`, which have been encoded."""
        return self.membership.add(encoded, items)


class ShardedOperations(StoredVerbs, RoutedOperations):
    """The verbs of `ShardedBloomFilter`."""

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
        plan = made_for and partial(shard_record.plan, *made_for, layout=layout, shards=shards, seed=seed)
        storage = options.storage(ttl, can_create=plan is not None)
        wanted = {"shards": shards, "seed": seed}
        self.stored = StoredShards(name, plan=plan, layout=layout, wanted=wanted, **storage)
        self.lanes = Lanes(self.stored.key)
        self.servers = 1

    def over(self, servers: int) -> None:
        """Spread the shards over so many servers; before the first call."""
        if servers < 1:
            raise ValueError("a list of clients must have at least one")
        self.servers = servers
        self.stored.over(servers)

    def _ready(self) -> Op[None]:
        if self.stored.handle is None:
            yield from self.stored.open()

    def _ready_anew(self) -> Op[None]:
        yield from self._ready()
        if self.stored.is_look_due():
            yield from self.stored.look()

    def _shard(self, number: int) -> Place:
        return self.stored.known.server(number), self.stored.shard(number)

    def _place(self, encoded: bytes) -> Place:
        return self._shard(self.stored.known.number(encoded))

    def _cut(self, encoded: Encoded) -> dict[Place, list[int]]:
        return {self._shard(number): own for number, own in self.stored.known.parted(encoded).items()}

    def _route_encoded(self, encoded: bytes, call: Callable[[Queueing], Op[T]]) -> Op[T]:
        part = self._part_of(encoded) if self.servers == 1 else None
        if part is not None:
            return call(part)
        return self._beside_a_look(partial(super()._route_encoded, encoded, call))

    def _batches(self, encoded: Encoded, parts: dict[Place, list[int]]) -> Iterable[Encoded | Prepared]:
        if len(encoded) > PACKED:
            return super()._batches(encoded, parts)
        layout = planning.stored(self.stored.known.shard)
        ordered = [encoded[i] for own in parts.values() for i in own]
        data, size = layout.pack(ordered), layout.item_bytes
        ends = list(accumulate(map(len, parts.values())))
        return [
            PackedBatch(layout, ordered[start:end], data[start * size : end * size])
            for start, end in pairwise([0, *ends])
        ]

    def _gathered(
        self, encoded: Encoded, call: Callable[[list[int], Any, Queueing], Op[list[T]]]
    ) -> Op[list[tuple[list[int], list[T] | Exception]]]:
        return self._beside_a_look(partial(super()._gathered, encoded, call))

    def _beside_a_look(self, run: Callable[[], Op[T]]) -> Op[T]:
        """Run an operation; if a look at the record is due, it is done beside that."""
        if self.stored.handle is None or not self.stored.is_look_due():
            return run()
        return beside(run(), self.stored.look())

    def _new_part(self, place: Place) -> Queueing:
        return Shard(place[1], self.options)

    def _part_of(self, encoded: bytes) -> Queueing | None:
        """Return the shard that an item lives in, None if the record has to be read first."""
        if self.stored.handle is None or self.stored.is_look_due():
            return None
        return self._part(self._place(encoded))

    def on_part(self, number: int, call: Callable[[Queueing], Op[T]]) -> Op[T]:
        """Run an operation of the shard with that number, on its server; the filter has to be open."""
        return self._on(self._shard(number), call)

    def _made(self) -> list[Place]:
        return list(map(self._shard, self.stored.made()))

    def known(self) -> dict[str, object]:
        """Return the parameters that are known without I/O."""
        return info.known(self.stored.head, None)

    def reserve(self) -> Op[None]:
        """Create the filter now, or check the stored one: the record, and the shards that have been made."""
        noticed = self.stored.is_lost
        yield from self.stored.take()
        yield from self._everywhere(self._made(), partial(_check, noticed=noticed))

    def info(self) -> Op[FilterInfo]:
        """Return the filter's parameters and how full it is."""
        (found,) = yield from self.stored.current()
        parts = yield from self._everywhere(self._made(), FilterOperations.info)
        return info.sharded(self.name, found, self.stored.known.shard, self.stored.known.shards, parts)

    def _discard_pending(self, generation: bytes | None = None) -> None:
        for part in list(self._parts.values()):
            handle = part.stored.handle if generation else None  # a shard has a generation of its own
            part.pending.clear(handle.generation if handle else None)


def _check(part: Queueing, *, noticed: bool) -> Op[object]:
    """Make sure that a shard is there; replace a lost one if the loss was noticed."""
    assert isinstance(part.stored, StoredShard)  # noqa: S101 - nothing else is made here
    return part.stored.open(noticed=noticed)
