"""The shards of a sharded filter, and the record that says which of them exist.

The record has a table with the generation of every shard.  A shard is made when its first item comes: it is
created, then its generation is recorded in the table, and only then is it used.  So a shard that is not
recorded has no item, and one whose generation is not the recorded one was lost.  Two clients that make a
shard at the same time use the same one, or one of them notices.  A crash in between leaves an empty shard,
which the next client records.  A shard of an earlier record is known by its generation's tag, and replaced.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from bloomredis.errors import FilterLostError, FilterMismatchError, FilterNotFoundError
from bloomredis.protocol import replies, scripts
from bloomredis.protocol.calls import call, send
from bloomredis.protocol.gather import gather, unless_failed
from bloomredis.protocol.replies import Refusal, unhex
from bloomredis.protocol.steps import Op
from bloomredis.stored import planning, shard_record
from bloomredis.stored.base import Arguments
from bloomredis.stored.handle import Description, Handle, LayoutChanged, ttl_seconds
from bloomredis.stored.shard import NO_GENERATION, StoredShard
from bloomredis.stored.shard_record import ShardRecord
from bloomredis.stored.shard_servers import Found, RecordServers
from bloomredis.stored.versioned import Versioned

T = TypeVar("T")
_RECORD, _DELETE = map(scripts.load, ("record_shard", "delete"))
_AT_ONCE = 256
"""Shards that are looked at in one round trip."""


class StoredShards(RecordServers):
    """The record of a sharded filter, with its table of shards."""

    def __init__(self, name: str, **parameters: Any) -> None:
        self._shards: dict[int, StoredShard] = {}
        self._table: list[bytes] = []
        self._until = 0.0  # it expires, by the clock of this process; 0 for never
        self.record: ShardRecord | None = None
        super().__init__(name, **parameters)

    def shard(self, number: int) -> StoredShard:
        """Return the state of a shard."""
        if number not in self._shards:
            self._shards.setdefault(number, StoredShard(self, number))
        return self._shards[number]

    def reset(self) -> None:
        super().reset()
        for shard in list(self._shards.values()):
            shard.reset()

    @property
    def is_lost(self) -> bool:
        """True if a loss was noticed and the caller has yet to deal with it."""
        return self._lost is not None

    def open(self) -> Op[Handle]:
        return self._open_by(self._find_record, self._know, stands=True)

    def take(self) -> Op[Handle]:
        noticed = self.is_lost
        self.reset()
        return self._open_by(partial(self._find_record, noticed=noticed), self._know, stands=False)

    def _find_record(self, *, noticed: bool = False) -> Op[Found]:
        """Create the record if it is missing and parameters were given; return what is stored, checked.

        :param noticed: the caller knows of the loss.
        """
        found = yield from self._look(0)
        if found is None and self._planned is None:
            raise self.explained(Refusal(replies.MISSING, ""))
        new = found.record if found else self._planned
        assert new is not None  # noqa: S101 - one of the two is there
        yield from self._copies(new, is_new=found is None or noticed)
        if found is None:
            found = yield from self._ask(0, _renewed(new))
            self._check(found.record, 0, new)
        return found

    def _know(self, found: Found) -> Handle:
        self._lost = None
        if self.record is None or self.record.head.generation != found.record.head.generation:
            for shard in list(self._shards.values()):
                shard.reset()
        if self.record is not None and _spread(self.record) != _spread(found.record):
            self._shards = {}  # they have other keys
        self.record, self._table = found.record, found.table
        self._note(found.ttl)
        return self.remember(found.record.head.identity, planning.stored(found.record.head))

    def _note(self, ttl: int) -> None:
        self._until = time.monotonic() + ttl / 1000 if ttl >= 0 else 0.0

    @property
    def remaining(self) -> int:
        """Milliseconds to live of a shard that is made now, 0 if it does not expire."""
        return max(1, round((self._until - time.monotonic()) * 1000)) if self._until else 0

    # -- the record as a whole

    def refreshed(self) -> Op[Found]:
        """Read the record; a loss is noticed."""
        handle = yield from self.acquire()
        try:
            found = yield from self._ask(0)
            if found.record.head.identity == handle.identity:
                self._table = found.table
                return found
            what = self.loss(replies.CHANGED)
        except (FilterNotFoundError, FilterMismatchError) as error:
            what = str(error)
        yield from self._reopen(what, handle)
        return (yield from self._ask(0))

    def current(self) -> Op[list[Description]]:
        found = yield from self.refreshed()
        size = shard_record.RECORD_BYTES + 8 * len(found.table)
        return [
            Description(self.key, found.record.head, size, shard_record.RECORD_BYTES, ttl_seconds(found.ttl))
        ]

    # -- the table

    def recorded(self, number: int) -> Op[bytes]:
        """Return the generation of a shard, b"" if it has never been made."""
        return self._table[number] or (yield from self.record_shard(number))

    def record_shard(
        self, number: int, generation: bytes = b"", replaced: bytes = NO_GENERATION
    ) -> Op[bytes]:
        """Record a shard's generation if the entry is `replaced`; return the generation that is recorded now.

        :raises LayoutChanged: the record is another one by now.
        """
        handle = yield from self.acquire()
        arguments: Arguments = [handle.identity, number, generation, replaced]
        wait = self.wait if generation else None
        try:
            text, ttl = yield from self._on(0, call(_RECORD, [self.key], arguments, wait))
        except Refusal as refusal:
            refused = refusal
        else:
            entry = unhex(text)
            self._table[number] = b"" if entry == NO_GENERATION else entry
            self._note(ttl)
            return self._table[number]
        yield from self._recover(refused, handle)
        raise LayoutChanged

    def made(self) -> list[int]:
        """Return the numbers of the shards that are known to have been made."""
        return [number for number, entry in enumerate(self._table) if entry]

    # -- losses

    def shard_lost(self, number: int) -> None:
        """Notice the loss of a shard: raise `FilterLostError` or go on, as `on_lost` says."""
        self._tell(f"shard {number} of {self.name!r} was expired, evicted, flushed, deleted or replaced")

    def _reopen(self, what: str, handle: Handle) -> Op[None]:
        """Notice a loss, and go on with the filter that is there now unless it has other shards."""
        before = self.record
        self.lose(what, handle)
        yield from self.acquire()
        if before is not None and self.record is not None and _spread(before) != _spread(self.record):
            self.handle = None
            raise FilterLostError(f"{what}, and what is there now has other shards: {self.record}")

    def _recover_record(self, refusal: Refusal, handle: Handle) -> Op[None]:
        return self._reopen(self.loss(refusal.word), handle)

    RECOVERY = dict.fromkeys(Versioned.RECOVERY, _recover_record)

    # -- the filter as a whole

    def clear(self) -> Op[None]:
        """Write a new record, without shards; then delete the old shards."""
        self.reset()
        opened = self._opened
        while True:
            found = yield from self._look(0)
            if found is None:
                yield from self.take()
                return
            new = _renewed(found.record)
            now = yield from self._ask(0, new, found.record.head.identity)
            if now.record.head.generation == new.head.generation:
                break
        yield from self._copies(new, is_new=True)
        yield from self._go_on_with(now, self._know, opened)
        yield from self._sweep(new, lambda generation: generation[:4] != new.tag)

    def delete(self, arguments: Arguments, keys: Sequence[bytes]) -> Op[bool]:
        """Delete the record, then the shards; if the record is missing, the shards that it left."""
        self.reset()
        found = None
        while (found := (yield from self._look(0))) is not None:
            values = [found.record.head.identity, *arguments]
            deleted = yield from self._on(0, self._as_known(_DELETE, [self.key, *keys], values))
            if deleted is not None:
                break
        record = found.record if found else self._planned
        if record is not None:
            yield from self._sweep(record, lambda generation: found is None or generation[:4] == record.tag)
            places = range(1, self.servers)
            unless_failed((yield from gather(self._delete_copy(place) for place in places)))
        return found is not None

    def _delete_copy(self, place: int) -> Op[None]:
        if (found := (yield from self._look(place))) is not None:
            yield from self._on(place, self._call(_DELETE, [found.record.head.identity], self.wait))

    def expire(self, ttl: int) -> Op[None]:
        """Let everything expire in `ttl` ms, the record last."""
        found = yield from self.refreshed()
        numbers = [number for number, entry in enumerate(found.table) if entry]
        yield from self._each(found.record, numbers, lambda shard: shard.expire(ttl))
        for place in range(1, self.servers):
            yield from self._on(place, send(("PEXPIRE", self.key, ttl)))
        yield from self._on(0, super().expire(ttl))
        self._note(ttl)

    def _sweep(self, record: ShardRecord, doomed: Callable[[bytes], bool]) -> Op[None]:
        """Delete the shards whose generation is `doomed`."""
        yield from self._each(record, range(record.shards), lambda shard: shard.drop(doomed), record)

    def _each(
        self,
        record: ShardRecord,
        numbers: Iterable[int],
        call: Callable[[StoredShard], Op[Any]],
        of: ShardRecord | None = None,
    ) -> Op[None]:
        def one(number: int) -> Op[Any]:
            shard = self.shard(number) if of is None else StoredShard(self, number, of)
            return self._on(record.server(number), call(shard))

        unless_failed((yield from gather(map(one, numbers), most=_AT_ONCE)))


def _renewed(record: ShardRecord) -> ShardRecord:
    return replace(record, head=replace(record.head, generation=os.urandom(8)))


def _spread(record: ShardRecord) -> tuple[int, ...]:
    return record.shards, record.seed, record.servers
