"""A sharded filter: its record, and the shards that the record names.

The record stores the time at which each shard was created.  So its reader knows the identity of every shard,
and each call compares it.  To create a filter, a client first writes the record in a state that says that its
shards are being created, and then takes these steps:

1. Create the missing shards, empty, with a time to live of a minute.
2. Read the record.  If it has changed, begin again with the stored record.
3. If shards of an earlier record were found, delete them and begin again.
4. Settle the shards: give them the record's time to live, and half a minute more.
5. Write the times of the shards and the state "in use" into the record.

Every client that opens a record not in use takes these steps, so a client may die at any of them.  A client
deletes or settles a shard only if it saw the shard before it read the record.  Each shard has its own time of
creation, so no identity is used twice: a record in use never names a shard that was created late.

`clear()` writes a record whose shards are being created.  So does a client that opens the filter after its
caller has handled the loss of a shard.  `delete()` writes a record in the state "deleted", deletes the
shards, and then the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import Final, NamedTuple, TypeVar, Unpack

from bloomredis.bits.arrays import NDArray, np
from bloomredis.bits.batch import Encoded
from bloomredis.errors import (
    FilterLostError,
    FilterMismatchError,
    FilterNotFoundError,
    RefusedOutcomeUnknownError,
    ServerRefusedError,
)
from bloomredis.protocol import clock, forms, replies, scripts
from bloomredis.protocol.clock import next_round
from bloomredis.protocol.gather import gather, unless_failed
from bloomredis.protocol.replies import Refusal
from bloomredis.protocol.steps import Op
from bloomredis.stored import encoding, header, planning
from bloomredis.stored.header import KINDS, Header
from bloomredis.stored.shards import record as shard_record
from bloomredis.stored.shards.parts import OUTLIVED_MS, Seen, StoredShard, being_made
from bloomredis.stored.shards.record import DELETED, IN_USE, MAKING, NEW, RESTORED, ShardRecord
from bloomredis.stored.state.base import Arguments
from bloomredis.stored.state.handle import Description, Handle, ttl_seconds
from bloomredis.stored.state.knowledge import Record
from bloomredis.stored.state.versioned import Versioned

T = TypeVar("T")
_RESERVE, _SETTLE = (scripts.load_script(verb, forms.record) for verb in ("reserve_record", "settle_record"))
_DELETE: Final = scripts.load_script("delete", forms.integer)
_SHARDS_AT_ONCE: Final = 256
"""The most shards that are read or created in one round trip."""


class SeenRecord(NamedTuple):
    """A stored record; `ttl` is its time to live in ms, negative if it does not expire."""

    record: ShardRecord
    ttl: int


class StoredShards(Versioned[SeenRecord]):
    """A sharded filter, on one server or on a cluster."""

    is_one_bitmap = False
    called = KINDS[shard_record.KIND]

    def __init__(
        self,
        name: str,
        *,
        plan: ShardRecord | None,
        layout: str | None,
        wanted: Mapping[str, int | None],
        **options: Unpack[planning.StorageOptions],
    ) -> None:
        super().__init__(name, **options)
        self._wanted_head = planning.wanted_parameters(None if plan is None else plan.head, layout)
        self._planned = plan.encoded(self.encoding) if plan and self.encoding else plan
        self.creates = plan is not None
        self._wanted: dict[str, object] = {key: value for key, value in wanted.items() if value is not None}
        self._shards: dict[tuple[tuple[int, int], int], StoredShard] = {}  # by placement and number

    @property
    def head(self) -> Header | None:
        """The header of the record that was found, or else of the record that a new filter would get."""
        found: SeenRecord | None = self.known.now().found
        record = found.record if found else self._planned
        return None if record is None else record.head

    @property
    def record(self) -> ShardRecord:
        """The record that this object knows; the filter must be open."""
        found: SeenRecord | None = self.known.now().found
        if found is None:
            raise RuntimeError(f"{self.name!r} has not been opened")
        return found.record

    def version(self) -> bytes:
        record = self.record
        return record.head.generation + blake2b(record.table, digest_size=8).digest()

    def shard(self, number: int, record: ShardRecord | None = None) -> StoredShard:
        """Return the state of a shard of a record; by default that of the record that this object knows."""
        key = (record or self.record).placement, number
        return self._shards.get(key) or self._shards.setdefault(key, StoredShard(self, number, key[0]))

    def shard_with(self, encoded: bytes) -> StoredShard:
        """Return the shard that has an item; the filter must be open."""
        record = self.record
        return self.shard(record.number(encoded), record)

    def parted(self, items: Encoded) -> dict[StoredShard, NDArray[np.intp]]:
        """Return for each shard the indexes of its items, in order; shards without items are left out."""
        record = self.record
        return {self.shard(number, record): own for number, own in record.parted(items).items()}

    # -- the record

    def ask(self, new: ShardRecord | None = None, replaced: bytes = b"") -> Op[SeenRecord]:
        """Check and return the stored record.

        :param new: a record to write first if the key is missing or holds the identity `replaced`.
        """
        arguments: Arguments = [b"" if new is None else new.pack(), self._ttl, replaced]
        data, ttl = yield from self._call(_RESERVE, arguments, self.wait if new else None)
        return SeenRecord(self._checked(data), ttl)

    def look(self) -> Op[SeenRecord | None]:
        """Check and return the stored record; None if the key is missing."""
        try:
            return (yield from self.ask())
        except FilterNotFoundError:
            return None

    def _is_stored(self, record: ShardRecord) -> Op[bool]:
        """Return whether the stored record is still this one."""
        now = yield from self.look()
        return now is not None and now.record == record

    def _checked(self, data: bytes) -> ShardRecord:
        """Parse the record; raise if it differs from the wanted parameters."""
        try:
            record = shard_record.parse(data)
        except ValueError as error:
            raise header.unusable(self.name, error) from None
        wanted = self._wanted_head
        self.compare({field: getattr(record.head, field) for field in wanted}, wanted)
        encoding.check_encoding(self.name, record.head.encoding, self.encoding)
        self.compare({field: getattr(record, field) for field in self._wanted}, self._wanted)
        return record

    # -- opening

    def _find_whole(self, *, creates: bool) -> Op[SeenRecord | None]:
        return self._find(creates=creates, looks=True)

    def _find_acknowledged(self, *, creates: bool) -> Op[SeenRecord | None]:
        return self._find(creates=creates, saw_loss=True)

    def _compare(self) -> Op[object]:
        return self._watched(self._same_shards)

    def _same_shards(self, handle: Handle) -> Op[None]:
        record = (yield from self._same_record(handle)).record
        missing = yield from self._missing(record)
        if missing and (yield from self._is_stored(record)):
            self._lose(f"{missing} has vanished", handle.link)

    def _find(self, *, creates: bool, saw_loss: bool = False, looks: bool = False) -> Op[SeenRecord | None]:
        """Return the record of the filter, which is in use; create the filter as the base does.

        :param saw_loss: the caller replaces the shards, as after a loss.
        :param looks: check each shard.
        """
        known = self.known.now()
        saw_loss = saw_loss or known.loss is not None
        rounds, expired = None, False
        while True:
            rounds, begun = (yield from next_round(rounds, self.name)), clock.now()
            stored = yield from self.look()
            if not (stored or creates or saw_loss) and (yield from self._stay_alone()):
                self._lose_record(known)
                return None
            new = self._planned.renewed(NEW) if self._planned and creates else None
            found = stored or (yield from self.ask(new))
            record = found.record
            if record.state != IN_USE:
                done = yield from self.finish_work(found, None if saw_loss else known)
                if done is not None:
                    return done
                if self.known.now() is not known:
                    return None
                expired = self._check_expiry(found, clock.now() - begun, twice=expired)
                continue
            missing = (yield from self._missing(record)) if saw_loss or looks else ""
            if not missing:
                break
            if (yield from self._is_stored(record)):
                if not saw_loss:
                    used = known.found is not None
                    self._lose(f"{missing} has vanished", known.link, in_part=True, used=used)
                    return None
                yield from self.ask(record.unmade(), record.head.identity)
        self._check_ttl(found.ttl)
        return found

    def _check_expiry(self, found: SeenRecord, seconds: float, *, twice: bool) -> bool:
        """Return whether the record has expired while its shards were made; raise the second time."""
        expired = 0 <= found.ttl < seconds * 1000
        if expired and twice:
            raise FilterLostError(
                f"{self.name!r} expired while its {found.record.shards} shards were made, which took "
                f"{seconds * 1000:.0f} ms",
                advice="give it a longer ttl, or fewer shards",
            )
        return expired

    def _stay_alone(self) -> Op[bool]:
        """Return whether a shard stays without a record: it is seen before and after the record is missed."""
        if self._planned is None:
            return False
        before = yield from self._staying(self._planned)
        if not before or (yield from self.look()):
            return False
        return not before.isdisjoint((yield from self._staying(self._planned)))

    def _staying(self, record: ShardRecord) -> Op[set[bytes]]:
        """Return the identities of the shards that stay under a record's keys."""
        met = yield from self.each(shard.seen() for shard in self.shards_of(record))
        return {seen.head.identity for seen in met if seen is not None and seen.stays}

    def _lose_record(self, known: Record) -> None:
        self._lose(f"the record of {self.name!r} has vanished", known.link, used=False)

    def _acknowledged(self, known: Record) -> Op[SeenRecord | None]:
        found = yield from self.ask()
        last = None if known.found is None else known.found.record.head
        return found if found.record.state == IN_USE and found.record.head.succeeds(last) else None

    def _mark(self, found: SeenRecord) -> Op[SeenRecord | None]:
        head = yield from self._mark_head(found.record.head)
        return None if head is None else found._replace(record=replace(found.record, head=head))

    def _is_same(self, handle: Handle, known: SeenRecord) -> bool:
        own = self._handle_of(known).identity
        return own == handle.identity or header.differ_by_mark(own, handle.identity)

    def _handle_of(self, found: SeenRecord) -> Handle:
        head = found.record.head
        return self.new_handle(head.identity, planning.stored(head), generation=head.generation)

    # -- shards

    def shards_of(self, record: ShardRecord) -> list[StoredShard]:
        """Return all shards of a record, in the order of its table."""
        return [StoredShard(self, number, record.placement) for number in range(record.shards)]

    def each(self, operations: Iterable[Op[T]]) -> Op[list[T]]:
        """Run operations on shards concurrently; return the answers in order."""
        return unless_failed((yield from gather(operations, most=_SHARDS_AT_ONCE)))

    def each_shard(self, call: Callable[[StoredShard], Op[T]]) -> Op[list[T]]:
        """Run an operation for each shard; return the answers in order."""
        return self.each(call(self.shard(number)) for number in range(self.record.shards))

    def _missing(self, record: ShardRecord) -> Op[str]:
        """Return the name of a shard that differs from the record; "" if all shards match it."""
        met = yield from self.each(shard.seen() for shard in self.shards_of(record))
        for number, (seen, made) in enumerate(zip(met, record.made, strict=True)):
            if seen is None or seen.is_being_made or not record.owns(seen.head) or _time(seen) != made:
                return shard_record.shard_of(self.name, number)
        return ""

    def finish_work(self, found: SeenRecord, known: Record | None) -> Op[SeenRecord | None]:
        """Finish the work that a record's state asks for; return the record if it is in use now, else None.

        :param known: what the caller knew before; None if it knows of the loss of an earlier record.
        """
        if found.record.state == DELETED:
            yield from self._end(found.record)
            return None
        return (yield from self._make(found, known))

    def _make(self, found: SeenRecord, known: Record | None) -> Op[SeenRecord | None]:
        """Create a record's missing shards and set it in use; return None if the caller must look again."""
        record, shards = found.record, self.shards_of(found.record)
        restored = record.made if record.state == RESTORED else (0,) * len(shards)
        new = being_made(record.shard).pack()
        way = (
            shard.seen() if made else shard.make(new) for shard, made in zip(shards, restored, strict=True)
        )
        met: list[Seen | None] = yield from self.each(way)
        if not (yield from self._is_stored(record)):
            return None
        there = {number: seen for number, seen in enumerate(met) if seen is not None}
        if any(made and _time(there.get(number)) != made for number, made in enumerate(restored)):
            # A restored shard has vanished or changed, and the filter was never in use: delete the rest.
            yield from self.ask(record.renewed(DELETED), record.head.identity)
            return None
        others = {number: seen for number, seen in there.items() if not record.owns(seen.head)}
        if others:
            if record.state == NEW and known and any(seen.stays for seen in others.values()):
                if not self.known.recreates:  # a record that stayed might not have the shards' parameters
                    yield from self.if_unchanged(_DELETE, [self.key], [record.head.identity])
                self._lose_record(known)
            yield from self._drop(record, others)
            return None
        ttl = 0 if found.ttl < 0 else found.ttl + OUTLIVED_MS
        if not all(
            (yield from self.each(shards[number].settle(seen, ttl) for number, seen in there.items()))
        ):
            return None
        return (yield from self._settle(replace(record, made=tuple(map(_time, there.values())))))

    def _drop(self, record: ShardRecord, seen: Mapping[int, Seen]) -> Op[None]:
        """Delete shards that were seen under a record's keys, unless they have changed."""
        shards = self.shards_of(record)
        yield from self.each(shards[number].drop(each.head) for number, each in seen.items())

    def _settle(self, record: ShardRecord) -> Op[SeenRecord | None]:
        """Write the times of all shards and the state "in use"; return None if the record has changed."""
        reply = yield from self.if_unchanged(_SETTLE, [self.key], [record.head.identity, record.table])
        if reply is None:
            return None
        data, ttl = reply
        found = SeenRecord(self._checked(data), ttl)
        return found if found.record.state == IN_USE else None

    # -- the filter as a whole

    def refreshed(self) -> Op[SeenRecord]:
        """Read the record; detect a loss."""
        return self._watched(self._same_record)

    def _same_record(self, handle: Handle) -> Op[SeenRecord]:
        found = yield from self.ask()
        if found.record.head.identity != handle.identity:
            raise Refusal(replies.CHANGED, "")
        return found

    def _recover_change(self, refusal: Refusal, handle: Handle) -> Op[None]:
        """Go on if only the mark differs."""
        known = self.known.now()
        found = yield from self.look()
        if found is not None and header.differ_by_mark(found.record.head.identity, handle.identity):
            self.known.opened(known, self._handle_of(found), found)
        else:
            self._recover_loss(refusal, handle)

    RECOVERY = Versioned.RECOVERY | {replies.CHANGED: _recover_change}

    def current(self) -> Op[list[Description]]:
        found = yield from self.refreshed()
        size = shard_record.RECORD_BYTES + len(found.record.table)
        return [
            Description(self.key, found.record.head, size, shard_record.RECORD_BYTES, ttl_seconds(found.ttl))
        ]

    def clear(self) -> Op[None]:
        """Write a record with a new generation, and replace the shards."""
        if not (yield from self._write_anew(MAKING))[0]:
            raise self.explained(Refusal(replies.MISSING, ""))
        with self._begun("clear"):
            find = partial(self._find, creates=True, saw_loss=True)
            yield from self._open_by(find, stands=False)

    def delete(self, arguments: Arguments, keys: Sequence[bytes]) -> Op[bool]:
        """Write a record in the state "deleted", delete the shards, and then the record."""
        record, existed = yield from self._write_anew(DELETED)
        if record is not None:
            with self._begun("delete"):
                yield from self._end(record)
        return existed

    @contextmanager
    def _begun(self, verb: str) -> Iterator[None]:
        """Turn a server's refusal into an error which says that the call was done in part."""
        try:
            yield
        except ServerRefusedError as error:
            raise RefusedOutcomeUnknownError(
                f"{verb}() of {self.name!r} was done in part: {error.problem}",
                error.word,
                advice=f"{error.advice}; then call {verb}() again",
                command=f"{error.command}; then run the command again",
            ) from error

    def _write_anew(self, state: int) -> Op[tuple[ShardRecord | None, bool]]:
        """Store a record with a new generation and this state; return it, and whether it replaced a record.

        If the record is missing, shards may be left under the keys of a record that this object knows or
        would create, so that record is stored.  If this object knows none, nothing is stored.
        """
        rounds = None
        while True:
            rounds = yield from next_round(rounds, self.name)
            found = yield from self.look()
            if found is not None and found.record.state == DELETED:
                yield from self._end(found.record)  # another client's delete() was interrupted or still runs
                continue
            known: SeenRecord | None = self.known.now().found
            last = found.record if found else self._planned or (known and known.record)
            if last is None:
                return None, False
            new = last.renewed(state)
            now = yield from self.ask(new, found.record.head.identity if found else b"")
            if now.record.head.generation == new.head.generation:
                return now.record, found is not None

    def _end(self, record: ShardRecord) -> Op[None]:
        """Delete a deleted record's shards, and then the record.

        Keys that hold no shard of any record are left alone.
        """
        outcomes = yield from gather((shard.seen() for shard in self.shards_of(record)), most=_SHARDS_AT_ONCE)
        unless_failed(each for each in outcomes if not isinstance(each, FilterMismatchError))
        if (yield from self._is_stored(record)):
            seen = {number: each for number, each in enumerate(outcomes) if isinstance(each, Seen)}
            yield from self._drop(record, seen)
            yield from self.if_unchanged(_DELETE, [self.key], [record.head.identity])

    def expire(self, ttl: int) -> Op[None]:
        """Let the record expire in `ttl` ms, and then all shards half a minute later.

        The shards are there as long as the record, even if it is about to expire.
        """
        with self._begun("expire"):
            handle = rounds = None
            while handle is None or self.handle is not handle:  # repeat if the filter was replaced
                rounds = yield from next_round(rounds, self.name)
                yield from super().expire(ttl)
                handle = self.known.now().handle
                yield from self.each_shard(lambda shard: shard.expire(ttl + OUTLIVED_MS))


def _time(seen: Seen | None) -> int:
    """Return the time at which a shard was created; 0 for None."""
    return seen.head.created_at if seen else 0
