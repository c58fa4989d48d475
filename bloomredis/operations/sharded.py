"""A filter of any capacity, in shards that are filters of their own."""

from __future__ import annotations

from functools import partial
from typing import Any, Unpack

from bloomredis import arguments
from bloomredis.operations import info
from bloomredis.operations.filter import FilterOperations
from bloomredis.operations.info import FilterInfo
from bloomredis.operations.membership import Encoded
from bloomredis.operations.options import CommonParameters, Options, Seconds
from bloomredis.operations.pipelines import Queueing
from bloomredis.operations.routed import Place, RoutedOperations
from bloomredis.operations.verbs import Codec, StoredVerbs
from bloomredis.protocol.receipts import Lanes
from bloomredis.protocol.steps import Op
from bloomredis.stored import planning, shard_record
from bloomredis.stored.shard import StoredShard
from bloomredis.stored.shard_record import ShardRecord, checked_name, checked_seed, checked_shards
from bloomredis.stored.shards import StoredShards


class Shard(Queueing):
    """The verbs of one shard; one that was never made has no item."""

    stored: StoredShard

    def contains(self, item: Any) -> Op[bool]:
        """Return whether an item is in the shard."""
        if (yield from self.stored.is_absent()):
            return False
        return (yield from super().contains(item))

    def contains_encoded(self, encoded: Encoded) -> Op[list[bool]]:
        """Test items that have been encoded."""
        if (yield from self.stored.is_absent()):
            return [False] * len(encoded)
        return (yield from super().contains_encoded(encoded))


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
        **common: Unpack[CommonParameters[Any]],
    ) -> None:
        options = Options(**common)
        super().__init__(checked_name(name), Codec(options.encode, None), options)
        wanted: dict[str, Any] = {
            "shards": None if shards is None else checked_shards(shards),
            "seed": None if seed is None else checked_seed(seed),
        }
        if layout is not None:
            planning.check_name(layout)
        made_for = arguments.parameters(capacity, error_rate)
        plan = made_for and partial(shard_record.plan, *made_for, layout=layout, **wanted)
        storage = options.storage(ttl, can_create=plan is not None)
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

    def _record(self) -> ShardRecord:
        assert self.stored.record is not None  # noqa: S101 - it is ready
        return self.stored.record

    def _shard(self, number: int) -> Place:
        return self._record().server(number), self.stored.shard(number)

    def _place(self, encoded: bytes) -> Place:
        return self._shard(self._record().number(encoded))

    def _cut(self, encoded: Encoded) -> dict[Place, list[int]]:
        return {self._shard(number): own for number, own in self._record().parted(encoded).items()}

    def _new_part(self, place: Place) -> Queueing:
        return Shard(place[1], self.options)

    def part_of(self, encoded: bytes) -> Queueing | None:
        """Return the shard that an item lives in, None if that is not known yet."""
        return None if self.stored.handle is None else self._part(self._place(encoded))

    def _made(self) -> list[Place]:
        return list(map(self._shard, self.stored.made()))

    def reserve(self) -> Op[None]:
        """Create the filter now, or check the stored one: the record, and the shards that have been made."""
        noticed = self.stored.is_lost
        yield from self.stored.take()
        yield from self._everywhere(self._made(), partial(_check, noticed=noticed))

    def info(self) -> Op[FilterInfo]:
        """Return the filter's parameters and how full it is."""
        (found,) = yield from self.stored.current()
        parts = yield from self._everywhere(self._made(), FilterOperations.info)
        return info.sharded(self.name, found, self._record().shard, self._record().shards, parts)

    def _discard_pending(self, generation: bytes | None = None) -> None:
        for part in list(self._parts.values()):
            handle = part.stored.handle if generation else None  # a shard has a generation of its own
            part.ledger.clear(handle.generation if handle else None)


def _check(part: Queueing, *, noticed: bool) -> Op[object]:
    """Make sure that a shard is there; replace a lost one if the loss was noticed."""
    assert isinstance(part.stored, StoredShard)  # noqa: S101 - nothing else is made here
    return part.stored.open(noticed=noticed)
