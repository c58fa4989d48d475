"""What a sharded filter does: any capacity, in shards that are filters of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from bloomredis import arguments
from bloomredis.arguments import OnLost
from bloomredis.bits.encoding import Item
from bloomredis.operations import info
from bloomredis.operations.filter import FilterOperations
from bloomredis.operations.info import FilterInfo
from bloomredis.operations.routed import Place, RoutedOperations
from bloomredis.protocol.steps import Op
from bloomredis.stored import planning, shard_record
from bloomredis.stored.base import Handle
from bloomredis.stored.shard_record import ShardRecord, checked_name, checked_seed, checked_shards
from bloomredis.stored.shards import StoredShard, StoredShards


class Shard(FilterOperations):
    """The operations of one shard; before its first item comes there is nothing to ask."""

    _stored: StoredShard

    def __init__(self, under: StoredShard, **options: Any) -> None:
        self._shard = under
        super().__init__(under.name, **options)

    def _make_stored(self, name: str, **parameters: Any) -> StoredShard:  # noqa: ARG002 - it is there already
        return self._shard

    def contains(self, item: Item) -> Op[bool]:
        if (yield from self._stored.is_absent()):
            return False
        return (yield from super().contains(item))

    def contains_encoded(self, encoded: Sequence[str | bytes]) -> Op[list[bool]]:
        if (yield from self._stored.is_absent()):
            return [False] * len(encoded)
        return (yield from super().contains_encoded(encoded))

    def check(self, *, noticed: bool) -> Op[Handle]:
        """Make sure that the shard is there; make a lost one anew if the loss was noticed."""
        return self._stored.open(noticed=noticed)


class ShardedOperations(RoutedOperations):
    """A Bloom filter of any capacity, in shards that are spread over a cluster or a list of servers.

    An item lives in one shard, so of any number of concurrent `add(x)` exactly one is told that x was new,
    as with `BloomFilter`.  A batch goes to all shards at once.  A shard takes memory from its first item on;
    one that is lost is noticed like a whole filter: `FilterLostError`, until the caller calls `reserve()`,
    which goes on without the items of that shard, or `clear()`.

    Other parameters are those of `BloomFilter`.

    :param client: a client of redis-py or valkey-py; of a cluster, which spreads the shards over its nodes,
        or of a server; or a list of clients of independent servers, always in the same order.
    :param name: the key of the root, which records everything; shards are `{name:0:…}`, `{name:1:…}`, ...
        It must not contain `}`.
    :param capacity: items that the filter is made for.  With `capacity` and `error_rate` a missing
        filter is created at first use and a stored one is checked; without, it must exist.
    :param error_rate: the false-positive rate at `capacity`, strictly between 0 and 1.
    :param shards: how many, 1 to 4,096; None for what is stored, and for a new filter as many as make
        none larger than 128 MB, at least 16.
    :param layout: `"blocked"`, whose calls are faster, or `"classic"`, which takes 6% to 16% less memory;
        None for what is stored (a new filter gets the default, blocked).
    :param seed: of the hash that picks the shard; None for what is stored, or the default.
    :param ttl: seconds (or a timedelta) from creation until the filter expires; None for never.
    :param on_lost: what to do when the filter or a shard that was in use is gone or another one:
        `"raise"` raises `FilterLostError`; `"recreate"` logs a warning and goes on with what is there
        now, or a new one; a callable is given the error first, and may raise it.
    :raises ValueError, TypeError: for bad arguments, before any I/O.
    """

    _stored: StoredShards

    def __init__(
        self,
        name: str,
        *,
        capacity: int | None = None,
        error_rate: float | None = None,
        shards: int | None = None,
        layout: str | None = None,
        seed: int | None = None,
        ttl: float | timedelta | None = None,
        on_lost: OnLost = "raise",
        retry_safe: bool = True,
        encode: Callable[[Any], bytes] | None = None,
        coalesce: bool | None = None,
        min_replicas: int = 0,
        replica_timeout: float | timedelta = 1.0,
    ) -> None:
        self._wanted: dict[str, Any] = {
            "shards": None if shards is None else checked_shards(shards),
            "seed": None if seed is None else checked_seed(seed),
        }
        self._options: dict[str, Any] = {
            "retry_safe": retry_safe,
            "encode": encode,
            "min_replicas": min_replicas,
            "replica_timeout": replica_timeout,
        }
        super().__init__(
            name,
            capacity=capacity,
            error_rate=error_rate,
            layout=layout,
            ttl=ttl,
            on_lost=on_lost,
            coalesce=coalesce,
            **self._options,
        )

    def _make_stored(self, name: str, **given: Any) -> StoredShards:
        layout, ttl = given["layout"], given["ttl"]
        if layout is not None:
            planning.check_name(layout)
        made_for = arguments.parameters(given["capacity"], given["error_rate"])
        plan = made_for and partial(shard_record.plan, *made_for, layout=layout, **self._wanted)
        if ttl is not None and plan is None:
            raise ValueError(
                "ttl counts from creation, so it needs capacity and error_rate; or call expire()"
            )
        return StoredShards(
            checked_name(name),
            plan=plan,
            layout=layout,
            wanted=self._wanted,
            ttl=0 if ttl is None else arguments.milliseconds("ttl", ttl),
            on_lost=arguments.on_lost(given["on_lost"], can_create=plan is not None),
            wait=given["wait"],
        )

    def over(self, servers: int) -> None:
        """Spread the shards over so many servers; before the first call."""
        if servers < 1:
            raise ValueError("a list of clients must have at least one")
        self.servers = servers
        self._stored.over(servers)

    def _ready(self) -> Op[None]:
        if self._stored.handle is None:
            yield from self._stored.open()

    def _record(self) -> ShardRecord:
        assert self._stored.record is not None  # noqa: S101 - it is ready
        return self._stored.record

    def _place(self, encoded: bytes) -> Place:
        record = self._record()
        number = record.number(encoded)
        return record.server(number), self._stored.shard(number)

    def _cut(self, encoded: Sequence[str | bytes]) -> dict[Place, list[int]]:
        record = self._record()
        return {
            (record.server(number), self._stored.shard(number)): places
            for number, places in record.parted(encoded).items()
        }

    def _new_shard(self, place: Place) -> Shard:
        return Shard(place[1], **self._options)

    def _made(self) -> list[Place]:
        record = self._record()
        return [(record.server(number), self._stored.shard(number)) for number in self._stored.made()]

    def handle(self, item: Item | None = None) -> Op[Handle]:
        if item is not None:
            self._check_one_server()
            return (yield from self._route(item, FilterOperations.handle))
        return self._stored.handle or (yield from self._stored.open())

    def token_of(self, encoded: str | bytes) -> str | None:
        return super().token_of(encoded) if self._stored.record else None

    def reserve(self) -> Op[None]:
        """Create the filter now, or check the stored one: the root, and the shards that have been made.

        After a `FilterLostError` this takes notice of the loss: what is there now is used from here on, and a
        lost shard is made anew.  Shards that have no item yet take no memory; each is made when its first
        item comes.

        :raises FilterMismatchError: the key holds something else; it is left untouched.
        :raises FilterNotFoundError: it does not exist, and there are no parameters to create it.
        :raises FilterLostError: the root is there and a shard is not.
        """
        noticed = self._stored.is_lost
        self._stored.reset()
        yield from self._stored.open(noticed=noticed)
        yield from self._everywhere(self._made(), lambda shard: _as_shard(shard).check(noticed=noticed))

    def info(self) -> Op[FilterInfo]:
        (found,) = yield from self._stored.current()
        parts = yield from self._everywhere(self._made(), FilterOperations.info)
        return info.sharded(self.name, found, self._record().shard, self._record().shards, parts)

    def clear(self) -> Op[None]:
        self._owed.clear()
        yield from super().clear()

    def delete(self) -> Op[bool]:
        self._owed.clear()
        return (yield from super().delete())


def _as_shard(operations: FilterOperations) -> Shard:
    assert isinstance(operations, Shard)  # noqa: S101 - nothing else is made here
    return operations
