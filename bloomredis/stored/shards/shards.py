"""The shards of a sharded filter, and the record that says which of them exist.

The record has a table with the generation of every shard.  A shard is made when its first item comes: it is
created for a minute, the record is looked at again, the shard is kept, its generation is recorded in the
table, and only then is it used.  So a shard that is not recorded has no item, and one whose generation is not
the recorded one was lost.  Two clients that make a shard at the same time use the same one, or one of them
notices.  A crash in between leaves an empty shard, which goes by itself or is recorded by the next client.

`clear()` and `delete()` write a record that says so, and then delete the shards that are not that record's.
Whoever opens such a record does the same: the client that wrote it may be dead.

A shard notices its own loss at each call; the record is looked at once a second, beside a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeVar

from bloomredis.errors import (
    FilterLostError,
    RefusedOutcomeUnknownError,
    ServerRefusedError,
)
from bloomredis.protocol import forms, replies, scripts
from bloomredis.protocol.calls import send
from bloomredis.protocol.gather import gather, unless_failed
from bloomredis.protocol.replies import Refusal
from bloomredis.protocol.steps import Op
from bloomredis.stored import planning
from bloomredis.stored.shards import record as shard_record
from bloomredis.stored.shards.record import ShardRecord
from bloomredis.stored.shards.servers import SETTLE_RECORD, Found
from bloomredis.stored.shards.table import RecordTable, StoredShard
from bloomredis.stored.state.base import Arguments
from bloomredis.stored.state.handle import Description, Handle, ttl_seconds
from bloomredis.stored.state.versioned import Versioned

T = TypeVar("T")
_DELETE, _EXPIRE = (scripts.load(verb, forms.integer) for verb in ("delete", "expire"))


class StoredShards(RecordTable):
    """The record of a sharded filter, with its table of shards."""

    @property
    def is_lost(self) -> bool:
        """True if a loss was noticed and the caller has yet to deal with it."""
        return self._lost is not None

    def take(self) -> Op[Handle]:
        noticed = self.is_lost
        self.reset()
        return self._open_by(partial(self._find, noticed=noticed), stands=False)

    def _find(self, *, noticed: bool = False) -> Op[Found]:  # type: ignore[override]  # goes to `_accept` alone
        """Create the record if it is missing and parameters were given; return what is stored, checked.

        :param noticed: the caller knows of the loss.
        """
        found = None
        while found is None or found.record.state == shard_record.DELETED:
            found = yield from self._look(0)
            if found is not None and (yield from self._is_left(found)):
                found = (yield from self._ask(0)) if found.record.state == shard_record.RESTORED else found
                yield from self._copies(found.record, is_new=noticed)
                self._check_ttl(found.ttl)
                break
            if self._planned is None:
                raise self.explained(Refusal(replies.MISSING, ""))
            yield from self._prepare(self._planned, is_new=noticed or self.record is not None)
            found = yield from self._ask(0, self._planned.renewed())
            self._check(found.record, 0, self._planned)
            if found.record.state != shard_record.DELETED:
                yield from self._copies(found.record, is_new=True)  # a delete() may have ended since
        return found

    def _accept(self, found: Found) -> Handle:  # type: ignore[override]  # see `_find`
        if self.record is None or self.record.head.generation != found.record.head.generation:
            for shard in list(self._shards.values()):
                shard.reset()
        if self.record is not None and _spread(self.record) != _spread(found.record):
            self._shards = {}  # they have other keys
        self.record, self._table = found.record, found.table
        self._note(found.ttl, found.asked)
        head = found.record.head
        return self.remember(head.identity, planning.stored(head), generation=head.generation)

    # -- the record as a whole

    def refreshed(self) -> Op[Found]:
        """Read the record; a loss is noticed."""
        return self._watched(self._same_record)

    def _same_record(self, handle: Handle) -> Op[Found]:
        found = yield from self._ask(0)
        if found.record.head.identity != handle.identity:
            raise Refusal(replies.CHANGED, "")
        self._table = found.table
        return found

    def current(self) -> Op[list[Description]]:
        found = yield from self.refreshed()
        size = shard_record.RECORD_BYTES + 8 * len(found.table)
        return [
            Description(self.key, found.record.head, size, shard_record.RECORD_BYTES, ttl_seconds(found.ttl))
        ]

    # -- losses

    def _reopen(self, what: str, handle: Handle) -> Op[None]:
        """Notice a loss, and go on with the filter that is there now unless it has other shards."""
        before = self.record
        self.lose(what, handle)
        yield from self.acquire()
        if before is not None and self.record is not None and _spread(before) != _spread(self.record):
            self.forget()
            raise FilterLostError(f"{what}, and what is there now has other shards: {self.record}")

    def _recover_record(self, refusal: Refusal, handle: Handle) -> Op[None]:
        return self._reopen(self.loss(refusal.word), handle)

    RECOVERY = dict.fromkeys(Versioned.RECOVERY, _recover_record)

    # -- the filter as a whole

    def clear(self) -> Op[None]:
        """Write a new record, without shards; then delete the old shards."""
        self.reset()
        since = self._changes
        now, _ = yield from self._begin(shard_record.SWEEPING)
        if now is None:
            raise self.explained(Refusal(replies.MISSING, ""))
        with self._begun("clear"):
            yield from self._copies(now.record, is_new=True)
            yield from self._go_on_with(now, since)
            yield from self._finish(now.record)

    def delete(self, arguments: Arguments, keys: Sequence[bytes]) -> Op[bool]:  # noqa: ARG002 - a record says what was begun
        """Write a record that says so, delete the shards and the copies, and then the record."""
        self.reset()
        now, existed = yield from self._begin(shard_record.DELETED)
        if now is not None:
            with self._begun("delete"):
                yield from self._finish(now.record)
        return existed

    @contextmanager
    def _begun(self, verb: str) -> Iterator[None]:
        """Say of a refusal that the call has begun before."""
        try:
            yield
        except ServerRefusedError as error:
            message = f"{verb}() of {self.name!r} has begun, so call it again; on its way {error}"
            raise RefusedOutcomeUnknownError(message, error.word) from error

    def _begin(self, state: int) -> Op[tuple[Found | None, bool]]:
        """Store a record of another generation in that state; return it, and whether it replaced one.

        Where there is none, this object may know where an earlier one left shards; if not, none is stored.
        """
        while True:
            found = yield from self._look(0)
            if found is not None and not (yield from self._is_left(found)):
                found = None
            last = found.record if found else self._planned or self.record
            if last is None:
                return None, False
            if found is None and state != shard_record.DELETED:  # as in `_find`: copies come first
                yield from self._prepare(last, is_new=True)
            new = last.renewed(state)
            now = yield from self._ask(0, new, found.record.head.identity if found else b"")
            if now.record.head.generation == new.head.generation:
                return now, found is not None

    def each_shard(self, numbers: Iterable[int], call: Callable[[StoredShard], Op[T]]) -> Op[list[T]]:
        """Call for each of these shards, on the server that has it."""
        return (yield from self._each(self.known, numbers, lambda number: call(self.shard(number))))

    def _is_left(self, found: Found) -> Op[bool]:
        """Do what another client began and may not have ended; False if the record was to be deleted."""
        record = found.record
        if record.state == shard_record.DELETED:
            yield from self._finish(record)
            return False
        if record.state == shard_record.RESTORED:
            return (yield from self._complete(found))
        with suppress(ServerRefusedError):  # a user who only reads leaves it to others
            yield from self._finish(record)
        return True

    def _finish(self, record: ShardRecord) -> Op[None]:
        """Do what the state of a record asks for."""
        if record.state == shard_record.IN_USE:
            return
        yield from self._sweep(record)
        done = SETTLE_RECORD
        if record.state == shard_record.DELETED:
            yield from self._delete_copies(record)
            done = _DELETE
        yield from self._on(0, self._as_known(done, [self.key], [record.head.identity]))

    def _complete(self, found: Found) -> Op[bool]:
        """Let what was restored live on; if it has not all been there, delete it and return False.

        The record comes first: from then on it has an owner, which is whoever opens it next.
        """
        record, ttl = found.record, found.record.head.count
        shards = {
            number: StoredShard(self, number, record) for number, made in enumerate(found.table) if made
        }

        def stay(number: int) -> Op[bool]:
            head = yield from shards[number].found()
            if head is None or head.generation != found.table[number]:
                return False
            return (yield from shards[number].stays(head, ttl))

        try:
            for place in range(self.servers):
                yield from self._stays_at(place, ttl)
            if all((yield from self._each(record, shards, stay))):
                yield from self._on(0, self._as_known(SETTLE_RECORD, [self.key], [record.head.identity]))
                return True
        except ServerRefusedError as error:
            self._check_leaves(error)
            return True
        now = yield from self._ask(0, record.renewed(shard_record.DELETED), record.head.identity)
        if now.record.state == shard_record.DELETED:
            yield from self._finish(now.record)
        return False

    def _stays_at(self, place: int, ttl: int) -> Op[None]:
        """Let the record, or the copy at that place, live for `ttl` ms, or for ever if that is 0."""
        found = yield from self._look(place)
        if found is not None:
            identity = found.record.head.identity
            yield from self._on(place, self._as_known(_EXPIRE, [self.key], [identity, ttl]))

    def _sweep(self, record: ShardRecord) -> Op[None]:
        """Delete the shards that are not those of the stored record, which is read after they were seen."""
        shards = {number: StoredShard(self, number, record) for number in range(record.shards)}
        seen = yield from self._each(record, shards, lambda number: shards[number].found())
        live = shard_record.tag_of((yield from self._stored_generation()))
        doomed = {
            number: found
            for number, found in zip(shards, seen, strict=True)
            if found is not None and shard_record.tag_of(found.generation) != live
        }
        yield from self._each(record, doomed, lambda number: shards[number].drop(doomed[number]))

    def _delete_copies(self, record: ShardRecord) -> Op[None]:
        """Delete the copies that were seen while the record was stored: later ones are another filter's."""
        seen = yield from self._look_at_copies()
        if (yield from self._stored_generation()) == record.head.generation:
            deletions = (
                self._on(place, self._as_known(_DELETE, [self.key], [copy.record.head.identity]))
                for place, copy in seen.items()
                if copy is not None
            )
            unless_failed((yield from gather(deletions)))

    def expire(self, ttl: int) -> Op[None]:
        """Let everything expire in `ttl` ms; after the record the shards that were made meanwhile."""
        with self._begun("expire"):
            done = yield from self._expire_shards(ttl, set())
            for place in range(1, self.servers):
                yield from self._on(place, send(("PEXPIRE", self.key, ttl), forms.integer))
            yield from self._on(0, super().expire(ttl))
            self._note(ttl, self._looked)
            yield from self._expire_shards(ttl, done)

    def _expire_shards(self, ttl: int, done: set[int]) -> Op[set[int]]:
        """Let the recorded shards expire but those that are `done`; return which these are."""
        found = yield from self.refreshed()
        numbers = {number for number, entry in enumerate(found.table) if entry} - done
        yield from self._each(found.record, numbers, lambda number: self.shard(number).expire(ttl))
        return numbers


def _spread(record: ShardRecord) -> tuple[int, ...]:
    return record.shards, record.seed, record.servers
