"""A sharded filter that is written under a new name: shards over slots and servers, and the record at last.

    step                                  | whoever dies here leaves
    --------------------------------------|-------------------------------------------------------------
    shards under temporary names          | strings that expire within ten minutes
    shards under their keys               | the same: no record names them, and who makes a filter drops them
    copies of the record, then the record | a record of state `RESTORED`, which lives longer than its shards
    it lives on, then its shards do       | the same, without a limit
    its state is settled                  | the filter

Whoever opens a record of that state does the rest, or deletes it all if a shard has expired meanwhile: the
filter is there as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from bloomredis.bits.limits import HEADER_BYTES
from bloomredis.errors import FilterMismatchError, ServerRefusedError
from bloomredis.protocol.replies import OutcomeMatters
from bloomredis.protocol.steps import Op
from bloomredis.stored.header import Header
from bloomredis.stored.saved.writing import WRITING_MS, Writing
from bloomredis.stored.shards import record as shard_record
from bloomredis.stored.shards.record import RESTORED, ShardRecord
from bloomredis.stored.shards.servers import RESERVE_RECORD
from bloomredis.stored.shards.shards import StoredShards
from bloomredis.stored.state.base import Arguments, taken

_RECORD_MS: Final = 2 * WRITING_MS
"""The record outlives shards that nobody lets live on, so that whoever opens it finds them missing."""


class RestoredShards(StoredShards):
    """The shards and the record of a filter that does not exist yet."""

    def __init__(self, name: str, record: ShardRecord, ttl: int, servers: int) -> None:
        """Take the record of the new filter, and the time to live in ms that it will have, 0 for none."""
        shard_record.checked_name(name)
        if record.shards < servers:
            raise ValueError(f"{record.shards} shards leave some of {servers} servers without one")
        super().__init__(name, plan=None, layout=None, wanted={}, ttl=_RECORD_MS, on_lost="raise", wait=None)
        self.over(servers)
        self._restored = replace(
            record, head=replace(record.head, count=ttl), state=RESTORED, servers=servers
        )
        self._writings: dict[int, Writing] = {}

    def _check_leaves(self, error: ServerRefusedError) -> None:
        raise error  # who restores has to see that it stays

    def check_free(self) -> Op[None]:
        """Raise `FilterMismatchError` if there is a filter with this name."""
        found = yield from self._look(0)
        if found is not None and (yield from self._is_left(found)):
            raise taken(self.name)

    def write(self, number: int, head: Header, pieces: Sequence[tuple[int, bytes]]) -> Op[None]:
        """Write pieces of a shard, each with the index of its first byte among the bits."""
        yield from self._on(self._restored.server(number), self._write(number, head, pieces))
        oldest = next(iter(self._writings.values()))  # which is renewed together with all others
        if oldest.is_renewal_due():
            yield from self._each(self._restored, self._writings, lambda each: self._writings[each].renew())

    def _write(self, number: int, head: Header, pieces: Sequence[tuple[int, bytes]]) -> Op[None]:
        key = self._shard_key(number)
        if number not in self._writings:
            self._writings[number] = Writing(self.name, key)
            yield from self._writings[number].allocate(key, head.size_bytes)
            yield from self._writings[number].write(key, head.size_bytes, [(0, head.pack())])
        own = [(HEADER_BYTES + first, piece) for first, piece in pieces]
        yield from self._writings[number].write(key, head.size_bytes, own)

    def publish(self, generations: Mapping[int, bytes]) -> Op[None]:
        """Give the shards their keys, write the record, and let all live on.

        :param generations: of the shards, by their numbers.
        :raises FilterMismatchError: the name is taken by now.
        """
        with OutcomeMatters(self.name, "look whether the filter is there now"):
            yield from self._publish(generations)

    def _publish(self, generations: Mapping[int, bytes]) -> Op[None]:
        record = self._restored
        yield from self._sweep(record)
        yield from self._each(
            record,
            self._writings,
            lambda number: self._writings[number].publish({self._shard_key(number): WRITING_MS}),
        )
        for place in range(1, self.servers):
            yield from self._ask(place, record)
        arguments: Arguments = [record.pack(generations), _RECORD_MS, b""]
        found, _ = yield from self._on(0, self._call(RESERVE_RECORD, arguments))
        if len(found) <= HEADER_BYTES or found[40:48] != record.head.generation:
            raise taken(self.name)
        there = yield from self._look(0)
        if there is None or not (yield from self._is_left(there)):
            raise FilterMismatchError(
                f"{self.name!r} was replaced while it was written; look at what is there"
            )
        yield from self._copies(there.record, is_new=True)

    def discard(self) -> Op[None]:
        """Delete what was written."""
        yield from self._each(self._restored, self._writings, lambda number: self._writings[number].discard())

    def _shard_key(self, number: int) -> bytes:
        return shard_record.key(self.name, self._restored.shards, number).encode()
