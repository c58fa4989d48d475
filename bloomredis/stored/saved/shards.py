"""Restoring a sharded filter under a new name: first the shards, over many slots, then the record.

    step                                   | left behind by a crash after this step
    ---------------------------------------|-----------------------------------------------------------------
    write shards under temporary keys      | strings that expire within ten minutes
    rename the shards                      | strings that expire within a minute
    write the record                       | a record in the state `RESTORED`, which names these shards
    give the shards its time to live       | the same
    set the record in use                  | the filter

A client that opens a record in this state does the remaining steps, or deletes everything if a shard has
expired meanwhile.  So the filter exists as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from bloomredis.bits.limits import HEADER_BYTES
from bloomredis.errors import FilterExistsError, FilterMismatchError
from bloomredis.protocol.clock import next_round
from bloomredis.protocol.replies import OutcomeMatters
from bloomredis.protocol.steps import Op
from bloomredis.stored.saved.format import Part, Saved
from bloomredis.stored.saved.writing import Writing
from bloomredis.stored.shards import record as shard_record
from bloomredis.stored.shards.parts import PART_MS, being_made
from bloomredis.stored.shards.record import IN_USE, RESTORED, ShardRecord
from bloomredis.stored.shards.shards import SeenRecord, StoredShards
from bloomredis.stored.state.base import taken


class RestoredShards:
    """The shards and the record of a filter that does not exist yet."""

    def __init__(self, name: str, saved: Saved, record: ShardRecord) -> None:
        shard_record.checked_name(name)
        self.name = name
        self._stored = StoredShards(
            name, plan=None, layout=None, wanted={}, ttl=saved.ttl, on_lost="raise", wait=None
        )
        self._heads = {part.number: part.header for part in saved.parts}
        self._restored = replace(record, state=RESTORED)
        self._writings: dict[int, Writing] = {}

    def begin(self) -> Op[None]:
        """Raise `FilterExistsError` if the key holds anything, or a shard exists."""
        rounds = None
        try:
            while (found := (yield from self._stored.look())) is not None:
                rounds = yield from next_round(rounds, self.name)
                if found.record.state == IN_USE:
                    raise taken(self.name)
                yield from self._stored.finish_work(found, None)
        except FilterMismatchError:  # of another kind
            raise taken(self.name) from None
        shards = self._stored.shards_of(self._restored)
        if any((yield from self._stored.each(shard.seen() for shard in shards))):
            raise FilterExistsError(
                f"shards of {self.name!r} exist without their record, which was lost or is about to be "
                "written",
                advice="wait a minute if the record is being written; else delete() the filter, or use "
                "another name",
                command="wait a minute, or use another name",
            )

    def write(self, part: Part, pieces: Sequence[tuple[int, bytes]]) -> Op[None]:
        """Write pieces of a shard, each with the index of its first byte among the bits."""
        number, head = part.number, self._heads[part.number]
        key = self._shard_key(number)
        if number not in self._writings:
            self._writings[number] = Writing(self.name, key)
            yield from self._writings[number].allocate(key, head.size_bytes)
            new = being_made(head).pack()
            yield from self._writings[number].write(key, head.size_bytes, [(0, new)])
        own = [(HEADER_BYTES + first, piece) for first, piece in pieces]
        yield from self._writings[number].write(key, head.size_bytes, own)
        oldest = next(iter(self._writings.values()))  # all are renewed together
        if oldest.is_renewal_due():
            yield from self._each_writing(lambda _, writing: writing.touch())

    def publish(self) -> Op[None]:
        """Rename the shards, write the record, and set it in use.

        :raises FilterExistsError: the name is in use by now.
        """
        with OutcomeMatters(self.name, "check whether the filter exists now"):
            yield from self._publish()

    def _publish(self) -> Op[None]:
        record = self._restored
        yield from self._each_writing(
            lambda number, writing: writing.publish({self._shard_key(number): PART_MS})
        )
        generation = record.head.generation
        found: SeenRecord | None
        found = written = yield from self._stored.ask(record)
        if written.record.head.generation != generation:
            raise taken(self.name)
        rounds = None
        while found and found.record.head.generation == generation and found.record.state != IN_USE:
            rounds = yield from next_round(rounds, self.name)
            yield from self._stored.finish_work(found, None)
            found = yield from self._stored.look()
        if not found or found.record.head.generation != generation:
            raise FilterMismatchError(
                f"{self.name!r} was replaced while it was written",
                advice="check the filter that exists now",
            )

    def discard(self) -> Op[None]:
        """Delete the written shards."""
        yield from self._each_writing(lambda _, writing: writing.discard())

    def _each_writing(self, call: Callable[[int, Writing], Op[None]]) -> Op[None]:
        yield from self._stored.each(call(number, each) for number, each in self._writings.items())

    def _shard_key(self, number: int) -> bytes:
        return shard_record.key(self.name, self._restored.shards, number).encode()
